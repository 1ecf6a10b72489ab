//! Holds of which some guards have a lease of their own and others have none.

use std::time::Duration;

use lockdog::error::LostReason;
use lockdog::{Guard, Lock, Unlocked};
use tokio::time::{sleep, timeout};

use super::{LEASE, OUTLAST, PERIOD, SAFETY, connect, is_renewal, renewals, ttl};
use crate::support::{Proxy, RedisServer};

/// Longer than the watchdog's lease. The watchdog must renew the hold after this lease ends.
const LONGER: Duration = Duration::from_millis(4_800 + 3_600);

#[tokio::test]
async fn a_longer_nested_lease_does_not_end_the_renewal() {
    still_held_after_the_longer_lease(async |lock| {
        let outer = lock.lock().await.unwrap();
        let inner = lock.lock().lease(LONGER).await.unwrap();
        (outer, inner)
    })
    .await;
}

#[tokio::test]
async fn a_guard_without_a_lease_inside_a_longer_lease_is_renewed() {
    still_held_after_the_longer_lease(async |lock| {
        let outer = lock.lock().lease(LONGER).await.unwrap();
        let inner = lock.lock().await.unwrap();
        (inner, outer)
    })
    .await;
}

async fn still_held_after_the_longer_lease(take: impl AsyncFnOnce(&Lock) -> (Guard, Guard)) {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let client = connect(proxy.url()).await;
    let redis = server.redis().await;
    let (watched, fixed) = take(&client.lock("a")).await;
    assert!(watched.remaining() > LEASE, "the longer lease counts");
    sleep(LONGER + PERIOD).await;
    assert!(watched.is_valid() && fixed.is_valid());
    assert!(ttl(&redis, "a").await <= LEASE);
    assert!(renewals(&proxy) > 0);
    // The first unlock ends the guard with the lease. The other hold is still renewed.
    let unlocked = fixed.unlock().await.unwrap();
    assert_eq!(unlocked, Unlocked::StillHeld { count: 1 });
    sleep(OUTLAST).await;
    assert!(watched.is_valid());
    watched.unlock().await.unwrap();
    redis.assert_clean().await;
}

#[tokio::test]
async fn a_shorter_nested_lease_neither_shortens_nor_ends_the_renewal() {
    let server = RedisServer::start().await;
    let client = connect(&server.url()).await;
    let redis = server.redis().await;
    let lock = client.lock("a");
    let outer = lock.lock().await.unwrap();
    let before = outer.remaining();
    let inner = lock.lock().lease(LEASE / 4).await.unwrap();
    assert!(ttl(&redis, "a").await > LEASE / 4 && before > LEASE / 4);
    inner.unlock().await.unwrap();
    sleep(OUTLAST).await;
    assert!(outer.is_valid());
    outer.unlock().await.unwrap();
    redis.assert_clean().await;
}

#[tokio::test]
async fn the_renewal_ends_with_the_last_guard_without_a_lease() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let client = connect(proxy.url()).await;
    let redis = server.redis().await;
    let lock = client.lock("a");
    let fixed = lock.lock().lease(LEASE * 2).await.unwrap();
    let watched = lock.lock().await.unwrap();
    let also_watched = lock.lock().await.unwrap();
    watched.unlock().await.unwrap();
    proxy.wait_for(is_renewal, renewals(&proxy) + 2).await;
    assert_eq!(
        also_watched.unlock().await.unwrap(),
        Unlocked::StillHeld { count: 1 }
    );
    let after = renewals(&proxy);
    assert!(!client.holds()[0].watched);
    let lost = timeout(SAFETY, fixed.lost()).await.unwrap();
    assert_eq!(lost.reason(), LostReason::Deadline);
    // A renewal may have been in flight when the guard ended.
    assert!(renewals(&proxy) <= after + 1);
    drop(fixed);
    redis.assert_clean().await;
    assert!(client.holds().is_empty());
}
