//! A future dropped at its n-th poll, for every n, leaves nothing behind.

use std::time::Duration;

use super::{Fixture, SOON, multi};
use crate::faults::poll::{LINGERS, poll_n_times};
use crate::support::eventually;

/// A lock that is free.
#[tokio::test]
async fn a_dropped_lock_leaves_nothing() {
    everywhere(3, async |test, n, linger| {
        let lock = test.multi(&MEMBERS);
        let guard = poll_n_times(lock.lock().into_future(), n, linger).await;
        guard.map(|guard| drop(guard.expect("it is free")))
    })
    .await;
}

/// One attempt that finds one member busy.
#[tokio::test]
async fn a_dropped_attempt_leaves_nothing() {
    everywhere(2, async |test, n, linger| {
        let elsewhere = test.held_elsewhere(1, "c").await;
        let lock = test.multi(&MEMBERS);
        let guard = poll_n_times(lock.try_lock().into_future(), n, linger).await;
        elsewhere.unlock().await.unwrap();
        guard.map(|guard| assert!(guard.expect("the servers answer").is_none()))
    })
    .await;
}

/// A wait, through every step of it up to the end.
#[tokio::test]
async fn a_dropped_wait_leaves_nothing() {
    everywhere(5, async |test, n, linger| {
        let elsewhere = test.held_elsewhere(1, "c").await;
        let lock = test.multi(&MEMBERS);
        let wait = lock.try_lock().wait(Duration::from_secs(20));
        let release = async {
            tokio::time::sleep(Duration::from_millis(40)).await;
            elsewhere.unlock().await.unwrap();
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

/// A nested acquire leaves the outer hold unchanged.
#[tokio::test]
async fn a_dropped_nested_lock_leaves_the_outer_hold_unchanged() {
    everywhere(2, async |test, n, linger| {
        let lock = test.multi(&MEMBERS);
        let outer = lock.lock().await.unwrap();
        let inner = poll_n_times(lock.lock().into_future(), n, linger).await;
        let done = inner.map(|inner| drop(inner.expect("it is ours")));
        eventually(SOON, "the counts are as before", async || {
            let mut counts = Vec::new();
            for (server, name) in MEMBERS {
                counts.extend(test.counts(server, name).await);
            }
            counts == ["1"; 4]
        })
        .await;
        assert!(outer.is_valid() && outer.hold_count() == 1);
        outer.unlock().await.unwrap();
        done
    })
    .await;
}

/// An unlock that is dropped unlocks.
#[tokio::test]
async fn a_dropped_unlock_releases_the_lock() {
    everywhere(2, async |test, n, linger| {
        let guard = test.multi(&MEMBERS).lock().await.unwrap();
        let unlocked = poll_n_times(guard.unlock(), n, linger).await;
        unlocked.map(|unlocked| assert!(unlocked.is_ok(), "{unlocked:?}"))
    })
    .await;
    everywhere(2, async |test, n, linger| {
        let lock = test.multi(&MEMBERS);
        lock.lock().await.unwrap().forget();
        let unlocked = poll_n_times(lock.unlock().into_future(), n, linger).await;
        unlocked.map(|unlocked| assert!(unlocked.is_ok(), "{unlocked:?}"))
    })
    .await;
}

/// `with`: the work is dropped, and all members are released.
#[tokio::test]
async fn a_dropped_with_leaves_nothing() {
    everywhere(3, async |test, n, linger| {
        let lock = test.multi(&MEMBERS);
        let work = async |held: lockdog::Held| {
            assert!(held.is_valid());
            tokio::task::yield_now().await;
        };
        let done = poll_n_times(lock.with(work), n, linger).await;
        done.map(|done| assert!(done.is_ok(), "{done:?}"))
    })
    .await;
}

/// Runs `call` with every number of polls up to its end, which must take more than `least` polls.
/// Checks each time that other owners acquire all members before any lease ends.
async fn everywhere(least: usize, call: impl AsyncFn(&Fixture, usize, Duration) -> Option<()>) {
    let test = Fixture::start(3).await;
    let others = multi(&test.others().await, &MEMBERS);
    let mut most = 0;
    for (round, linger) in LINGERS.into_iter().cycle().take(10).enumerate() {
        // A late poll may find the call complete. Then the test repeats it.
        if round >= LINGERS.len() && most >= least {
            break;
        }
        for n in 1.. {
            assert!(n < 100, "it is polled again and again");
            let done = call(&test, n, linger).await;
            let next = others
                .try_lock()
                .wait(SOON)
                .await
                .expect("the servers answer");
            next.expect("it was released").unlock().await.unwrap();
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
    assert!(most >= least, "it ended after {most} polls");
}

const MEMBERS: [(usize, &str); 4] = [(0, "a"), (0, "b"), (1, "c"), (2, "d")];
