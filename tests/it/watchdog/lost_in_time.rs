//! Deadlines are exact: counted from the sending, on a clock that never stops, and final.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::{LEASE, SAFETY, builder, connected, is_acquire, is_renewal};
use crate::support::{Action, Direction, Gate, Proxy, RedisServer};

#[tokio::test]
async fn the_deadline_counts_from_the_sending_not_from_the_answer() {
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
async fn a_renewed_deadline_counts_from_the_sending() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let lease = LEASE;
    let client = connected(builder(proxy.url())).await;
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
async fn a_grant_answered_after_its_deadline_does_not_count() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let proxy = Proxy::start(&server).await;
    let client = connected(builder(proxy.url())).await;
    // The server knows the script, so that the answer held back is a grant.
    client.lock("warm").try_lock().await.unwrap();
    let gate = Gate::new();
    proxy.on(is_acquire, Action::HoldReply(gate.clone()));
    let lease = LEASE / 4;
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
