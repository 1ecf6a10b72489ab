//! Clients that end while others of the same lock continue.

use std::sync::Arc;

use lockdog::error::{InstanceState, LostReason};
use lockdog::{Error, Owner};

use super::{SOON, Servers, decided, has, lock_of, ms, states};
use crate::support::eventually;

#[tokio::test]
async fn a_shut_down_client_loses_only_its_instance() {
    for ending in 0..3 {
        let servers = Servers::start(3).await;
        let clients = servers
            .clients_with(|builder| builder.watchdog_lease(ms(4_800)))
            .await;
        let lock = lock_of(&clients, "l");
        let guard = lock.lock().await.unwrap();
        has(&guard, 3).await;
        clients[ending].shutdown().await;
        eventually(SOON, "it is released there", async || {
            servers.taken("l").await == 2
        })
        .await;
        // Longer than a lease: another client's thread renews it, in place of the one before.
        tokio::time::sleep(ms(5_300)).await;
        assert!(guard.is_valid());
        assert_eq!(guard.margin(), 0);
        let nested = decided(|| lock.try_lock()).await;
        assert_eq!(nested.map(|guard| guard.hold_count()), Some(2));
        guard.unlock().await.unwrap();
        servers.assert_counts("l", [0; 3]).await;

        // The remaining clients can acquire the lock, at once and after a wait.
        let guard = lock.lock().await.unwrap();
        let closed = states(&guard)
            .into_iter()
            .filter(|state| {
                matches!(state, InstanceState::Unreachable { cause, .. } if matches!(cause, Error::Closed))
            })
            .count();
        assert_eq!(closed, 1, "{guard:?}");
        let waiter = tokio::spawn({
            let lock = lock.clone();
            async move { lock.lock().owner(&Owner::new()).await.unwrap() }
        });
        tokio::time::sleep(ms(200)).await;
        assert!(!waiter.is_finished());
        guard.unlock().await.unwrap();
        let guard = tokio::time::timeout(SOON, waiter).await.unwrap().unwrap();
        guard.unlock().await.unwrap();
    }
}

/// A client that ends releases what it holds: no client may then count a quorum that does not exist any more.
#[tokio::test]
async fn shutting_down_a_majority_of_clients_ends_the_lock_before_another_holder_gets_it() {
    let servers = Servers::start(3).await;
    let clients = servers.clients().await;
    let lock = lock_of(&clients, "l");
    let guard = lock.lock().await.unwrap();
    has(&guard, 3).await;
    let token = guard.lost_token();
    clients[2].shutdown().await;
    assert!(guard.is_valid() && !token.is_cancelled());
    let other = servers.lock("l").await;
    let guard = Arc::new(guard);
    let ours = guard.clone();
    let waiting = tokio::spawn(async move {
        let theirs = other.lock().await.unwrap();
        (theirs, ours.is_valid())
    });
    tokio::time::sleep(ms(200)).await;
    clients[0].shutdown().await;
    assert!(!guard.is_valid());
    let (theirs, was_valid) = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
    assert!(!was_valid, "two hold it, as far as they know");
    tokio::time::timeout(SOON, token.cancelled()).await.unwrap();
    assert_eq!(guard.lost().await.reason(), LostReason::ShutDown);
    let guard = Arc::into_inner(guard).expect("the waiter has ended");
    assert!(guard.unlock().await.unwrap_err().is_lost());
    assert!(theirs.is_valid());
}

#[tokio::test]
async fn shutting_down_all_clients_ends_the_lock_and_every_wait() {
    let servers = Servers::start(3).await;
    let clients = servers.clients().await;
    let lock = lock_of(&clients, "l");
    let guard = lock.lock().await.unwrap();
    has(&guard, 3).await;
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().owner(&Owner::new()).await }
    });
    tokio::time::sleep(ms(200)).await;
    for client in &clients {
        client.shutdown().await;
    }
    let lost = tokio::time::timeout(SOON, guard.lost()).await.unwrap();
    assert_eq!(lost.reason(), LostReason::ShutDown);
    let ended = tokio::time::timeout(SOON, waiter).await.unwrap().unwrap();
    assert!(matches!(ended.unwrap_err(), Error::Closed));
    drop(guard);
    for error in [
        lock.lock().await.unwrap_err(),
        lock.try_lock().await.unwrap_err(),
    ] {
        assert!(matches!(error, Error::Closed), "{error}");
    }
    servers.assert_counts("l", [0; 3]).await;
    servers.assert_clean().await;
}

#[tokio::test]
async fn a_lock_and_its_guards_keep_the_clients_alive() {
    let servers = Servers::start(3).await;
    let clients = servers
        .clients_with(|builder| builder.watchdog_lease(ms(4_800)))
        .await;
    let lock = lock_of(&clients, "l");
    drop(clients);
    let guard = lock.lock().await.unwrap();
    drop(lock);
    tokio::time::sleep(ms(6_000)).await;
    assert!(guard.is_valid());
    servers.assert_counts("l", [1, 1, 1]).await;
    drop(guard);
    servers.assert_counts("l", [0; 3]).await;
    servers.assert_clean().await;
}
