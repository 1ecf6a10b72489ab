//! A fair member: the multi lock is one waiter in its queue on the server, and acquires the other
//! members when it has its turn.

use std::sync::{Arc, Mutex};

use lockdog::{Client, Guard, MultiLock, Owner};
use tokio::task::JoinHandle;

use super::*;
use crate::multi_lock::{LONG, SOON, ms, waiter};
use crate::support::{eventually, until_ok};

/// The fields that wait for a fair lock of this name on the first server.
async fn queue(test: &Fixture, name: &str) -> Vec<String> {
    let key = format!("redisson_lock_queue:{{{name}}}");
    test.servers.redis[0]
        .ask(&["LRANGE", &key, "0", "-1"])
        .await
}

async fn eventually_queued(test: &Fixture, name: &str, waiters: usize) {
    eventually(SOON, "the waiters are in the queue", async || {
        queue(test, name).await.len() == waiters
    })
    .await;
}

/// Records its turn and releases the lock.
fn turn(
    number: usize,
    waiting: JoinHandle<Guard>,
    turns: &Arc<Mutex<Vec<usize>>>,
) -> JoinHandle<()> {
    let turns = turns.clone();
    tokio::spawn(async move {
        let guard = waiting.await.expect("it waits");
        turns.lock().unwrap().push(number);
        guard.unlock().await.unwrap();
    })
}

/// A multi lock with plain members of its own, so that no other one finds them held. The members are
/// released at the same time: of two multi locks with a common plain member, the next one may have its
/// turn before that member is free, and then it enters the queue again at its end.
fn with_own_members(number: usize, clients: &[Client]) -> MultiLock {
    MultiLock::new([
        clients[0].lock(format!("a{number}")),
        clients[0].fair_lock(MEMBER),
        clients[1].lock(format!("z{number}")),
    ])
}

async fn all_end(turns: impl IntoIterator<Item = JoinHandle<()>>) {
    for turn in turns {
        let ended = tokio::time::timeout(SOON, turn).await;
        ended.expect("in time").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_multi_lock_has_its_turn_in_the_order_of_the_queue() {
    let test = Fixture::start(2).await;
    let others = test.others().await;
    let held = others[0].fair_lock(MEMBER).lock().await.unwrap();
    let turns = Arc::default();
    let mut waiting = Vec::new();
    // Waiters of three kinds: of another client, of its own client, and multi locks of both.
    for number in 0..12 {
        let clients = if number % 2 == 0 {
            &test.clients
        } else {
            &others
        };
        let waits = match number % 3 {
            0 => waiter(&with_own_members(number, clients)),
            _ => crate::turn::waiter(&clients[0].fair_lock(MEMBER)),
        };
        waiting.push(turn(number, waits, &turns));
        eventually_queued(&test, MEMBER, number + 1).await;
    }
    held.unlock().await.unwrap();
    all_end(waiting).await;
    assert_eq!(*turns.lock().unwrap(), (0..12).collect::<Vec<_>>());
    test.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fair_member_is_released_and_queued_last_again_if_another_member_is_busy() {
    let test = Fixture::start(2).await;
    let others = test.others().await;
    let fair = others[0].fair_lock(MEMBER);
    let held = fair.lock().await.unwrap();
    let lock = KINDS[0].among_others(&test.clients);
    let waiting = waiter(&lock);
    eventually_queued(&test, MEMBER, 1).await;
    let behind = crate::turn::waiter(&fair);
    eventually_queued(&test, MEMBER, 2).await;
    let plain = others[1].lock("z").lock().lease(LONG).await.unwrap();
    // The multi lock is the first and cannot use its turn.
    held.unlock().await.unwrap();
    let next = tokio::time::timeout(SOON, behind)
        .await
        .expect("it reaches the front of the queue");
    let next = next.unwrap();
    assert!(!waiting.is_finished());
    // The multi lock waits for one of the two busy members now.
    plain.unlock().await.unwrap();
    // Now only the fair member is busy, and the multi lock is in its queue.
    eventually_queued(&test, MEMBER, 1).await;
    let last = crate::turn::waiter(&fair);
    eventually_queued(&test, MEMBER, 2).await;
    next.unlock().await.unwrap();
    let guard = tokio::time::timeout(SOON, waiting).await.expect("its turn");
    assert!(!last.is_finished());
    guard.unwrap().unlock().await.unwrap();
    let last = tokio::time::timeout(SOON, last).await.expect("its turn");
    last.unwrap().unlock().await.unwrap();
    test.assert_clean().await;
}

/// The multi lock is the first in the queue when the member is released, and another member is busy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_without_the_other_members_goes_to_the_next_waiter() {
    let test = Fixture::start(2).await;
    let others = test.others().await;
    let fair = others[0].fair_lock(MEMBER);
    let held = fair.lock().await.unwrap();
    let lock = KINDS[0].among_others(&test.clients);
    let waiting = waiter(&lock);
    eventually_queued(&test, MEMBER, 1).await;
    let behind = [waiter(&lock), crate::turn::waiter(&fair)];
    eventually_queued(&test, MEMBER, 3).await;
    let plain = others[1].lock("z").lock().lease(LONG).await.unwrap();
    held.unlock().await.unwrap();
    let [second, third] = behind;
    let third = tokio::time::timeout(SOON, third)
        .await
        .expect("it reaches the front of the queue");
    third.unwrap().unlock().await.unwrap();
    assert!(!waiting.is_finished() && !second.is_finished());
    plain.unlock().await.unwrap();
    // The order does not matter, because each ends its turn by itself.
    let turns = Arc::default();
    all_end([waiting, second].map(|waits| turn(0, waits, &turns))).await;
    test.assert_clean().await;
}

/// While others wait in the queue, an attempt without a wait is refused and does not enter the queue.
#[tokio::test]
async fn an_attempt_passes_no_waiter_of_the_queue() {
    let test = Fixture::start(2).await;
    let others = test.others().await;
    let fair = others[0].fair_lock(MEMBER);
    let held = fair.lock().await.unwrap();
    let mut waiting = crate::turn::waiter(&fair);
    eventually_queued(&test, MEMBER, 1).await;
    let before = queue(&test, MEMBER).await;
    let lock = KINDS[0].among_others(&test.clients);
    for _ in 0..3 {
        assert!(lock.try_lock().await.unwrap().is_none());
        assert_eq!(queue(&test, MEMBER).await, before);
    }
    // A wait that ends leaves the queue.
    assert!(
        until_ok(SOON, async || lock.try_lock().wait(ms(300)).await)
            .await
            .is_none()
    );
    eventually(SOON, "it left", async || {
        queue(&test, MEMBER).await == before
    })
    .await;
    held.unlock().await.unwrap();
    let guard = (&mut waiting).await.unwrap();
    assert!(lock.try_lock().await.unwrap().is_none());
    guard.unlock().await.unwrap();
    let guard = lock.try_lock().await.unwrap().expect("it is free");
    guard.unlock().await.unwrap();
    test.assert_clean().await;
}

/// The holder is of another client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_multi_lock_keeps_its_place_and_those_of_its_client_for_long() {
    keeps_its_place(false).await;
}

/// The holder is of the client that waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_multi_lock_keeps_its_place_behind_its_own_client_for_long() {
    keeps_its_place(true).await;
}

/// One poll keeps all waiters of a client in the queue for longer than they may be absent.
async fn keeps_its_place(own_holds: bool) {
    // Much longer than a command takes on a busy machine.
    let absence = ms(10_000);
    let test = Fixture::start(2).await;
    let set = |client: lockdog::ClientBuilder| client.poll_cap(ms(200)).fair_absence(absence);
    let (own, other) = (
        test.servers.clients_with(set).await,
        test.servers.clients_with(set).await,
    );
    let holder = if own_holds { &own } else { &other };
    let held = holder[0].fair_lock(MEMBER).lock().await.unwrap();
    let turns = Arc::default();
    let mut waiting = Vec::new();
    for number in 0..4 {
        let waits = match number {
            0 | 2 => waiter(&with_own_members(number, &own)),
            1 => crate::turn::waiter(&own[0].fair_lock(MEMBER)),
            _ => crate::turn::waiter(&other[0].fair_lock(MEMBER)),
        };
        waiting.push(turn(number, waits, &turns));
        eventually_queued(&test, MEMBER, number + 1).await;
    }
    let before = queue(&test, MEMBER).await;
    tokio::time::sleep(absence + ms(2_000)).await;
    assert_eq!(
        queue(&test, MEMBER).await,
        before,
        "they are the same waits"
    );
    held.unlock().await.unwrap();
    all_end(waiting).await;
    assert_eq!(*turns.lock().unwrap(), [0, 1, 2, 3]);
    test.assert_clean().await;
}

/// Another task of the owner gets the fair member while the multi lock waits for it: it re-enters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_its_owner_gets_meanwhile_is_acquired_once_more() {
    let test = Fixture::start(2).await;
    let others = test.others().await;
    let held = others[0].fair_lock(MEMBER).lock().await.unwrap();
    let owner = Owner::new();
    let alone = test.clients[0].fair_lock(MEMBER);
    let first = tokio::spawn(alone.lock().owner(&owner).into_future());
    eventually_queued(&test, MEMBER, 1).await;
    let lock = KINDS[0].among_others(&test.clients);
    let second = tokio::spawn(lock.lock().owner(&owner).into_future());
    eventually_queued(&test, MEMBER, 2).await;
    held.unlock().await.unwrap();
    let first = tokio::time::timeout(SOON, first).await.expect("its turn");
    let first = first.unwrap().unwrap();
    let second = tokio::time::timeout(SOON, second)
        .await
        .expect("it re-enters");
    let second = second.unwrap().unwrap();
    assert_eq!(first.hold_count(), 2);
    // The client's thread gives up the place of the multi lock.
    eventually(SOON, "no waiter is left in the queue", async || {
        queue(&test, MEMBER).await.is_empty()
    })
    .await;
    second.unlock().await.unwrap();
    first.unlock().await.unwrap();
    test.assert_clean().await;
}

/// A future that is polled once and abandoned does not block the other waiters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unpolled_multi_lock_at_the_head_of_the_queue_delays_no_other_waiter_for_long() {
    let test = Fixture::start(2).await;
    let others = test.others().await;
    let set = |client: lockdog::ClientBuilder| client.poll_cap(ms(200)).fair_absence(ms(10_000));
    let own = test.servers.clients_with(set).await;
    let held = others[0].fair_lock(MEMBER).lock().await.unwrap();
    let lock = KINDS[0].among_others(&own);
    let mut left = Box::pin(lock.lock().owner(&Owner::new()).into_future());
    let queued = async {
        eventually_queued(&test, MEMBER, 1).await;
    };
    tokio::select! {
        _ = &mut left => panic!("it is busy"),
        () = queued => {}
    }
    // One of its own client, and one of another.
    let of_its_client = crate::turn::waiter(&own[0].fair_lock(MEMBER));
    eventually_queued(&test, MEMBER, 2).await;
    let behind = [
        of_its_client,
        crate::turn::waiter(&others[0].fair_lock(MEMBER)),
    ];
    eventually_queued(&test, MEMBER, 3).await;
    held.unlock().await.unwrap();
    for waits in behind {
        let guard = tokio::time::timeout(SOON, waits).await.expect("its turn");
        guard.unwrap().unlock().await.unwrap();
    }
    // The future continues when it is polled again.
    let guard = tokio::time::timeout(SOON, left)
        .await
        .expect("all are free");
    guard.unwrap().unlock().await.unwrap();
    test.assert_clean().await;
}

/// A message wakes each waiter. `force_unlock` frees the second lock.
#[tokio::test]
async fn a_multi_lock_with_two_fair_members_waits_for_one_after_the_other() {
    let test = Fixture::start(1).await;
    let patient = test
        .servers
        .clients_with(|client| client.poll_cap(ms(60_000)).fair_absence(ms(240_000)))
        .await;
    let others = test.others().await;
    let [x, y] = ["x", "y"].map(|name| others[0].fair_lock(name));
    let (in_x, in_y) = (x.lock().await.unwrap(), y.lock().await.unwrap());
    let lock = MultiLock::new([patient[0].fair_lock("x"), patient[0].fair_lock("y")]);
    let waiting = waiter(&lock);
    let is_queued = async |name: &str| !queue(&test, name).await.is_empty();
    eventually(SOON, "it waits for one", async || {
        is_queued("x").await != is_queued("y").await
    })
    .await;
    let (first, second) = match is_queued("x").await {
        true => (in_x, ("y", in_y)),
        false => (in_y, ("x", in_x)),
    };
    let channels = async || test.servers.redis[0].channels().await.len() == 1;
    eventually(SOON, "it listens", channels).await;
    first.unlock().await.unwrap();
    eventually(SOON, "it waits for the other", async || {
        is_queued(second.0).await
    })
    .await;
    eventually(SOON, "it listens", channels).await;
    assert!(!waiting.is_finished());
    assert!(others[0].fair_lock(second.0).force_unlock().await.unwrap());
    let guard = tokio::time::timeout(SOON, waiting)
        .await
        .expect("it is called");
    guard.unwrap().unlock().await.unwrap();
    drop(second);
    test.assert_clean().await;
}
