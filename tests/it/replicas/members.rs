//! Locks of several members on masters with replicas.

use lockdog::config::{ReplicaAck, Replicas};
use lockdog::error::InstanceState;
use lockdog::{Client, MultiLock, RedLock};

use super::{
    SLACK, SOON, TIMEOUT, acquired, best_effort, build, ms, not_replicated, requiring,
    requiring_patiently,
};
use crate::support::{RedisServer, Replicated, eventually, timed};

/// One command acquires several locks of one client, and one WAIT covers them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_acquired_together_are_acknowledged_or_undone_together() {
    let all = Replicated::start(1).await;
    let client = requiring_patiently(&all, Replicas::Count(1)).await;
    let of = |client: &Client| MultiLock::new(["a", "b", "c"].map(|name| client.lock(name)));
    of(&client).lock().await.unwrap().unlock().await.unwrap();
    all.redis.reset_stats().await;
    let replica = all.replicas[0].redis().await;
    let guard = of(&client).lock().await.unwrap();
    assert_eq!(replica.keys().await, ["a", "b", "c"]);
    assert_eq!(all.calls(["wait"]).await, [1]);
    guard.unlock().await.unwrap();
    // One member is held already. Its count does not change.
    let client = requiring(&all, Replicas::Count(1)).await;
    let held = acquired(&client.lock("b")).await;
    all.replicas[0].pause();
    for _ in 0..3 {
        let (outcome, took) = timed(async { of(&client).try_lock().await }).await;
        let failed = not_replicated(outcome);
        assert!(
            failed.is_undone() && took < TIMEOUT + SLACK,
            "{failed:?} {took:?}"
        );
        assert_eq!(all.redis.keys().await, ["b"]);
        assert_eq!(client.lock("b").hold_count().await.unwrap(), 1);
    }
    // A held member was acknowledged before.
    let only = MultiLock::new([client.lock("b")]);
    only.lock().await.unwrap().unlock().await.unwrap();
    assert!(held.is_valid());
    held.unlock().await.unwrap();
    assert!(all.redis.keys().await.is_empty());
}

/// The other instances cover what this one may lose, so the client waits for replicas only where
/// that is required. A missing acknowledgement then counts against the instance.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_red_lock_instance_waits_for_replicas_if_required() {
    let all = Replicated::start(1).await;
    let (second, third) = tokio::join!(RedisServer::start(), RedisServer::start());
    let mut others = Vec::new();
    for server in [&second, &third] {
        others.push(Client::connect(server.url()).await.unwrap());
    }
    let of = |first: &Client| {
        RedLock::new([first, &others[0], &others[1]].map(|client| client.lock("l")))
    };
    let effort = best_effort(&all).await;
    let ack = ReplicaAck::require(Replicas::Count(1)).timeout(ms(300));
    let required = build(Client::builder().url(all.master.url()).replica_ack(ack)).await;
    let guard = of(&effort).lock().await.unwrap();
    eventually(SOON, "all are acquired", async || guard.margin() == 1).await;
    guard.unlock().await.unwrap();
    assert_eq!(all.calls(["wait"]).await, [0]);
    let guard = of(&required).lock().await.unwrap();
    eventually(SOON, "all are acquired", async || guard.margin() == 1).await;
    assert!(all.calls(["wait"]).await[0] > 0);
    guard.unlock().await.unwrap();
    all.replicas[0].pause();
    let guard = of(&required).lock().await.unwrap();
    eventually(SOON, "one is missing", async || {
        let instances = guard.instances();
        let state = &instances[0].state;
        matches!(state, InstanceState::Unreachable { cause, .. } if cause.to_string().contains("replicas"))
    })
    .await;
    assert_eq!(guard.margin(), 0);
    eventually(SOON, "it is undone", async || !all.redis.exists("l").await).await;
    guard.unlock().await.unwrap();
}
