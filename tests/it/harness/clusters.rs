//! A cluster forms, and the operations on it take effect.

use std::time::Duration;

use redis::{ErrorKind, Value};
use tokio::net::TcpStream;

use crate::support::cluster::{names, slot};
use crate::support::prelude::SOON;
use crate::support::redis::patient;
use crate::support::resp::encode;
use crate::support::wire::Wire;
use crate::support::{Action, Binary, Cluster, Data, Direction, Gate, eventually, named, timed};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_of_masters_and_replicas_forms() {
    let (cluster, took) = timed(Cluster::start(3, 1)).await;
    println!("formed in {took:?}");
    assert_eq!(cluster.nodes.len(), 6);
    let owners: Vec<_> = [0, 5461, 10_922].map(|slot| cluster.owner(slot)).into();
    for (number, owner) in owners.into_iter().enumerate() {
        let owner = owner.await;
        assert_eq!(owner.id, cluster.nodes[number].id);
        assert_eq!(
            cluster.replica_of(&owner).await.id,
            cluster.nodes[number + 3].id
        );
    }
    for name in ["a", "b{c}d", "{}e", "f{", "{g{h}", "user:1000"] {
        let at_server: u16 = ask(&cluster, &["CLUSTER", "KEYSLOT", name]).await;
        assert_eq!(slot(name), at_server, "{name}");
    }
    for node in &cluster.nodes[..3] {
        let redis = node.redis().await;
        for name in cluster.names_at(node, "key", 5).await {
            redis.cmd(&["SET", &name, "v", "PX", "60000"]).await;
            assert_eq!(cluster.owner_of(&name).await.id, node.id);
        }
    }
    cluster.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_needs_no_replicas_and_may_have_one_node() {
    for masters in [1, 3] {
        let (cluster, took) = timed(Cluster::start(masters, 0)).await;
        println!("{masters} formed in {took:?}");
        for name in names("k", 10, |_| true) {
            let owner = cluster.owner_of(&name).await;
            owner.redis().await.cmd(&["SET", &name, "v"]).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_master_is_replaced_by_its_replica() {
    let cluster = Cluster::that_elects(3, 1).await;
    let old = cluster.nodes[0].clone();
    old.server.kill();
    let (new, took) = timed(cluster.await_switch(0, &old)).await;
    println!("switched after {took:?}");
    assert_eq!(new.id, cluster.nodes[3].id);
    new.redis().await.cmd(&["SET", &key_at(0), "v"]).await;
    old.server.restart(Data::Lost).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_takes_over_from_a_killed_master_at_once() {
    let cluster = Cluster::start(3, 1).await;
    let (old, replica) = (&cluster.nodes[0], &cluster.nodes[3]);
    old.server.kill();
    let ((), took) = timed(cluster.take_over(0, replica)).await;
    println!("switched after {took:?}");
    assert_eq!(cluster.owner(0).await.id, replica.id);
    replica.redis().await.cmd(&["SET", &key_at(0), "v"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_master_is_replaced_and_is_a_replica_when_it_returns() {
    let cluster = Cluster::that_elects(3, 1).await;
    let old = cluster.nodes[1].clone();
    let slot = 6000;
    assert_eq!(cluster.owner(slot).await.id, old.id);
    old.server.pause();
    let new = cluster.await_switch(slot, &old).await;
    assert_eq!(new.id, cluster.nodes[4].id);
    old.server.resume();
    eventually(SOON, "the old master follows", async || {
        let replication: Option<String> = old.try_ask("INFO replication").await;
        replication.is_some_and(|it| it.contains("master_link_status:up"))
    })
    .await;
    cluster.await_health().await;
    assert_eq!(cluster.owner(slot).await.id, new.id);
    assert_eq!(cluster.replica_of(&new).await.id, old.id);
}

/// So a master that has to wait for the processor keeps its slots, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_master_keeps_its_slots_in_a_cluster_that_elects_no_replica() {
    let cluster = Cluster::start(3, 1).await;
    let (master, witness) = (&cluster.nodes[1], &cluster.nodes[0]);
    master.server.pause();
    eventually(SOON, "the others consider it down", async || {
        let info: Option<String> = witness.try_ask("CLUSTER INFO").await;
        info.is_some_and(|it| it.contains("cluster_state:fail"))
    })
    .await;
    // Longer than a replica waits before it is elected.
    tokio::time::sleep(Duration::from_secs(3)).await;
    master.server.resume();
    cluster.await_health().await;
    assert_eq!(cluster.owner(6000).await.id, master.id);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_failover_changes_the_owner_and_back() {
    let cluster = Cluster::start(3, 1).await;
    let (first, second) = (&cluster.nodes[2], &cluster.nodes[5]);
    let slot = 16_383;
    let key = key_at(slot);
    first.redis().await.cmd(&["SET", &key, "v"]).await;
    for (from, to) in [(first, second), (second, first)] {
        assert_eq!(cluster.owner(slot).await.id, from.id);
        let (new, took) = timed(cluster.fail_over(slot)).await;
        println!("switched after {took:?}");
        assert_eq!(new.id, to.id);
        assert!(to.redis().await.exists(&key).await);
        let refused = from.redis().await.try_cmd(&["SET", &key, "v"]).await;
        assert_eq!(refused.unwrap_err().kind(), MOVED);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moves_key_by_key_to_a_new_node() {
    let mut cluster = Cluster::start(3, 0).await;
    let (joined, took) = timed(cluster.join()).await;
    println!("joined in {took:?}");
    let slot = 3;
    let mut keys = names("k", 3, |it| it == slot);
    keys.sort();
    let old = cluster.owner(slot).await;
    let (source, target) = (old.redis().await, joined.redis().await);
    for key in &keys {
        source.cmd(&["SET", key, "v", "PX", "60000"]).await;
    }
    let kind = |answer: redis::RedisResult<Value>| answer.unwrap_err().kind();

    let migration = cluster.migrate(slot, &joined).await;
    assert_eq!(migration.from.id, old.id);
    let mut left = migration.keys().await;
    left.sort();
    assert_eq!(left, keys);
    assert!(migration.move_key(&keys[0]).await);
    assert!(!migration.move_key(&keys[0]).await);
    assert_eq!(kind(source.try_cmd(&["GET", &keys[0]]).await), ASK);
    assert_eq!(kind(target.try_cmd(&["GET", &keys[0]]).await), MOVED);
    let both = ["EXISTS", &keys[0], &keys[1]];
    // Redis 6.2 answers this only to a client that was redirected and sends ASKING.
    let split = kind(source.try_cmd(&both).await);
    assert!([TRY_AGAIN, ASK].contains(&split), "{split:?}");
    assert_eq!(source.ask::<String>(&["GET", &keys[1]]).await, "v");
    assert_eq!(target.keys().await, keys[..1]);

    migration.move_keys().await;
    migration.finish().await;
    assert_eq!(cluster.owner(slot).await.id, joined.id);
    assert_eq!(kind(source.try_cmd(&["GET", &keys[1]]).await), MOVED);
    for key in &keys {
        assert_eq!(target.ask::<String>(&["GET", key]).await, "v");
    }
    cluster.move_slot(slot, &old).await;
    assert_eq!(cluster.owner(slot).await.id, old.id);
    assert_eq!(source.ask::<String>(&["GET", &keys[2]]).await, "v");
    cluster.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_aborted_migration_leaves_the_slot_in_place() {
    let cluster = Cluster::start(3, 0).await;
    let slot = 3;
    let key = key_at(slot);
    let migration = cluster.migrate(slot, &cluster.nodes[1]).await;
    let source = migration.from.redis().await;
    let asked = source.try_cmd(&["GET", &key]).await;
    assert_eq!(asked.unwrap_err().kind(), ASK);
    migration.abandon().await;
    assert_eq!(source.cmd(&["GET", &key]).await, Value::Nil);
    assert_eq!(cluster.owner(slot).await.id, cluster.nodes[0].id);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_are_redirected_to_announced_proxies() {
    let cluster = Cluster::builder(3, 1)
        .announce_proxies()
        .elects()
        .start()
        .await;
    let ports: Vec<_> = cluster.nodes.iter().map(|node| node.port()).collect();
    for node in &cluster.nodes {
        assert_ne!(node.port(), node.server.port());
        let slots = node.redis().await.cmd(&["CLUSTER", "SLOTS"]).await;
        let text = format!("{slots:?}");
        for port in &ports[..3] {
            assert!(text.contains(&format!("int({port})")), "{text}");
        }
        assert!(!text.contains(&format!("int({})", node.server.port())));
    }
    assert!(cluster.url().contains(&ports[0].to_string()));
    let key = key_at(0);
    let url = &cluster.urls()[1];
    let client = redis::Client::open(&url[..]).unwrap();
    let config = patient();
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    let mut connection = connection.await.unwrap();
    let mut get = redis::cmd("GET");
    let asked = get.arg(&key).query_async::<Value>(&mut connection);
    let moved = asked.await.unwrap_err();
    let address = format!("127.0.0.1:{}", ports[0]);
    assert_eq!(moved.redirect_node(), Some((&address[..], 0)));
    assert_eq!(cluster.nodes[1].proxy().count(named("GET")), 1);
    // Replicas connect through the proxy, too, and the stream to them contains no replies.
    cluster.nodes[0]
        .redis()
        .await
        .cmd(&["SET", &key, "v"])
        .await;
    let replica = cluster.nodes[3].redis().await;
    eventually(SOON, "it is replicated", async || {
        replica.keys().await == [key.clone()]
    })
    .await;
    assert!(cluster.nodes[0].proxy().count(named("PSYNC")) >= 1);
    cluster.nodes[0].server.kill();
    cluster.await_switch(0, &cluster.nodes[0]).await;
}

/// The server sends SUNSUBSCRIBE when the slot migrates. Redis 6.2 has no sharded channels.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sharded_subscription_ends_with_its_slot_and_the_proxy_stays_in_sync() {
    if Binary::under_test() == Binary::Redis62 {
        return;
    }
    let cluster = Cluster::builder(2, 0).announce_proxies().start().await;
    let (old, new) = (&cluster.nodes[0], &cluster.nodes[1]);
    let names = names("c", 3, |it| it == 3);
    for hello in ["2", "3"] {
        let proxy = cluster.owner(3).await.port();
        let to = if proxy == old.port() { new } else { old };
        let stream = TcpStream::connect(("127.0.0.1", proxy)).await.unwrap();
        let mut wire = Wire::new(stream);
        wire.write(&encode(&["HELLO", hello])).await.unwrap();
        wire.next().await.unwrap();
        for name in &names {
            wire.write(&encode(&["SSUBSCRIBE", name])).await.unwrap();
            assert_eq!(wire.next().await.unwrap().texts[..2], ["ssubscribe", name]);
        }
        wire.write(&encode(&["SUNSUBSCRIBE", &names[0]]))
            .await
            .unwrap();
        let asked = wire.next().await.unwrap().texts;
        assert_eq!(asked[..2], ["sunsubscribe", &names[0]]);
        // It comes while a reply is awaited, and is not a reply.
        let (from, gate) = (cluster.owner(3).await, Gate::new());
        let held = Action::HoldReply(gate.clone());
        let held = from.proxy().on(named("PING"), held);
        from.proxy()
            .delay(Direction::ToServer, Duration::from_secs(4));
        wire.write(&encode(&["PING"])).await.unwrap();
        from.proxy().wait_for(named("PING"), 1).await;
        cluster.move_slot(3, to).await;
        let mut ended = Vec::new();
        for _ in 1..3 {
            let unasked = tokio::time::timeout(SOON, wire.next()).await;
            let unasked = unasked.expect("it is not held").unwrap().texts;
            assert_eq!(unasked[0], "sunsubscribe");
            ended.push(unasked[1].clone());
        }
        ended.sort();
        assert_eq!(ended, names[1..]);
        held.wait_hits(1).await;
        gate.open();
        assert_eq!(wire.next().await.unwrap().texts, ["PONG"]);
        from.proxy().heal();
        wire.write(&encode(&["SSUBSCRIBE", &names[0]]))
            .await
            .unwrap();
        let refused = wire.next().await.unwrap();
        assert!(refused.texts[0].starts_with("MOVED"), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_with_a_password_forms_fails_over_and_migrates() {
    let cluster = Cluster::builder(1, 1).password("secret").start().await;
    assert!(cluster.url().starts_with("redis+cluster://:secret@"));
    let new = cluster.fail_over(3).await;
    assert_eq!(new.id, cluster.nodes[1].id);
    let mut cluster = Cluster::builder(3, 0).password("secret").start().await;
    let joined = cluster.join().await;
    let key = key_at(3);
    let old = cluster.owner(3).await;
    old.redis().await.cmd(&["SET", &key, "v"]).await;
    cluster.move_slot(3, &joined).await;
    assert!(joined.redis().await.exists(&key).await);
}

fn key_at(slot: u16) -> String {
    names("k", 1, |it| it == slot).remove(0)
}

async fn ask<T: redis::FromRedisValue>(cluster: &Cluster, args: &[&str]) -> T {
    cluster.nodes[0].redis().await.ask(args).await
}

const ASK: ErrorKind = ErrorKind::Server(redis::ServerErrorKind::Ask);
const MOVED: ErrorKind = ErrorKind::Server(redis::ServerErrorKind::Moved);
const TRY_AGAIN: ErrorKind = ErrorKind::Server(redis::ServerErrorKind::TryAgain);
