//! A future dropped at its n-th poll, for every n, leaves no hold, no place in a queue and no
//! announcement.

use super::*;
use crate::faults::poll::{LINGERS, poll_n_times};
use crate::multi_lock::{LONG, SOON, ms};
use crate::support::eventually;

/// No member is busy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_lock_leaves_nothing_of_any_kind() {
    let test = Fixture::start(2).await;
    for kind in KINDS {
        everywhere(&test, kind, async |lock, n, linger| {
            let guard = poll_n_times(lock.lock().into_future(), n, linger).await;
            guard.map(|guard| drop(guard.expect("it is free")))
        })
        .await;
    }
}

/// The member of the kind is busy until the wait has begun.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_wait_for_a_member_leaves_nothing_of_any_kind() {
    let test = Fixture::start(2).await;
    let others = test.others().await;
    for kind in KINDS {
        everywhere(&test, kind, async |lock, n, linger| {
            let conflicting = (kind.conflicting)(&others[0], MEMBER);
            let held = conflicting.lock().lease(LONG).await.unwrap();
            let wait = lock.try_lock().wait(SOON);
            let release = async {
                tokio::time::sleep(ms(40)).await;
                held.unlock().await.unwrap();
            };
            let (guard, ()) = tokio::join!(poll_n_times(wait.into_future(), n, linger), release);
            guard.map(|guard| {
                drop(
                    guard
                        .expect("the servers answer")
                        .expect("the lock became free"),
                )
            })
        })
        .await;
    }
}

/// The member of the kind is granted while a plain member is busy, and released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_wait_for_a_plain_member_leaves_nothing_of_any_kind() {
    let test = Fixture::start(2).await;
    let others = test.others().await;
    for kind in KINDS {
        everywhere(&test, kind, async |lock, n, linger| {
            let conflicting = (kind.conflicting)(&others[0], MEMBER);
            let held = conflicting.lock().lease(LONG).await.unwrap();
            let plain = others[1].lock("z").lock().lease(LONG).await.unwrap();
            let wait = lock.try_lock().wait(SOON);
            let release = async {
                tokio::time::sleep(ms(30)).await;
                held.unlock().await.unwrap();
                tokio::time::sleep(ms(30)).await;
                plain.unlock().await.unwrap();
            };
            let (guard, ()) = tokio::join!(poll_n_times(wait.into_future(), n, linger), release);
            guard.map(|guard| {
                drop(
                    guard
                        .expect("the servers answer")
                        .expect("the lock became free"),
                )
            })
        })
        .await;
    }
}

/// Runs `call` with every number of polls up to its end, and checks each time that nothing is left.
async fn everywhere(
    test: &Fixture,
    kind: MemberKind,
    call: impl AsyncFn(&MultiLock, usize, std::time::Duration) -> Option<()>,
) {
    let lock = kind.among_others(&test.clients);
    let mut most = 0;
    for linger in LINGERS {
        for n in 1.. {
            assert!(n < 100, "{}: it is polled again and again", kind.name);
            let done = call(&lock, n, linger).await;
            eventually(SOON, "nothing is held", async || {
                test.clients.iter().all(|client| client.holds().is_empty())
            })
            .await;
            test.assert_clean().await;
            if done.is_some() {
                most = n.max(most);
                break;
            }
        }
    }
    // A late poll may find the call complete.
    assert!(most >= 2, "{}: it ended after {most} polls", kind.name);
}
