//! A server without memory refuses commands that make a key grow, and still frees the lock.

use std::time::Duration;

use lockdog::{Client, Owner, Unlocked};

use super::SAFETY;
use crate::support::RedisServer;

#[tokio::test]
async fn an_inner_guard_dropped_without_memory_does_not_delay_the_final_unlock() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let client = Client::connect(server.url()).await.unwrap();
    let (lock, owner) = (client.lock("orders"), Owner::new());
    let outer = lock.lock().owner(&owner).await.unwrap();
    let inner = lock.lock().owner(&owner).await.unwrap();
    redis.cmd(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let refused = redis.errorstats().await.get("OOM").copied().unwrap_or(0);

    drop(inner);
    crate::support::eventually(SAFETY, "the count could not be lowered", async || {
        redis.errorstats().await.get("OOM").copied().unwrap_or(0) > refused
    })
    .await;
    let unlocked = tokio::time::timeout(Duration::from_secs(10), outer.unlock()).await;

    assert_eq!(unlocked.unwrap().unwrap(), Unlocked::Released);
    assert!(!redis.exists("orders").await);
    redis.cmd(&["CONFIG", "SET", "maxmemory", "0"]).await;
    redis.assert_clean().await;
}
