//! Findings about the server.

use lockdog::report::FindingKind;
use lockdog::{Client, Error};

use super::{SERVERS, SOON, findings, kinds_at, ms, well_set_up};
use crate::fixture::connected;
use crate::support::{Redis, RedisServer, dead_port, eventually};

const WELL: [(FindingKind, bool); 0] = [];

#[tokio::test]
async fn a_healthy_server_has_no_findings_and_is_not_changed() {
    for binary in SERVERS {
        let server = well_set_up(binary).start().await;
        let redis = server.redis().await;
        let builder = Client::builder().url(server.url()).client_name("billing");
        let client = builder.build().await.unwrap();
        let guard = client.lock("l").lock().await.unwrap();
        let before = redis.hash("l").await;
        let diagnosis = client.diagnose().await.unwrap();
        assert_eq!(diagnosis.findings().len(), 0, "{binary:?}: {diagnosis}");
        assert_eq!(diagnosis.to_string(), "nothing is wrong with the set-up");
        assert_eq!(redis.keys().await, ["l"]);
        assert_eq!(redis.hash("l").await, before);
        let clients = redis.clients().await;
        assert!(clients.iter().any(|client| client.name == "billing"));
        guard.unlock().await.unwrap();
        redis.assert_clean().await;
        client.shutdown().await;
        assert!(matches!(client.diagnose().await, Err(Error::Closed)));
    }
}

#[tokio::test]
async fn an_eviction_policy_is_a_finding_if_memory_is_limited() {
    for binary in SERVERS {
        let server = well_set_up(binary).start().await;
        let redis = server.redis().await;
        for policy in ["allkeys-lru", "volatile-ttl", "volatile-lfu"] {
            set(&redis, "maxmemory", "0").await;
            set(&redis, "maxmemory-policy", policy).await;
            assert_eq!(kinds_at(&server.url()).await, WELL, "{binary:?}");
            set(&redis, "maxmemory", "100mb").await;
            let client = Client::connect(server.url()).await.unwrap();
            let found = findings(&client).await;
            let [finding] = &found[..] else {
                panic!("{found:?}");
            };
            assert_eq!(finding.kind, FindingKind::Eviction);
            assert!(finding.is_known && finding.meaning.contains(policy));
            assert_eq!(finding.server, format!("127.0.0.1:{}", server.port()));
            apply(&redis, &finding.fix).await;
            assert_eq!(findings(&client).await.len(), 0);
        }
    }
}

#[tokio::test]
async fn a_server_without_persistence_is_a_finding() {
    for binary in SERVERS {
        let server = RedisServer::builder().binary(binary).start().await;
        let redis = server.redis().await;
        let wrong = [(FindingKind::NoPersistence, true)];
        assert_eq!(kinds_at(&server.url()).await, wrong, "{binary:?}");
        set(&redis, "save", "3600 1").await;
        assert_eq!(kinds_at(&server.url()).await, WELL, "{binary:?}");
        set(&redis, "save", "").await;
        let client = Client::connect(server.url()).await.unwrap();
        let found = findings(&client).await;
        apply(&redis, &found[0].fix).await;
        assert_eq!(findings(&client).await.len(), 0);
        // It is unknown until a user with that permission has sent CONFIG.
        set(&redis, "appendonly", "no").await;
        redis.cmd(&["ACL", "SETUSER", "default", "-config"]).await;
        let unknown = [(FindingKind::NoPersistence, false)];
        assert_eq!(kinds_at(&server.url()).await, unknown, "{binary:?}");
    }
}

#[tokio::test]
async fn a_master_that_does_not_require_replicas_and_a_replica_are_findings() {
    for binary in SERVERS {
        let server = well_set_up(binary).start().await;
        let replica = well_set_up(binary).start().await;
        assert_eq!(kinds_at(&server.url()).await, WELL, "{binary:?}");
        let (redis, follower) = (server.redis().await, replica.redis().await);
        let port = server.port().to_string();
        follower.cmd(&["REPLICAOF", "127.0.0.1", &port]).await;
        eventually(SOON, "the replica follows", async || {
            let info: String = redis.ask(&["INFO", "replication"]).await;
            info.contains("state=online")
        })
        .await;
        let client = Client::connect(server.url()).await.unwrap();
        let found = findings(&client).await;
        let kinds: Vec<_> = found.iter().map(|it| it.kind).collect();
        assert_eq!(kinds, [FindingKind::NoMinReplicas], "{binary:?}");
        for command in found[0].fix.split(" and ").take(2) {
            apply(&redis, command).await;
        }
        assert_eq!(findings(&client).await.len(), 0);
        let replica_found = kinds_at(&replica.url()).await;
        assert_eq!(replica_found, [(FindingKind::Replica, true)], "{binary:?}");
        follower.cmd(&["REPLICAOF", "NO", "ONE"]).await;
        assert_eq!(kinds_at(&replica.url()).await, WELL);
    }
}

#[tokio::test]
async fn a_cluster_node_behind_a_plain_url_is_a_finding() {
    for binary in SERVERS {
        let server = well_set_up(binary).arg("--cluster-enabled", "yes");
        let server = server.start().await;
        let wrong = [(FindingKind::ClusterMode, true)];
        assert_eq!(kinds_at(&server.url()).await, wrong, "{binary:?}");
    }
}

#[tokio::test]
async fn a_clock_difference_is_a_finding() {
    let server = RedisServer::builder()
        .persistent()
        .own_clock()
        .start()
        .await;
    let client = Client::connect(server.url()).await.unwrap();
    assert_eq!(findings(&client).await.len(), 0);
    for (seconds, way) in [(5, " ms ahead of "), (-5, " ms behind ")] {
        server.set_clock(seconds);
        // The server checks its clock periodically.
        let is_found = async || {
            let found = findings(&client).await;
            found.first().is_some_and(|it| it.meaning.contains(way))
        };
        eventually(SOON, "it is found", is_found).await;
        let found = findings(&client).await;
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].kind, FindingKind::ClockDifference);
        assert!(found[0].meaning.contains(way), "{}", found[0]);
    }
    server.set_clock(0);
    let is_well = async || findings(&client).await.is_empty();
    eventually(SOON, "nothing is found any more", is_well).await;
}

#[tokio::test]
async fn an_unreachable_server_is_an_error_and_no_finding() {
    let url = format!("redis://127.0.0.1:{}", dead_port());
    let builder = Client::builder().url(url).lazy(true);
    let client = builder.command_timeout(ms(1000)).build().await.unwrap();
    eventually(SOON, "it cannot be connected to", async || {
        let error = client.diagnose().await.unwrap_err();
        // On a busy machine the time may be over during an attempt.
        let is_unavailable = matches!(error, Error::Unavailable { .. });
        assert!(is_unavailable || error.is_timeout(), "{error}");
        is_unavailable
    })
    .await;
    let server = RedisServer::builder().persistent().start().await;
    let builder = Client::builder().url(server.url());
    let client = connected(builder.command_timeout(ms(2000))).await;
    server.pause();
    let error = client.diagnose().await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    server.resume();
}

#[cfg(feature = "deadpool")]
#[tokio::test]
async fn a_client_with_only_a_pool_is_checked() {
    let server = RedisServer::start().await;
    let config = deadpool_redis::Config::from_url(server.url());
    let pool = config.builder().unwrap().max_size(2);
    let pool = pool
        .runtime(deadpool_redis::Runtime::Tokio1)
        .build()
        .unwrap();
    let client = Client::builder().pool(pool).build().await.unwrap();
    let found = findings(&client).await;
    let kinds: Vec<_> = found.iter().map(|it| (it.kind, it.is_known)).collect();
    assert_eq!(kinds, [(FindingKind::NoPersistence, true)], "{found:?}");
    let guard = client.lock("l").lock().await.unwrap();
    guard.unlock().await.unwrap();
    client.shutdown().await;
}

/// Runs the command at the start of a fix.
async fn apply(redis: &Redis, fix: &str) {
    let words: Vec<&str> = fix.split([' ', ',']).collect();
    assert_eq!(words[..2], ["CONFIG", "SET"], "{fix}");
    redis.cmd(&words[..4]).await;
}

async fn set(redis: &Redis, setting: &str, value: &str) {
    redis.cmd(&["CONFIG", "SET", setting, value]).await;
}
