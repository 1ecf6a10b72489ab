//! The lease of a red lock: renewed in rounds or fixed.

use std::sync::Arc;
use std::time::Instant;

use lockdog::Owner;
use lockdog::error::LostReason;

use super::{SOON, Servers, decided, has, lock_of, ms};
use crate::support::eventually;

#[tokio::test]
async fn without_a_lease_every_round_extends_every_server() {
    let servers = Servers::start(3).await;
    let clients = servers
        .clients_with(|builder| builder.watchdog_lease(ms(5_100)))
        .await;
    let lock = lock_of(&clients, "l");
    let guard = lock.lock().await.unwrap();
    has(&guard, 3).await;
    let other = servers.lock("l").await;
    let began = Instant::now();
    while began.elapsed() < ms(7_000) {
        assert!(guard.is_valid() && guard.remaining() <= ms(5_100));
        assert!(decided(|| other.try_lock()).await.is_none());
        tokio::time::sleep(ms(200)).await;
    }
    servers.assert_counts("l", [1, 1, 1]).await;
    eventually(SOON, "all count", async || guard.margin() == 1).await;
    guard.unlock().await.unwrap();
    servers.assert_counts("l", [0; 3]).await;
    // A released lock is not extended any more. The other client may first have to undo an attempt that
    // was answered late.
    eventually(
        SOON,
        "no script runs for longer than a period",
        async || {
            for redis in &servers.redis {
                redis.reset_stats().await;
            }
            tokio::time::sleep(ms(2_000)).await;
            for redis in &servers.redis {
                if redis.commandstats().await.contains_key("evalsha") {
                    return false;
                }
            }
            true
        },
    )
    .await;
    servers.assert_clean().await;
}

#[tokio::test]
async fn the_shortest_watchdog_lease_of_the_clients_is_the_lease_of_all() {
    let servers = Servers::start(3).await;
    let mut clients = servers.clients().await;
    clients[1] = servers
        .clients_with(|builder| builder.watchdog_lease(ms(5_000)))
        .await
        .swap_remove(1);
    let guard = lock_of(&clients, "l").lock().await.unwrap();
    has(&guard, 3).await;
    assert!(guard.remaining() <= ms(5_000));
    for redis in &servers.redis {
        let ttl = redis.pttl("l").await;
        assert!(0 < ttl && ttl <= 5_000, "{ttl}");
    }
}

#[tokio::test]
async fn a_holder_is_notified_of_an_expired_lease_before_another_owner_gets_the_lock() {
    let servers = Servers::start(3).await;
    let (mine, yours) = (servers.lock("l").await, servers.lock("l").await);
    let guard = mine.lock().lease(ms(4_000)).await.unwrap();
    for redis in &servers.redis {
        assert!(redis.pttl("l").await <= 4_000);
    }
    let guard = Arc::new(guard);
    let (token, ours) = (guard.lost_token(), guard.clone());
    let waiter = tokio::spawn(async move {
        let guard = yours.lock().await.unwrap();
        (guard, ours.is_valid())
    });
    let lost = tokio::time::timeout(SOON, guard.lost()).await.unwrap();
    assert_eq!(lost.reason(), LostReason::Deadline);
    assert!(!guard.is_valid() && guard.remaining().is_zero() && guard.hold_count() == 0);
    tokio::time::timeout(SOON, token.cancelled()).await.unwrap();
    let (theirs, was_valid) = tokio::time::timeout(SOON, waiter).await.unwrap().unwrap();
    assert!(!was_valid, "two hold it, as far as they know");
    let guard = Arc::into_inner(guard).expect("the waiter has ended");
    let error = guard.unlock().await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert!(theirs.is_valid());
}

#[tokio::test]
async fn a_view_is_notified_when_the_work_ends() {
    let servers = Servers::start(3).await;
    let lock = servers.lock("l").await;
    let mut kept = None;
    let output = lock
        .with(async |held| {
            assert!(held.is_valid() && held.name() == "l" && held.hold_count() == 1);
            assert_eq!(held.instances().len(), 3);
            kept = Some(held);
            7
        })
        .await;
    assert_eq!(output.unwrap(), 7);
    let kept = kept.unwrap();
    assert_eq!(kept.lost().await.reason(), LostReason::Released);
    assert!(!kept.is_valid() && kept.remaining().is_zero());
}

#[tokio::test]
async fn an_instance_that_lost_the_lock_is_reacquired_in_a_later_round() {
    let servers = Servers::start(5).await;
    let clients = servers
        .clients_with(|builder| builder.watchdog_lease(ms(6_000)))
        .await;
    let lock = lock_of(&clients, "l");
    let guard = lock.lock().await.unwrap();
    has(&guard, 5).await;
    assert_eq!(guard.margin(), 2);
    for redis in &servers.redis[..2] {
        redis.cmd(&["DEL", "l"]).await;
    }
    eventually(SOON, "they are taken again", async || {
        servers.taken("l").await == 5
    })
    .await;
    eventually(SOON, "and count", async || guard.margin() == 2).await;
    servers.assert_counts("l", [1; 5]).await;
    guard.unlock().await.unwrap();
    servers.assert_counts("l", [0; 5]).await;
}

#[tokio::test]
async fn a_majority_that_lost_the_lock_ends_it_in_the_next_round() {
    let servers = Servers::start(5).await;
    let clients = servers
        .clients_with(|builder| builder.watchdog_lease(ms(6_000)))
        .await;
    let lock = lock_of(&clients, "l");
    let guard = lock.lock().await.unwrap();
    has(&guard, 5).await;
    for redis in &servers.redis[1..4] {
        redis.cmd(&["DEL", "l"]).await;
    }
    let lost = tokio::time::timeout(SOON, guard.lost()).await.unwrap();
    assert_eq!(lost.reason(), LostReason::NotOurs);
    drop(guard);
    servers.assert_counts("l", [0; 5]).await;
    let again = lock.try_lock().wait(SOON).owner(&Owner::new());
    let again = again.await.unwrap();
    assert!(again.is_some());
}

#[tokio::test]
async fn an_instance_freed_by_force_is_lost_and_then_reacquired() {
    let servers = Servers::start(3).await;
    let clients = servers
        .clients_with(|builder| builder.watchdog_lease(ms(6_000)))
        .await;
    let lock = lock_of(&clients, "l");
    let guard = lock.lock().await.unwrap();
    has(&guard, 3).await;
    assert!(clients[2].lock("l").force_unlock().await.unwrap());
    assert!(guard.is_valid());
    eventually(SOON, "it is taken again", async || {
        servers.counts("l").await == [1, 1, 1] && guard.margin() == 1
    })
    .await;
    guard.unlock().await.unwrap();
    servers.assert_counts("l", [0; 3]).await;
}
