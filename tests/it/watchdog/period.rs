//! Which holds are renewed, how often, and up to when.

use std::time::{Duration, Instant};

use lockdog::error::LostReason;
use lockdog::{Error, Unlocked};
use tokio::time::{sleep, timeout};

use super::{LEASE, PERIOD, SAFETY, builder, connect, connected, is_renewal, renewals, ttl};
use crate::support::{Proxy, RedisServer, eventually};
use crate::turn::answered;

#[tokio::test]
async fn a_hold_is_renewed_every_third_of_its_lease() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let client = connect(proxy.url()).await;
    let held_at = Instant::now();
    let guard = client.lock("a").lock().await.unwrap();
    proxy.wait_for(is_renewal, 3).await;
    let seen: Vec<Instant> = proxy
        .commands()
        .iter()
        .filter(|seen| is_renewal(&seen.args))
        .map(|seen| seen.at)
        .collect();
    // By the test kit's clock it is once in each period (`renewals` in `crates/lockdog-test`). On a busy
    // machine one may be sent again.
    let most = (held_at.elapsed().as_millis() / PERIOD.as_millis() + 1) * 3;
    assert!(
        (3..=most as usize).contains(&seen.len()),
        "{} renewals in {:?}",
        seen.len(),
        held_at.elapsed()
    );
    assert!(seen[0] - held_at >= PERIOD * 9 / 10);
    assert!(guard.is_valid());
    guard.unlock().await.unwrap();
    server.redis().await.assert_clean().await;
}

#[tokio::test]
async fn a_fixed_lease_is_never_renewed() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let client = connect(proxy.url()).await;
    let redis = server.redis().await;
    let watched = client.lock("watched").lock().await.unwrap();
    let guard = client.lock("a").lock().lease(LEASE).await.unwrap();
    let lost = timeout(SAFETY, guard.lost()).await.unwrap();
    assert_eq!(lost.reason(), LostReason::Deadline);
    eventually(SAFETY, "the key expired", async || !redis.exists("a").await).await;
    assert!(renewals(&proxy) > 0, "the other lock was renewed meanwhile");
    let of_a = |args: &[String]| is_renewal(args) && args.iter().any(|arg| arg == "a");
    assert_eq!(proxy.count(of_a), 0);
    assert!(matches!(guard.unlock().await, Err(Error::Lost(_))));
    watched.unlock().await.unwrap();
    redis.assert_clean().await;
}

#[tokio::test]
async fn a_renewal_never_shortens_a_longer_ttl() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let client = connect(proxy.url()).await;
    let redis = server.redis().await;
    let guard = client.lock("a").lock().await.unwrap();
    redis.cmd(&["PEXPIRE", "a", "60000"]).await;
    proxy.wait_for(is_renewal, renewals(&proxy) + 3).await;
    assert!(ttl(&redis, "a").await > Duration::from_secs(40));
    assert!(
        guard.remaining() <= LEASE,
        "a guard counts only what Redis granted"
    );
    guard.unlock().await.unwrap();
    redis.assert_clean().await;
}

#[tokio::test]
async fn a_forgotten_hold_is_renewed_until_its_owner_unlocks() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let client = connect(proxy.url()).await;
    let redis = server.redis().await;
    let lock = client.lock("a");
    lock.lock().await.unwrap().forget();
    // Without them it would be gone after three periods.
    proxy.wait_for(is_renewal, 4).await;
    assert!(redis.exists("a").await);
    assert_eq!(client.holds().len(), 1);
    assert!(client.holds()[0].watched);
    assert_eq!(lock.unlock().await.unwrap(), Unlocked::Released);
    assert!(client.holds().is_empty());
    // The proxy may still have to read one that was sent before.
    let after = renewals(&proxy);
    sleep(PERIOD * 3).await;
    assert!(renewals(&proxy) <= after + 1);
    redis.assert_clean().await;
}

#[tokio::test]
async fn max_hold_ends_a_watched_hold() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let client = connect(proxy.url()).await;
    let max_hold = LEASE * 3 / 2;
    let began = Instant::now();
    let request = client.lock("a").lock().max_hold(max_hold);
    let guard = request.await.unwrap();
    let other = client.lock("b").lock().await.unwrap();
    let lost = timeout(SAFETY, guard.lost()).await.unwrap();
    let notified_after = began.elapsed();
    assert_eq!(lost.reason(), LostReason::MaxHold);
    assert!(
        notified_after >= max_hold * 9 / 10,
        "{notified_after:?}: the lock may be kept up to {max_hold:?}"
    );
    println!(
        "notified after {notified_after:?}, held for {:?}",
        lost.held_for()
    );
    assert!(!guard.is_valid() && other.is_valid());
    let of_a = |args: &[String]| is_renewal(args) && args.iter().any(|arg| arg == "a");
    assert!(proxy.count(of_a) >= 2, "{}", proxy.count(of_a));
    // The guard still exists, and the next owner may hold the lock.
    let second = connect(proxy.url()).await;
    let next = second.lock("a").try_lock().wait(SAFETY).await.unwrap();
    next.expect("it is free").unlock().await.unwrap();
    drop((guard, other));
    server.redis().await.assert_clean().await;
}

#[tokio::test]
async fn a_max_hold_below_the_lease_ends_the_hold() {
    let server = RedisServer::start().await;
    let client = connected(builder(&server.url()).watchdog_lease(SAFETY)).await;
    let max_hold = Duration::from_millis(1_500);
    let guard = answered(async || client.lock("a").lock().max_hold(max_hold).await).await;
    assert!(guard.remaining() <= max_hold);
    let lost = timeout(SAFETY, guard.lost()).await.unwrap();
    assert_eq!(lost.reason(), LostReason::MaxHold);
    assert!(lost.held_for() >= max_hold * 9 / 10);
}
