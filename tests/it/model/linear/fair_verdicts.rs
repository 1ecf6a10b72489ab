//! The verdicts of the search on made-up histories of a fair lock.

use super::fair_queue::FairCall::{self, Enter, Expire, Grant, Leave, Seen};
use super::fair_queue::FairQueue;
use super::search::{PATIENCE, Timed, Verdict, judge};

type History = Vec<Timed<FairCall>>;

fn answered(call: FairCall, began: u64, ended: u64) -> Timed<FairCall> {
    let ended = Some(ended);
    Timed { call, began, ended }
}

fn unknown(call: FairCall, began: u64) -> Timed<FairCall> {
    let ended = None;
    Timed { call, began, ended }
}

fn verdict(history: &[Timed<FairCall>]) -> Verdict {
    judge(&FairQueue::default(), history, PATIENCE)
}

/// Hold 1 has the lock until 30. Hold 2 enters in the first interval, and hold 3 in the second one.
fn two_wait(second: [u64; 2], third: [u64; 2]) -> History {
    vec![
        answered(Enter(1), 0, 2),
        answered(Grant(1), 0, 2),
        answered(Enter(2), second[0], second[1]),
        answered(Enter(3), third[0], third[1]),
        answered(Leave(1), 30, 31),
    ]
}

/// Hold 2 enters, and after it hold 3.
fn one_by_one() -> History {
    two_wait([10, 11], [20, 21])
}

/// The first one has the lock until about 41, then the second one.
fn granted(mut history: History, order: [u32; 2]) -> History {
    history.extend([
        answered(Grant(order[0]), 5, 40),
        answered(Leave(order[0]), 41, 42),
        answered(Grant(order[1]), 5, 50),
    ]);
    history
}

/// Only hold 3 gets the lock, between 30 and 40.
fn passed(more: impl IntoIterator<Item = Timed<FairCall>>) -> History {
    let mut history = one_by_one();
    history.push(answered(Grant(3), 5, 40));
    history.extend(more);
    history
}

#[test]
fn waiters_that_entered_one_after_the_other_are_granted_in_that_order_only() {
    assert_eq!(verdict(&granted(one_by_one(), [2, 3])), Verdict::Legal);
    assert_eq!(verdict(&granted(one_by_one(), [3, 2])), Verdict::Illegal);
}

#[test]
fn waiters_whose_entries_overlapped_are_granted_in_either_order() {
    for order in [[2, 3], [3, 2]] {
        let history = two_wait([10, 21], [11, 20]);
        assert_eq!(verdict(&granted(history, order)), Verdict::Legal);
    }
}

#[test]
fn a_waiter_is_passed_after_it_left_and_not_before() {
    assert_eq!(verdict(&passed([])), Verdict::Illegal);
    let left = |at| passed([unknown(Leave(2), at)]);
    assert_eq!(verdict(&left(35)), Verdict::Legal);
    // The later one had the lock already.
    assert_eq!(verdict(&left(45)), Verdict::Illegal);
}

#[test]
fn a_dead_waiter_is_passed_after_its_time_and_not_before() {
    let expired = |at| passed([unknown(Expire(2), at)]);
    assert_eq!(verdict(&expired(35)), Verdict::Legal);
    assert_eq!(verdict(&expired(45)), Verdict::Illegal);
    // The time of a waiter that is not first ends as well, and nothing follows.
    let third = passed([unknown(Expire(3), 22)]);
    assert_eq!(verdict(&third), Verdict::Illegal);
}

#[test]
fn a_dead_waiter_that_is_not_first_keeps_its_place() {
    let dropped = |waiting: &[u32]| {
        let mut history = one_by_one();
        let waiting = waiting.to_vec();
        let holder = Some(1);
        history.push(unknown(Expire(3), 22));
        history.push(answered(Seen { holder, waiting }, 25, 26));
        history
    };
    assert_eq!(verdict(&dropped(&[2, 3])), Verdict::Legal);
    assert_eq!(verdict(&dropped(&[2])), Verdict::Illegal);
}

#[test]
fn a_waiter_that_lost_its_place_enters_again_at_the_end() {
    let again = |order: [u32; 2]| {
        let mut history = granted(one_by_one(), order);
        history.push(unknown(Expire(2), 25));
        history.push(answered(Enter(2), 25, 28));
        history
    };
    assert_eq!(verdict(&again([3, 2])), Verdict::Legal);
    assert_eq!(verdict(&again([2, 3])), Verdict::Illegal);
}

#[test]
fn a_free_lock_is_not_taken_past_a_waiter() {
    let taken = |began, ended| {
        let mut history = granted(one_by_one(), [2, 3]);
        history.push(answered(Leave(3), 55, 56));
        history.push(answered(Enter(4), began, ended));
        history.push(answered(Grant(4), began, ended));
        history
    };
    // Between the release by hold 1 and the grant to hold 2.
    assert_eq!(verdict(&taken(32, 34)), Verdict::Illegal);
    assert_eq!(verdict(&taken(57, 58)), Verdict::Legal);
}

#[test]
fn a_lock_with_a_holder_is_not_granted() {
    let mut history = granted(one_by_one(), [2, 3]);
    history.retain(|it| it.call != Leave(1));
    assert_eq!(verdict(&history), Verdict::Illegal);
}

#[test]
fn a_hold_without_a_place_is_not_granted() {
    let mut history = granted(one_by_one(), [2, 3]);
    history.retain(|it| it.call != Enter(3));
    assert_eq!(verdict(&history), Verdict::Illegal);
}

#[test]
fn the_server_shows_the_queue_in_the_order_of_entries() {
    let seen = |mut history: History, waiting: &[u32]| {
        let waiting = waiting.to_vec();
        let holder = Some(1);
        history.push(answered(Seen { holder, waiting }, 25, 26));
        history
    };
    assert_eq!(verdict(&seen(one_by_one(), &[2, 3])), Verdict::Legal);
    assert_eq!(verdict(&seen(one_by_one(), &[3, 2])), Verdict::Illegal);
    // The entries overlap, and the server shows which one was first: the grants follow it.
    let entered = two_wait([10, 21], [11, 20]);
    let shown = granted(seen(entered, &[3, 2]), [2, 3]);
    assert_eq!(verdict(&shown), Verdict::Illegal);
}
