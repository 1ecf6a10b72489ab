//! Locks that no owner holds any more, and that stay taken until their leases are over.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use lockdog::{Error, Owner, Unlocked};
use lockdog_test::Server;
use tokio::time::sleep;

use crate::support::locks::{AnyLock, Fixture};

const LEASE: Duration = Duration::from_secs(60);
const MOMENT: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_lock_left_to_its_lease_has_no_owner_and_outlives_the_shutdown() {
    for fixture in Fixture::each().await {
        let guard = fixture.try_lock().lease(LEASE).await.unwrap();
        guard.expect("it is free").leave_to_lease();
        // The owner does not hold the lock any more.
        assert!(fixture.try_lock().await.unwrap().is_none());
        let unlocked = match &fixture.lock {
            AnyLock::Plain(lock) => lock.unlock().await,
            AnyLock::Multi(lock) => lock.unlock().await,
            AnyLock::Quorum(lock) => lock.unlock().await,
        };
        assert!(matches!(unlocked, Err(Error::NotHeld(_))), "{unlocked:?}");
        for client in &fixture.clients {
            assert!(client.holds().is_empty());
            let report = client.shutdown().await;
            assert_eq!((report.released, report.unconfirmed), (0, 0));
        }
        sleep(LEASE - 5 * MOMENT).await;
        assert!(fixture.is_taken());
        sleep(6 * MOMENT).await;
        assert_eq!(fixture.taken(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watched_lock_left_to_its_lease_is_no_longer_renewed() {
    for fixture in Fixture::each().await {
        let guard = fixture.held().await;
        // Longer than the lease of a watchdog.
        sleep(2 * LEASE).await;
        guard.leave_to_lease();
        sleep(15 * MOMENT).await;
        assert!(fixture.is_taken());
        sleep(16 * MOMENT).await;
        assert_eq!(fixture.taken(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn other_guards_keep_a_hold_left_to_its_lease_and_their_end_does_not_release_it() {
    for how in ["unlock", "drop", "shutdown"] {
        for fixture in Fixture::each().await {
            let outer = fixture.held().await;
            fixture.held().await.leave_to_lease();
            sleep(2 * LEASE).await;
            assert!(outer.is_valid() && fixture.is_taken());
            match how {
                "unlock" => {
                    let unlocked = outer.unlock().await.unwrap();
                    assert_eq!(unlocked, Unlocked::StillHeld { count: 1 });
                }
                "drop" => drop(outer),
                _ if matches!(fixture.lock, AnyLock::Quorum(_)) => continue,
                _ => {
                    for client in &fixture.clients {
                        assert_eq!(client.shutdown().await.released, 0);
                    }
                    drop(outer);
                }
            }
            sleep(15 * MOMENT).await;
            assert!(fixture.is_taken(), "{how}");
            sleep(16 * MOMENT).await;
            assert_eq!(fixture.taken(), 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pending_inner_release_does_not_delete_a_lock_left_to_its_lease() {
    for fixture in Fixture::each().await {
        let (outer, inner) = (fixture.held().await, fixture.held().await);
        drop(inner);
        outer.leave_to_lease();
        sleep(MOMENT).await;
        assert!(fixture.is_taken());
    }
}

/// The release of an inner guard is still being retried when the shutdown ends the hold.
#[tokio::test(start_paused = true)]
async fn a_shutdown_keeps_a_lock_left_to_its_lease_while_an_inner_release_is_retried() {
    let server = Server::new();
    let client = server.client().await;
    let lock = client.lock("orders");
    let mut guards = Vec::new();
    for _ in 0..3 {
        guards.push(lock.lock().lease(LEASE).await.unwrap());
    }
    guards.pop().unwrap().leave_to_lease();
    server.freeze();
    drop(guards.pop());
    sleep(MOMENT).await;
    let (_, ()) = tokio::join!(client.shutdown(), async {
        sleep(MOMENT).await;
        server.thaw();
    });
    drop(guards);
    sleep(MOMENT).await;
    assert!(
        server.keys().contains(&"orders".to_owned()),
        "it was left to its lease"
    );
    sleep(LEASE).await;
    server.assert_clean().await;
}

/// A call that is dropped before its command was sent changes nothing.
#[tokio::test(start_paused = true)]
async fn a_dropped_extend_does_not_lengthen_a_lock_left_to_its_lease() {
    let server = Server::new();
    let client = server.client().await;
    let guard = client.lock("orders").lock().lease(LEASE).await.unwrap();
    {
        let mut extending = Box::pin(guard.extend(LEASE * 60));
        let once = poll_fn(|cx| Poll::Ready(extending.as_mut().poll(cx).is_pending()));
        assert!(once.await);
    }
    guard.leave_to_lease();
    sleep(LEASE + MOMENT).await;
    server.assert_clean().await;
}

/// The watchdog's thread sends the command with the usual command timeout and not with the short
/// requested lease.
#[tokio::test(start_paused = true)]
async fn an_extend_that_is_shorter_than_the_lease_waits_for_its_answer() {
    let server = Server::new();
    let client = server.client().await;
    let guard = client.lock("orders").lock().lease(LEASE).await.unwrap();
    server.delay(Duration::from_millis(50));
    guard.extend(Duration::from_millis(10)).await.unwrap();
    assert!(
        guard.remaining() > LEASE - 5 * MOMENT,
        "no lease is shortened"
    );
    server.delay(Duration::ZERO);
    guard.unlock().await.unwrap();
    server.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_waiter_of_the_same_client_gets_a_lock_left_to_its_lease_when_the_lease_ends() {
    let server = Server::new();
    let lock = server.client().await.lock("orders");
    let guard = lock.lock().lease(LEASE).await.unwrap();
    let began = tokio::time::Instant::now();
    let owner = Owner::new();
    let waiting = lock.lock().owner(&owner);
    let (next, ()) = tokio::join!(async { waiting.await.unwrap() }, async {
        sleep(MOMENT).await;
        guard.leave_to_lease();
    });
    let waited = began.elapsed();
    assert!(
        waited + MOMENT >= LEASE && waited <= LEASE + MOMENT,
        "{waited:?}"
    );
    next.unlock().await.unwrap();
    server.assert_clean().await;
}
