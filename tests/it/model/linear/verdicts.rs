//! The verdict of the search on random histories of correct and incorrect objects.

use std::collections::HashSet;

use super::fair_queue::FairQueue;
use super::objects::{Count, LockCall, OneHolder, Permits, Register, Values};
use super::programs::{
    Counting, Grouping, Locking, Program, Queueing, Reading, SEATS, Size, Taking, history,
};
use super::search::{PATIENCE, Sequential, Timed, Verdict, judge};
use crate::support::Dice;

/// All histories are legal, and the search says so, of all but a few.
fn judged<P: Program>(start: &P::Object, what: &str) {
    let mut undecided = 0;
    for number in 0..histories() {
        let mut dice = Dice::of(number * 2 + 1);
        let size = Size {
            unknown: dice.roll(30),
            ..LARGE
        };
        let history = history::<P>(start, size, &mut dice);
        match judge(start, &history, PATIENCE) {
            Verdict::Legal => {}
            Verdict::Illegal => panic!("{what} {number} is said to be illegal: {history:#?}"),
            Verdict::Undecided => undecided += 1,
        }
    }
    println!(
        "{what}: {undecided} of {} histories are undecided",
        histories()
    );
    assert!(
        undecided * 1_000 <= histories(),
        "{undecided} histories of {what} are undecided"
    );
}

/// Without those of a fair lock: the order of many entries at the same time shows only in later grants, so the search
/// may leave one undecided. In recorded histories the server shows the order soon after the entries.
#[test]
fn histories_of_right_programs_are_legal() {
    judged::<Locking>(&OneHolder::default(), "locking");
    judged::<Reading>(&Register::default(), "reading");
    judged::<Taking>(&Permits::new(SEATS), "taking");
    judged::<Counting>(&Count::default(), "counting");
    judged::<Grouping>(&Values::default(), "grouping");
}

/// Another hold has the lock while a hold has it: from the answer of an acquire up to its release.
#[test]
fn a_second_holder_is_refused_among_calls_without_answers() {
    let mut refused = 0;
    for number in 0..40 {
        let mut dice = Dice::of(number * 2 + 1);
        let size = Size {
            unknown: dice.roll(30),
            ..LARGE
        };
        let mut history = history::<Locking>(&OneHolder::default(), size, &mut dice);
        let Some((hold, ended)) = first_hold(&history) else {
            continue;
        };
        let call = LockCall::Acquire {
            hold: 1_000_000,
            token: 0,
        };
        history.push(Timed {
            call,
            began: ended + 1,
            ended: Some(ended + 1),
        });
        let verdict = judge(&OneHolder::default(), &history, PATIENCE);
        assert_eq!(verdict, Verdict::Illegal, "history {number}, hold {hold}");
        refused += 1;
    }
    println!("{refused} histories are refused");
    assert!(refused >= 10, "{refused} histories have a hold that ended");
}

/// A hold that is released later, by a known outcome. In some histories an acquire with an unknown outcome keeps the
/// lock.
fn first_hold(history: &[Timed<LockCall>]) -> Option<(u32, u64)> {
    let is_released = |hold: u32| {
        let of_hold = |it: &&Timed<LockCall>| matches!(it.call, LockCall::Release { hold: released, left: 0 } if released == hold);
        history.iter().filter(of_hold).any(|it| it.ended.is_some())
    };
    history.iter().find_map(|it| match (it.call, it.ended) {
        (LockCall::Acquire { hold, .. }, Some(ended)) if is_released(hold) => Some((hold, ended)),
        _ => None,
    })
}

/// The savings of the search lose no order: it agrees with one that tries all.
fn compared<P: Program>(start: &P::Object, what: &str) {
    let (mut legal, mut illegal) = (0, 0);
    for number in 0..histories() * 200 {
        let mut dice = Dice::of(number * 2 + 1);
        let size = Size {
            unknown: dice.roll(60),
            ..SMALL
        };
        let mut history = history::<P>(start, size, &mut dice);
        // Mostly wrong then: two calls with an answer change places.
        let answered = |call: &usize| history[*call].ended.is_some();
        let answered: Vec<usize> = (0..history.len()).filter(answered).collect();
        let mut any = || Some(*answered.get(dice.roll(SMALL.calls as u64) as usize)?);
        if let (Some(one), Some(other)) = (any(), any()) {
            let call = history[one].call.clone();
            history[one].call = std::mem::replace(&mut history[other].call, call);
        }
        let is_legal = is_explained(start, &history, 0, &mut HashSet::new());
        let expected = match is_legal {
            true => Verdict::Legal,
            false => Verdict::Illegal,
        };
        let verdict = judge(start, &history, PATIENCE);
        assert_eq!(verdict, expected, "{what} {number}: {history:#?}");
        *(if is_legal { &mut legal } else { &mut illegal }) += 1;
    }
    println!("{what}: {legal} legal and {illegal} illegal histories");
    assert!(legal > 0 && illegal > 0, "{what}: {legal}, {illegal}");
}

/// Whether calls that are not in `taken` can follow, of which all with an answer have to.
fn is_explained<S: Sequential>(
    state: &S,
    history: &[Timed<S::Call>],
    taken: u64,
    failed: &mut HashSet<(u64, S)>,
) -> bool {
    let open = |call: &usize| taken >> call & 1 == 0;
    let all = (0..history.len()).filter(open);
    let Some(first_end) = all.clone().filter_map(|call| history[call].ended).min() else {
        return true;
    };
    if failed.contains(&(taken, state.clone())) {
        return false;
    }
    let is_explained = all
        .filter(|call| history[*call].began <= first_end)
        .any(|call| {
            let after = state.after(&history[call].call);
            after.is_some_and(|after| is_explained(&after, history, taken | 1 << call, failed))
        });
    if !is_explained {
        failed.insert((taken, state.clone()));
    }
    is_explained
}

#[test]
fn the_search_agrees_with_one_that_tries_every_order() {
    compared::<Locking>(&OneHolder::default(), "locking");
    compared::<Reading>(&Register::default(), "reading");
    compared::<Taking>(&Permits::new(SEATS), "taking");
    compared::<Counting>(&Count::default(), "counting");
    compared::<Grouping>(&Values::default(), "grouping");
    compared::<Queueing>(&FairQueue::default(), "queueing");
}

/// `LOCKDOG_CASES`, or as many as run in a second.
fn histories() -> u64 {
    let cases = std::env::var("LOCKDOG_CASES").ok();
    cases.map_or(10, |cases| cases.parse().expect("it is a number"))
}

const LARGE: Size = Size {
    threads: 8,
    calls: 200,
    unknown: 0,
};

/// So few calls that all orders can be tried.
const SMALL: Size = Size {
    threads: 3,
    calls: 12,
    unknown: 0,
};
