//! One process leads, and the next takes over.

use std::time::Duration;

use super::program::Program;
use crate::support::{Redis, RedisServer, eventually};

#[tokio::test]
async fn another_node_leads_after_a_kill_and_at_once_after_a_resignation() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let mut alice = Program::start("leader", &[&server.url(), "alice"]);
    alice.says("alice leads, term ").await;
    let first = holder(&redis).await;
    let mut bob = Program::start("leader", &[&server.url(), "bob"]);
    bob.says("bob sees that alice leads").await;
    queued(&redis, 1).await;
    let mut carol = Program::start("leader", &[&server.url(), "carol"]);
    carol.says("carol sees that alice leads").await;
    queued(&redis, 2).await;
    alice.says("alice works, safe for ").await;
    assert_eq!(holder(&redis).await, first);

    alice.kill().await;
    // The processes lead in the order of the queue.
    bob.says("bob leads, term ").await;
    carol.says("carol sees that bob leads").await;
    let second = holder(&redis).await;
    assert_ne!(second, first);

    bob.terminate();
    let (status, output) = bob.end().await;
    assert!(status.success(), "{status}: {output:#?}");
    assert!(output.contains(&"bob resigned".to_owned()), "{output:#?}");
    carol.says("carol leads, term ").await;
    assert_ne!(holder(&redis).await, second);

    let mut dave = Program::start("leader", &[&server.url(), "dave"]);
    dave.says("dave sees that carol leads").await;
    queued(&redis, 1).await;
    // This process leaves the queue without having led.
    dave.terminate();
    let (status, output) = dave.end().await;
    assert!(status.success(), "{status}: {output:#?}");
    assert!(!output.contains(&"dave resigned".to_owned()), "{output:#?}");
    queued(&redis, 0).await;

    carol.terminate();
    let (status, output) = carol.end().await;
    assert!(status.success(), "{status}: {output:#?}");
    redis.assert_clean().await;
    assert!(!redis.exists(LEADER).await);
}

async fn queued(redis: &Redis, waiters: usize) {
    eventually(TAKEN_OVER, "they are in the queue", async || {
        redis.ask::<usize>(&["LLEN", QUEUE]).await == waiters
    })
    .await;
}

async fn holder(redis: &Redis) -> String {
    let hash = redis.hash(LEADER).await;
    hash.into_keys().next().expect("an owner leads")
}

const LEADER: &str = "example:leader";
const QUEUE: &str = "redisson_lock_queue:{example:leader}";
const TAKEN_OVER: Duration = Duration::from_secs(60);
