//! Deadlines are exact: counted from the sending, on a clock that never stops, and final.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockdog::{Client, Error, LostReason};
use tokio::time::{sleep, timeout};

use super::{LEASE, RENEW, SAFETY, builder, connected, is_acquire, is_renewal, ttl};
use crate::support::{Action, Direction, Gate, Proxy, RedisServer, eventually};

#[tokio::test]
async fn a_deadline_is_counted_from_the_sending_and_not_from_the_answer() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let client = connected(builder(proxy.url())).await;
    let delay = Duration::from_millis(300);
    let lease = Duration::from_secs(5);
    // The connection and the script are there before the delay.
    client.lock("warm").try_lock().await.unwrap();
    proxy.delay(Direction::ToClient, delay);
    let before = proxy.counts().delayed;
    let guard = client.lock("a").lock().lease(lease).await.unwrap();
    let left = guard.remaining();
    assert!(proxy.counts().delayed > before);
    assert!(left <= lease - delay, "{left:?}");
    assert!(left > Duration::ZERO);
}

#[tokio::test]
async fn a_renewed_deadline_is_counted_from_the_sending_too() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let lease = LEASE * 2;
    let client = connected(builder(proxy.url()).watchdog_lease(lease)).await;
    let guard = client.lock("a").lock().await.unwrap();
    proxy.wait_for(is_renewal, 1).await;
    let delay = lease / 8;
    proxy.delay(Direction::ToClient, delay);
    let delayed = proxy.counts().delayed;
    let mut most = Duration::ZERO;
    while proxy.counts().delayed < delayed + 3 {
        sleep(Duration::from_millis(1)).await;
        if proxy.counts().delayed > delayed {
            most = most.max(guard.remaining());
        }
    }
    assert!(most <= lease - delay, "{most:?}");
    assert!(guard.is_valid());
}

#[tokio::test]
async fn a_grant_answered_after_its_own_deadline_is_none() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let proxy = Proxy::start(&server).await;
    let client = connected(builder(proxy.url())).await;
    // The server knows the script, so that the answer held back is a grant.
    client.lock("warm").try_lock().await.unwrap();
    let gate = Gate::new();
    proxy.on(is_acquire, Action::HoldReply(gate.clone()));
    let lease = LEASE / 2;
    let request = client.lock("a").try_lock().lease(lease);
    let call = tokio::spawn(request.into_future());
    gate.wait_reached().await;
    sleep(lease).await;
    gate.open();
    let outcome = timeout(SAFETY, call).await.unwrap().unwrap();
    if let Ok(Some(guard)) = &outcome {
        // A second attempt would have a deadline of its own.
        assert!(proxy.count(is_acquire) > 1 && guard.is_valid());
    }
    drop(outcome);
    redis.assert_clean().await;
}

#[tokio::test]
async fn a_machine_that_slept_for_a_minute_has_lost_its_locks() {
    let server = RedisServer::start().await;
    let (client, ahead) = shifted(&server.url(), Duration::from_secs(30)).await;
    let watched = client.lock("watched").lock().await.unwrap();
    let lease = Duration::from_secs(40);
    let fixed = client.lock("fixed").lock().lease(lease).await.unwrap();
    let token = fixed.lost_token();
    let told = tokio::spawn(async move {
        let lost = fixed.lost().await;
        (lost, fixed)
    });
    sleep(Duration::from_millis(50)).await;
    assert!(watched.is_valid() && !token.is_cancelled());
    sleep_for(&ahead, Duration::from_secs(60));
    assert!(!watched.is_valid(), "known without any task running");
    let (lost, fixed) = timeout(SAFETY, told).await.unwrap().unwrap();
    assert_eq!(lost.reason(), LostReason::Deadline);
    assert!(!fixed.is_valid() && lost.held_for() >= Duration::from_secs(60));
    let lost = timeout(SAFETY, watched.lost()).await.unwrap();
    assert_eq!(lost.reason(), LostReason::Deadline);
    timeout(SAFETY, token.cancelled()).await.unwrap();
    assert!(client.holds().is_empty());
    drop((watched, fixed));
    server.redis().await.assert_clean().await;
}

#[tokio::test]
async fn a_late_good_renewal_does_not_revive_a_lost_hold() {
    for told_before_the_answer in [true, false] {
        let server = RedisServer::start().await;
        let redis = server.redis().await;
        let proxy = Proxy::start(&server).await;
        // Its third is the time within which the answer still counts as one.
        let lease = LEASE * 4;
        let (client, ahead) = shifted(proxy.url(), lease).await;
        let guard = client.lock("a").lock().await.unwrap();
        // The server knows the script, so that the answer held back is a renewal's.
        redis.cmd(&["SCRIPT", "LOAD", RENEW.0]).await;
        let gate = Gate::new();
        let rule = proxy.on(is_renewal, Action::HoldReply(gate.clone()));
        gate.wait_reached().await;
        eventually(SAFETY, "the renewal was good", async || {
            ttl(&redis, "a").await > lease * 3 / 4
        })
        .await;
        // Beyond the deadline, but not beyond the one that the renewal would have given.
        sleep_for(&ahead, lease * 3 / 4);
        assert!(!guard.is_valid());
        if told_before_the_answer {
            timeout(SAFETY, guard.lost()).await.unwrap();
        }
        gate.open();
        rule.wait_hits(1).await;
        for _ in 0..50 {
            assert!(!guard.is_valid() && guard.remaining().is_zero());
            sleep(Duration::from_millis(5)).await;
        }
        let lost = timeout(SAFETY, guard.lost()).await.unwrap();
        assert_eq!(lost.reason(), LostReason::Deadline);
        assert!(matches!(guard.unlock().await, Err(Error::Lost(_))));
        // The client gives back what the renewal keeps in Redis.
        eventually(SAFETY, "it is free", async || !redis.exists("a").await).await;
        redis.assert_clean().await;
    }
}

async fn shifted(url: &str, lease: Duration) -> (Client, Arc<AtomicU64>) {
    let ahead = Arc::new(AtomicU64::new(0));
    let builder = builder(url)
        .watchdog_lease(lease)
        .clock_ahead(ahead.clone());
    (connected(builder).await, ahead)
}

/// Lets the machine sleep.
fn sleep_for(ahead: &AtomicU64, time: Duration) {
    ahead.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
}
