//! A future dropped at its n-th poll, for every n, leaves no hold on any instance.

use std::collections::BTreeSet;
use std::time::Duration;

use lockdog::error::InstanceState;
use lockdog::report::Verdict;
use lockdog::{ClientBuilder, Error, Held, RedLock};

use super::fixture::{Fixture, give_back, take};
use super::is_acquire;
use crate::faults::poll::{LINGERS, poll_n_times};
use crate::red_lock::{SOON, lock_of, ms};
use crate::support::eventually;

use super::NAME;

/// The call is dropped at every await.
#[tokio::test]
async fn a_dropped_lock_leaves_nothing_on_any_instance() {
    let stages = everywhere(async |locks, n, linger| {
        poll_n_times(locks.mine.lock().into_future(), n, linger)
            .await
            .map(|guard| drop(guard.expect("it is free")))
    })
    .await;
    // Dropped before anything was sent, and with all of it under way.
    assert!(stages.contains(&0) && stages.contains(&3), "{stages:?}");
}

/// The call is dropped at every await.
#[tokio::test]
async fn a_dropped_try_lock_for_a_token_leaves_nothing_on_any_instance() {
    everywhere(async |locks, n, linger| {
        let lock = locks.mine.clone().fenced();
        poll_n_times(lock.try_lock().into_future(), n, linger)
            .await
            .map(|guard| drop(guard.expect("the servers answer").expect("it is free")))
    })
    .await;
}

/// The call is dropped at every await.
#[tokio::test]
async fn a_dropped_wait_leaves_nothing_on_any_instance() {
    let stages = everywhere(async |locks, n, linger| {
        let others = take(&locks.yours).await;
        let wait = locks.mine.try_lock().wait(Duration::from_secs(20));
        let release = async {
            tokio::time::sleep(ms(40)).await;
            others.unlock().await.expect("it is held");
        };
        let (got, ()) = tokio::join!(poll_n_times(wait.into_future(), n, linger), release);
        got.map(|guard| {
            drop(
                guard
                    .expect("the servers answer")
                    .expect("the lock became free"),
            )
        })
    })
    .await;
    // Before, between and after its rounds.
    assert!(stages.len() >= 3, "{stages:?}");
}

/// The call is dropped at every await.
#[tokio::test]
async fn a_dropped_nested_lock_leaves_the_outer_hold_unchanged() {
    everywhere(async |locks, n, linger| {
        let outer = locks.mine.lock().lease(SOON).await.unwrap();
        // It needs the outer hold longer, so that every instance is asked.
        let inner = locks.mine.lock().lease(SOON * 2);
        let done = poll_n_times(inner.into_future(), n, linger)
            .await
            .map(|inner| drop(inner.expect("it is ours")));
        assert!(outer.is_valid());
        assert_eq!(outer.hold_count(), 1);
        for instance in outer.instances() {
            let is_lost = matches!(
                instance.state,
                InstanceState::Unreachable {
                    cause: Error::Closed,
                    ..
                } | InstanceState::Lost
            );
            assert!(!is_lost, "nothing is wrong with it: {instance}");
        }
        // The client finishes the round without the caller.
        eventually(SOON / 2, "the outer hold has all", async || {
            assert!(outer.is_valid());
            outer.verdict() == Verdict::Held && outer.margin() == 1
        })
        .await;
        give_back(outer).await;
        done
    })
    .await;
}

/// The call is dropped at every await.
#[tokio::test]
async fn a_dropped_unlock_releases_every_instance() {
    everywhere(async |locks, n, linger| {
        let guard = locks.mine.lock().await.unwrap();
        poll_n_times(guard.unlock(), n, linger)
            .await
            .map(|unlocked| assert!(unlocked.is_ok(), "{unlocked:?}"))
    })
    .await;
    everywhere(async |locks, n, linger| {
        locks.mine.lock().await.unwrap().forget();
        poll_n_times(locks.mine.unlock().into_future(), n, linger)
            .await
            .map(|unlocked| assert!(unlocked.is_ok(), "{unlocked:?}"))
    })
    .await;
}

/// The call is dropped at every await.
#[tokio::test]
async fn a_dropped_with_releases_every_instance() {
    everywhere(async |locks, n, linger| {
        let work = async |held: Held| {
            assert!(held.is_valid());
            tokio::time::sleep(ms(20)).await;
        };
        poll_n_times(locks.mine.with(work), n, linger)
            .await
            .map(|done| done.expect("it was held throughout"))
    })
    .await;
}

/// Two sets of clients, the first of which cancels.
struct Locks {
    mine: RedLock,
    yours: RedLock,
}

/// Runs `call` with every number of polls up to its end, and checks each time that nothing is left,
/// long before a lease could end it. How many acquires had been sent when it was dropped.
async fn everywhere(call: impl AsyncFn(&Locks, usize, Duration) -> Option<()>) -> BTreeSet<usize> {
    let test = Fixture::proxied(3).await;
    let long = |builder: ClientBuilder| builder.watchdog_lease(SOON * 3);
    let mine = test.clients_with(long).await;
    let yours = test.direct_clients_with(long).await;
    let locks = Locks {
        mine: lock_of(&mine, NAME),
        yours: lock_of(&yours, NAME),
    };
    // Every server knows the scripts.
    give_back(take(&locks.mine).await).await;
    give_back(take(&locks.yours).await).await;
    let sent = || {
        test.proxies
            .iter()
            .map(|proxy| proxy.count(is_acquire))
            .sum::<usize>()
    };
    let mut stages = BTreeSet::new();
    for linger in LINGERS {
        let (mut n, mut ended_at_once) = (0, 0);
        loop {
            n += 1;
            assert!(n < 200, "it is polled again and again");
            test.await_taken(0).await;
            let before = sent();
            let done = call(&locks, n, linger).await;
            stages.insert(sent() - before);
            test.await_taken(0).await;
            // What was under way when it was dropped may arrive yet, and is undone then.
            eventually(SOON, "they get every instance", async || {
                let guard = take(&locks.yours).await;
                tokio::time::sleep(ms(2)).await;
                let all = guard.margin() == 1;
                give_back(guard).await;
                all
            })
            .await;
            eventually(SOON, "nothing is held", async || {
                mine.iter().all(|client| client.holds().is_empty())
            })
            .await;
            match done {
                None => {}
                Some(()) if n > 1 => break,
                // This thread was not scheduled during the first poll, so the answer has arrived.
                Some(()) => {
                    n = 0;
                    ended_at_once += 1;
                    assert!(ended_at_once < 20, "the call waits for nothing");
                }
            }
        }
    }
    for server in &test.servers {
        server.redis().await.assert_clean().await;
    }
    stages
}
