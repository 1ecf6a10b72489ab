//! Force unlocks from the other side: who gets the lock, and who is notified.

use std::time::Duration;

use lockdog::Owner;
use lockdog::error::LostReason;

use super::{SAFETY, holder, java_at, ours_at, waiter};
use crate::support::{RedisServer, eventually};

#[tokio::test]
async fn the_next_renewal_reports_that_java_freed_the_lock() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let java = java_at(&server).start().await;
    let lease = Duration::from_secs(6);
    let client = ours_at(&server)
        .watchdog_lease(lease)
        .build()
        .await
        .unwrap();
    let (t1, lock) = (java.thread("t1"), client.lock("orders"));
    let guard = lock.lock().await.unwrap();

    assert!(t1.force_unlock("orders").await);
    t1.lock("orders").await;
    let lost = guard.lost().await;

    // The reason is the answer of Redis, not the deadline.
    assert_eq!(lost.reason(), LostReason::NotOurs);
    assert!(!guard.is_valid());
    assert!(guard.unlock().await.unwrap_err().is_lost());
    // Neither the late unlock nor the watchdog changed the next holder's lock.
    let field = t1.field().await;
    assert_eq!(
        holder(&redis, "orders").await,
        Some((field, "1".to_owned()))
    );
    assert!(redis.pttl("orders").await > 1_000);
    assert!(!t1.force_unlock("nobody's").await);
    t1.unlock("orders").await.unwrap();
    redis.assert_clean().await;
}

#[tokio::test]
async fn the_unlock_of_java_reports_that_lockdog_freed_the_lock() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let java = java_at(&server)
        .watchdog_timeout(Duration::from_secs(9))
        .start()
        .await;
    let client = ours_at(&server).build().await.unwrap();
    let (t1, lock) = (java.thread("t1"), client.lock("orders"));
    t1.lock("orders").await;
    t1.lock("orders").await;
    let messages = redis.messages("*").await;

    assert!(lock.force_unlock().await.unwrap());
    assert!(!lock.force_unlock().await.unwrap());

    assert!(!t1.is_held("orders").await);
    assert_eq!(t1.hold_count("orders").await, 0);
    let expected = [("redisson_lock__channel:{orders}".to_owned(), "0".to_owned())];
    eventually(SAFETY, "one message is published", async || {
        messages.seen() == expected
    })
    .await;
    // Java's watchdog, which runs every three seconds, does not restore it.
    let guard = lock.lock().await.unwrap();
    tokio::time::sleep(Duration::from_millis(3_500)).await;
    assert_eq!(redis.hash("orders").await.len(), 1);
    assert!(t1.unlock("orders").await.unwrap_err().is_not_owner());
    assert!(guard.is_valid());
    guard.unlock().await.unwrap();
    redis.assert_clean().await;
}

#[tokio::test]
async fn expecting_a_java_holder_frees_the_lock_of_that_holder_only() {
    let server = RedisServer::start().await;
    let java = java_at(&server).start().await;
    let client = ours_at(&server).build().await.unwrap();
    let (t1, t2, lock) = (java.thread("t1"), java.thread("t2"), client.lock("orders"));
    t1.lock("orders").await;
    let seen = lock.holder().await.unwrap().unwrap();

    t1.unlock("orders").await.unwrap();
    t2.lock("orders").await;
    assert!(!lock.force_unlock().expecting(&seen).await.unwrap());
    assert!(t2.is_held("orders").await);

    let seen = lock.holder().await.unwrap().unwrap();
    assert!(lock.force_unlock().expecting(&seen).await.unwrap());
    assert!(!t2.is_locked("orders").await);
}

/// While its client holds the lock, a waiter sends no command and has no subscription. It learns of the
/// loss when the holder does.
#[tokio::test]
async fn a_local_waiter_gets_a_lock_freed_by_java_when_the_holder_is_notified() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let java = java_at(&server).start().await;
    let client = ours_at(&server)
        .watchdog_lease(Duration::from_secs(6))
        .build()
        .await
        .unwrap();
    let lock = client.lock("orders");
    let guard = lock.lock().owner(&Owner::new()).await.unwrap();
    let waiting = waiter(&lock);
    tokio::time::sleep(Duration::from_millis(200)).await;

    assert!(java.thread("t1").force_unlock("orders").await);
    let next = tokio::time::timeout(SAFETY, waiting).await.unwrap();

    assert_eq!(guard.lost().await.reason(), LostReason::NotOurs);
    next.unwrap().0.unlock().await.unwrap();
    redis.assert_clean().await;
}
