//! Locks that nobody holds any more, and that stay taken until their leases are over.

use std::time::Duration;

use lockdog::{Error, Owner, Unlocked};
use lockdog_test::Server;
use tokio::time::sleep;

use crate::support::locks::{AnyLock, Stand};

const LEASE: Duration = Duration::from_secs(60);
const MOMENT: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_left_to_its_lease_is_nobodys_and_outlives_the_shutdown() {
    for stand in Stand::each().await {
        let guard = stand.try_lock().lease(LEASE).await.unwrap();
        guard.expect("it is free").leave_to_lease();
        // Its owner is no holder any more.
        assert!(stand.try_lock().await.unwrap().is_none());
        let unlocked = match &stand.lock {
            AnyLock::Plain(lock) => lock.unlock().await,
            AnyLock::Multi(lock) => lock.unlock().await,
            AnyLock::Quorum(lock) => lock.unlock().await,
        };
        assert!(matches!(unlocked, Err(Error::NotHeld(_))), "{unlocked:?}");
        for client in &stand.clients {
            assert!(client.holds().is_empty());
            let report = client.shutdown().await;
            assert_eq!((report.released, report.unconfirmed), (0, 0));
        }
        sleep(LEASE - 5 * MOMENT).await;
        assert!(stand.is_taken());
        sleep(6 * MOMENT).await;
        assert_eq!(stand.taken(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_without_a_lease_is_renewed_no_more_once_it_was_left() {
    for stand in Stand::each().await {
        let guard = stand.held().await;
        // Longer than the lease of a watchdog.
        sleep(2 * LEASE).await;
        guard.leave_to_lease();
        sleep(15 * MOMENT).await;
        assert!(stand.is_taken());
        sleep(16 * MOMENT).await;
        assert_eq!(stand.taken(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn other_guards_of_the_hold_keep_it_and_leave_it_when_the_last_one_ends() {
    for how in ["unlock", "drop", "shutdown"] {
        for stand in Stand::each().await {
            let outer = stand.held().await;
            stand.held().await.leave_to_lease();
            sleep(2 * LEASE).await;
            assert!(outer.is_valid() && stand.is_taken());
            match how {
                "unlock" => {
                    let unlocked = outer.unlock().await.unwrap();
                    assert_eq!(unlocked, Unlocked::StillHeld { count: 1 });
                }
                "drop" => drop(outer),
                _ if matches!(stand.lock, AnyLock::Quorum(_)) => continue,
                _ => {
                    for client in &stand.clients {
                        assert_eq!(client.shutdown().await.released, 0);
                    }
                    drop(outer);
                }
            }
            sleep(15 * MOMENT).await;
            assert!(stand.is_taken(), "{how}");
            sleep(16 * MOMENT).await;
            assert_eq!(stand.taken(), 0);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_release_of_an_inner_guard_that_is_still_owed_does_not_delete_what_was_left() {
    for stand in Stand::each().await {
        let (outer, inner) = (stand.held().await, stand.held().await);
        drop(inner);
        outer.leave_to_lease();
        sleep(MOMENT).await;
        assert!(stand.is_taken());
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_of_the_same_client_gets_what_was_left_when_the_lease_is_over() {
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
