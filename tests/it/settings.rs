//! Settings of how servers are reached: certificates, protocol, changing passwords, and what a builder shows of them.

mod credentials;
mod protocol;
mod shown;
mod tls;

use std::time::Duration;

use lockdog::{ClientBuilder, Owner};

use crate::support::prelude::{SOON, ms};
use crate::support::{Redis, eventually};

/// Checks that a lock is acquired, renewed and awaited, and that a message wakes the waiter. `redis` is
/// the test's own connection.
async fn works(redis: &Redis, builder: &ClientBuilder) {
    let connect = async || {
        let builder = builder.clone().poll_cap(ms(60_000));
        let client = builder.watchdog_lease(LEASE).build().await;
        client.expect("nothing is wrong with server and settings")
    };
    let (one, two) = (connect().await, connect().await);
    let guard = one.lock("l").lock().await.unwrap();
    assert_eq!(redis.keys().await, ["l"]);
    let request = two.lock("l").lock().owner(&Owner::new());
    let waiting = tokio::spawn(async move { request.await.unwrap() });
    // Sentinels subscribe to other channels.
    let channel = "redisson_lock__channel:{l}".to_owned();
    let listens = async || redis.channels().await.contains(&channel);
    eventually(SOON, "the waiter listens", listens).await;
    tokio::time::sleep(LEASE + ms(200)).await;
    assert!(guard.is_valid(), "it was not renewed");
    guard.unlock().await.unwrap();
    let next = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
    next.unlock().await.unwrap();
    one.shutdown().await;
    two.shutdown().await;
    assert!(redis.keys().await.is_empty());
    let is_gone = async || !listens().await;
    eventually(SOON, "no waiter listens any more", is_gone).await;
}

/// Short, so that a renewal is seen, and long for a busy machine.
const LEASE: Duration = Duration::from_millis(4_800);
