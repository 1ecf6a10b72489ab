//! Lock, unlock, busy, re-entry and hand-over, on healthy servers.

use std::future::IntoFuture;

use lockdog::error::InstanceState;
use lockdog::{Error, Owner, RedLock, Unlocked};

use super::{SOON, Servers, decided, lock_of, ms};
use crate::support::eventually;

#[tokio::test]
async fn a_red_lock_is_acquired_and_released_on_every_server() {
    let servers = Servers::start(5).await;
    let lock = servers.lock("l").await;
    let guard = lock.lock().await.unwrap();
    eventually(SOON, "all servers have the lock", || async {
        servers.taken("l").await == 5
    })
    .await;
    eventually(SOON, "all count", || async { guard.margin() == 2 }).await;
    let instances = guard.instances();
    for (instance, server) in instances.iter().zip(&servers.all) {
        assert!(
            matches!(instance.state, InstanceState::Acquired),
            "{instance}"
        );
        // In the order in which they were given.
        assert_eq!(instance.server, format!("127.0.0.1:{}", server.port()));
    }
    assert!(guard.is_valid() && guard.remaining() > ms(10_000));
    assert_eq!(
        (guard.name(), guard.hold_count(), guard.token()),
        ("l", 1, None)
    );
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    eventually(SOON, "no server has the lock", || async {
        servers.taken("l").await == 0
    })
    .await;
    servers.assert_clean().await;
}

#[tokio::test]
async fn try_lock_finds_the_lock_busy_and_a_waiter_gets_it() {
    let servers = Servers::start(3).await;
    let (first, second) = (servers.lock("l").await, servers.lock("l").await);
    let guard = first.lock().await.unwrap();
    assert!(decided(|| second.try_lock()).await.is_none());
    assert!(
        decided(|| second.try_lock().wait(ms(1_000)))
            .await
            .is_none()
    );
    let waiter = tokio::spawn(second.lock().into_future());
    tokio::time::sleep(ms(300)).await;
    assert!(!waiter.is_finished());
    guard.unlock().await.unwrap();
    let guard = waiter.await.unwrap().unwrap();
    assert!(guard.is_valid());
    guard.unlock().await.unwrap();
    eventually(SOON, "no server has the lock", || async {
        servers.taken("l").await == 0
    })
    .await;
}

#[tokio::test]
async fn an_owner_reenters_and_other_owners_do_not() {
    let servers = Servers::start(3).await;
    let clients = servers.clients().await;
    let lock = lock_of(&clients, "l");
    let outer = lock.lock().await.unwrap();
    // Another handle of the same lock.
    let inner = lock_of(&clients, "l").lock().await.unwrap();
    assert_eq!((outer.hold_count(), inner.hold_count()), (2, 2));
    let other = Owner::new();
    assert!(lock.is_held() && !lock.is_held_by(&other));
    assert_eq!(lock.hold_count(), 2);
    assert!(decided(|| lock.try_lock().owner(&other)).await.is_none());
    assert_eq!(
        inner.unlock().await.unwrap(),
        Unlocked::StillHeld { count: 1 }
    );
    assert!(outer.is_valid());
    assert_eq!(lock.hold_count(), 1);
    assert!(decided(|| lock.try_lock().owner(&other)).await.is_none());
    drop(outer);
    assert!(!lock.is_held());
    eventually(SOON, "no server has the lock", || async {
        servers.taken("l").await == 0
    })
    .await;
    let guard = lock.try_lock().wait(SOON).owner(&other).await.unwrap();
    assert!(guard.is_some());
}

#[tokio::test]
async fn invalid_instances_are_an_error_of_each_request() {
    let servers = Servers::start(2).await;
    let clients = servers.clients().await;
    let locks =
        |names: [(usize, &str); 2]| RedLock::new(names.map(|(n, name)| clients[n].lock(name)));
    let lock = lock_of(&clients, "l");
    for (lock, why) in [
        (RedLock::new([]), "invalid locks: no locks were given"),
        (
            locks([(0, "l"), (0, "l")]),
            "invalid locks: one lock of one client is given twice, lock=\"l\"",
        ),
        (
            locks([(0, "l"), (1, "")]),
            "invalid lock name: it is empty, place=2",
        ),
    ] {
        for error in [
            lock.lock().await.unwrap_err(),
            lock.try_lock().await.unwrap_err(),
            lock.unlock().await.unwrap_err(),
        ] {
            assert!(matches!(error, Error::Invalid { .. }), "{error}");
            assert_eq!(error.to_string(), why);
        }
        assert!(!lock.is_held() && lock.hold_count() == 0);
    }
    let error = lock.clone().masking(2).lock().await.unwrap_err();
    let why = "invalid masking: too many for 2 instances, got=2";
    assert_eq!(error.to_string(), why);
    assert!(matches!(
        lock.lock().lease(ms(1)).await,
        Err(Error::Invalid { .. })
    ));
    assert!(matches!(
        lock.lock().lease(ms(121_000)).await,
        Err(Error::Invalid { .. })
    ));
    servers.assert_clean().await;
}

#[tokio::test]
async fn fencing_tokens_grow_and_a_reentry_keeps_its_token() {
    let servers = Servers::start(3).await;
    let (mine, yours) = (
        servers.lock("l").await.fenced(),
        servers.lock("l").await.fenced(),
    );
    let mut largest = 0;
    for turn in 0..6 {
        let lock = if turn % 2 == 0 { &mine } else { &yours };
        let guard = lock.lock().await.unwrap();
        let token = guard.token().unwrap();
        assert!(token > largest, "{token} after {largest}");
        let inner = lock.lock().await.unwrap();
        assert_eq!(inner.token(), Some(token));
        largest = token;
        drop(inner);
        guard.unlock().await.unwrap();
    }
}
