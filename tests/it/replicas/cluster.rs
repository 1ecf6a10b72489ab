//! Replicas of a cluster's masters: each lock waits for the replicas of its slot's master.

use lockdog::Client;
use lockdog::config::{ReplicaAck, Replicas};

use super::{SLACK, SOON, TIMEOUT, acquired, build, ms, not_replicated};
use crate::support::cluster::{Cluster, slot};
use crate::support::{Action, Gate, eventually, named, timed};
use crate::turn::turn;

/// As in Redisson's `testInCluster`, with a replica sync timeout of 3000 ms.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_on_the_replica_of_its_own_master() {
    let cluster = Cluster::start(3, 1).await;
    let required = ReplicaAck::require(Replicas::Count(1)).timeout(ms(3000));
    let best_effort = ReplicaAck::best_effort().timeout(SOON);
    let best_effort = Client::builder()
        .url(cluster.url())
        .replica_ack(best_effort);
    let best_effort = build(best_effort.command_timeout(SOON)).await;
    let client = build(Client::builder().url(cluster.url()).replica_ack(required)).await;
    for client in [&client, &best_effort] {
        let mut missing = 0;
        for master in &cluster.nodes[..3] {
            let replica = cluster.replica_of(master).await.redis().await;
            for name in cluster.names_at(master, "l", 5).await {
                let lock = client.lock(&name);
                let guard = acquired(&lock).await;
                assert!(lock.is_locked().await.unwrap());
                let keys: Vec<String> = replica.ask(&["KEYS", "*"]).await;
                missing += usize::from(!keys.contains(&name));
                guard.unlock().await.unwrap();
                assert!(!lock.is_locked().await.unwrap());
            }
        }
        assert_eq!(missing, 0, "locks that were not on the replica");
    }
    // A client without settings waits for replicas, too.
    let by_default = build(Client::builder().url(cluster.url())).await;
    let [name] = &cluster.names_at(&cluster.nodes[0], "l", 1).await[..] else {
        panic!("one name")
    };
    let redis = cluster.nodes[0].redis().await;
    redis.reset_stats().await;
    turn(&by_default.lock(name)).await;
    assert!(redis.commandstats().await.contains_key("wait"));
    // A master without its replica does not affect the locks of the other masters.
    let ack = ReplicaAck::require(Replicas::Count(1)).timeout(TIMEOUT);
    let client = build(Client::builder().url(cluster.url()).replica_ack(ack)).await;
    let replica = cluster.replica_of(&cluster.nodes[0]).await;
    replica.server.pause();
    let [here, there] = [0, 1].map(|node| &cluster.nodes[node]);
    let here = &cluster.names_at(here, "l", 1).await[0];
    let there = &cluster.names_at(there, "l", 1).await[0];
    for _ in 0..2 {
        let (outcome, took) = timed(async { client.lock(here).try_lock().await }).await;
        assert!(not_replicated(outcome).is_undone() && took < TIMEOUT + SLACK);
        assert!(!client.lock(here).is_locked().await.unwrap());
        let (guard, took) = timed(acquired(&client.lock(there))).await;
        assert!(took < SLACK, "{took:?}");
        guard.unlock().await.unwrap();
    }
    replica.server.resume();
    let guard = client.lock(here).try_lock().wait(SOON).await.unwrap();
    guard.unwrap().unlock().await.unwrap();
}

/// A replica may have taken over the slots of a master without replicas, so its grant counts only when
/// another node has confirmed that it is a master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_without_acknowledgement_counts_after_another_node_confirms_the_master() {
    let cluster = Cluster::builder(3, 1).announce_proxies().start().await;
    let ack = ReplicaAck::best_effort().timeout(ms(3000));
    let client = build(Client::builder().url(cluster.url()).replica_ack(ack)).await;
    let master = &cluster.nodes[0];
    let lock = client.lock(&*cluster.names_at(master, "l", 1).await[0]);
    turn(&lock).await;
    cluster.replica_of(master).await.server.kill();
    let redis = master.redis().await;
    eventually(SOON, "the master has lost its replica", async || {
        let info: String = redis.ask(&["INFO", "replication"]).await;
        info.contains("connected_slaves:0")
    })
    .await;
    // The client counts replicas once a second.
    tokio::time::sleep(ms(1100)).await;
    let gate = Gate::new();
    for node in &cluster.nodes {
        let hold = Action::HoldRequest(gate.clone());
        node.proxy().on(named("cluster"), hold).always();
    }
    // No replica acknowledges, and best effort continues without.
    let (_, took) = timed(turn(&lock)).await;
    assert!(took >= ms(3000), "{took:?}");
    gate.open();
    let mut fast = 0;
    for _ in 0..5 {
        let (_, took) = timed(turn(&lock)).await;
        fast += usize::from(took < ms(3000));
    }
    // Each would wait for the replicas. On a busy machine some may take as long.
    assert!(fast >= 2, "{fast} of 5 did not wait for the replicas");
    client.shutdown().await;
}

/// A slot that is being moved while locks of it wait for replicas.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_a_migrating_slot_are_acknowledged_at_their_master() {
    let cluster = Cluster::start(3, 1).await;
    let ack = ReplicaAck::require(Replicas::Count(1)).timeout(TIMEOUT);
    let client = build(Client::builder().url(cluster.url()).replica_ack(ack)).await;
    let name = cluster.names_at(&cluster.nodes[0], "l", 1).await.remove(0);
    acquired(&client.lock(&name)).await.unlock().await.unwrap();
    let migration = cluster.migrate(slot(&name), &cluster.nodes[1]).await;
    // The key is deleted, so that the acquire creates it on the new node.
    let replica = cluster.replica_of(&cluster.nodes[1]).await.redis().await;
    let guard = client.lock(&name).try_lock().wait(SOON).await.unwrap();
    let keys: Vec<String> = replica.ask(&["KEYS", "*"]).await;
    assert_eq!(keys, [&*name]);
    guard.unwrap().unlock().await.unwrap();
    migration.move_keys().await;
    migration.finish().await;
    eventually(SOON, "it is acknowledged there", async || {
        let guard = client.lock(&name).try_lock().wait(SOON).await.unwrap();
        let keys: Vec<String> = replica.ask(&["KEYS", "*"]).await;
        guard.unwrap().unlock().await.unwrap();
        keys == [&*name]
    })
    .await;
}
