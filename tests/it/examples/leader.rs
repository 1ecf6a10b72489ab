//! One leads, the next takes over.

use std::time::Duration;

use super::program::Program;
use crate::support::{RedisServer, eventually};

#[tokio::test]
async fn another_node_leads_after_a_kill_and_at_once_after_a_resignation() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let mut alice = Program::start("leader", &[&server.url(), "alice"]);
    alice.says("alice leads").await;
    let first = holder(&redis).await;
    let mut others = [
        Program::start("leader", &[&server.url(), "bob"]),
        Program::start("leader", &[&server.url(), "carol"]),
    ];
    for (other, name) in others.iter_mut().zip(["bob", "carol"]) {
        other.says(&format!("{name} stands")).await;
    }
    // Both asked, were refused, and wait for a message: neither leads beside her.
    eventually(TAKEN_OVER, "bob and carol wait", async || {
        let (_, waiting): (String, u64) = redis.ask(&["PUBSUB", "NUMSUB", CHANNEL]).await;
        waiting == 2
    })
    .await;
    alice.says("alice works, safe for ").await;
    assert_eq!(holder(&redis).await, first);

    alice.kill().await;
    eventually(TAKEN_OVER, "another leads", async || {
        let now = redis.hash(LEADER).await;
        now.keys().next().is_some_and(|field| *field != first)
    })
    .await;
    let [mut bob, mut carol] = others;
    let (leader, follower) = tokio::select! {
        _ = bob.says("bob leads") => ((bob, "bob"), (carol, "carol")),
        _ = carol.says("carol leads") => ((carol, "carol"), (bob, "bob")),
    };

    let ((leader, name), (mut next, its_name)) = (leader, follower);
    let second = holder(&redis).await;
    leader.terminate();
    let (status, said) = leader.end().await;
    assert!(status.success(), "{status}: {said:#?}");
    let last: Vec<&str> = said.iter().rev().take(2).map(String::as_str).collect();
    assert_eq!(last, [format!("{name} ended"), format!("{name} resigned")]);

    next.says(&format!("{its_name} leads")).await;
    assert_ne!(holder(&redis).await, second);
    next.terminate();
    let (status, said) = next.end().await;
    assert!(status.success(), "{status}: {said:#?}");
    redis.assert_clean().await;
    assert!(!redis.exists(LEADER).await);
}

async fn holder(redis: &crate::support::Redis) -> String {
    let hash = redis.hash(LEADER).await;
    hash.into_keys().next().expect("an owner leads")
}

const LEADER: &str = "example:leader";
const CHANNEL: &str = "redisson_lock__channel:{example:leader}";
const TAKEN_OVER: Duration = Duration::from_secs(60);
