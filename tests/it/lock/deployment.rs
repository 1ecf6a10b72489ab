//! The tests of this folder run on the deployment of the test run, and their clients are connected to it.

use std::collections::BTreeSet;

use super::acl::refused;
use super::{Fixture, LONG, SOON};
use crate::support::deployment::Kind;
use crate::support::redis::patient;
use crate::support::sentinels::MASTER;
use crate::support::{Redis, eventually};

#[tokio::test]
async fn clients_connect_to_the_requested_deployment() {
    let test = Fixture::start().await;
    let kind = Kind::under_test();
    let guard = test.client.lock("l").lock().lease(LONG).await.unwrap();
    assert!(test.redis.exists("l").await);

    // The statistics of the server that has the lock.
    let plain = redis::Client::open(test.server.plain_url("l")).unwrap();
    let mut plain = connect(&plain).await;
    let info: String = redis::cmd("INFO").query_async(&mut plain).await.unwrap();
    let says = |line: &str| info.lines().any(|other| other == line);
    let (cluster, replicas) = match kind {
        Kind::Cluster => (1, 1),
        Kind::Sentinel => (0, 2),
        Kind::Acl | Kind::Standalone | Kind::Tls => (0, 0),
    };
    assert!(says("role:master"), "{info}");
    assert!(says(&format!("cluster_enabled:{cluster}")), "{info}");
    assert!(says(&format!("connected_slaves:{replicas}")), "{info}");

    // The connections that ran a script: their users, and the port to which they are connected.
    let clients = test.redis.clients().await;
    let locking = clients.iter().filter(|it| it.cmd.starts_with("eval"));
    let seen: BTreeSet<(&str, bool)> = locking
        .map(|client| {
            let (_, port) = client.fields["laddr"].rsplit_once(':').unwrap();
            (&*client.fields["user"], says(&format!("tcp_port:{port}")))
        })
        .collect();
    let user = match kind {
        Kind::Acl | Kind::Cluster => "lockdog",
        Kind::Sentinel | Kind::Standalone | Kind::Tls => "default",
    };
    assert_eq!(seen, BTreeSet::from([(user, kind != Kind::Tls)]));

    match kind {
        Kind::Standalone => {}
        Kind::Cluster => {
            // Each master has some of the locks, and the test sees all of them.
            let names = (0..30).map(|number| format!("n{number}"));
            let mut guards = Vec::new();
            for name in names.clone() {
                guards.push(test.client.lock(&*name).lock().lease(LONG).await.unwrap());
            }
            let urls: BTreeSet<String> = names.map(|name| test.server.plain_url(&name)).collect();
            assert_eq!(urls.len(), 3);
            for url in urls {
                let master = redis::Client::open(url).unwrap();
                let mut master = connect(&master).await;
                let size: usize = redis::cmd("DBSIZE").query_async(&mut master).await.unwrap();
                assert!((1..31).contains(&size), "{size} keys");
            }
            assert_eq!(test.redis.keys().await.len(), 31);
            for guard in guards {
                guard.unlock().await.unwrap();
            }
            assert_nothing_refused(&test.redis).await;
        }
        Kind::Acl => {
            assert_nothing_refused(&test.redis).await;
            // Refused if the documented permissions are in force.
            let url = test.server.url();
            let client = redis::Client::open(url).unwrap();
            let mut own = connect(&client).await;
            let who = redis::cmd("ACL").arg("WHOAMI").exec_async(&mut own).await;
            let refused = who.unwrap_err();
            assert_eq!(refused.code(), Some("NOPERM"), "{refused}");
        }
        Kind::Tls => {
            let url = test.server.url();
            assert!(url.starts_with("rediss://"));
            // The servers accept TLS only.
            let plain = redis::Client::open(url.replace("rediss", "redis")).unwrap();
            assert!(plain.get_multiplexed_async_connection().await.is_err());
        }
        Kind::Sentinel => {
            let all = test.server.sentinels().expect("they were asked for");
            let port = all.servers[0].port();
            for sentinel in &all.sentinels {
                let redis = sentinel.redis().await;
                let masters: Vec<Vec<String>> = redis.ask(&["SENTINEL", "MASTERS"]).await;
                assert_eq!(masters.len(), 1);
                let named = |value: &str| masters[0].iter().any(|field| field == value);
                assert!(named(MASTER) && named(&port.to_string()), "{masters:?}");
                // The client is subscribed there for switches.
                eventually(SOON, "the client listens", async || {
                    let clients = redis.clients().await;
                    clients.iter().any(|client| client.sub >= 1)
                })
                .await;
            }
        }
    }
    guard.unlock().await.unwrap();
}

async fn connect(client: &redis::Client) -> redis::aio::MultiplexedConnection {
    let config = patient();
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    connection.await.expect("it runs")
}

/// The documented permissions are enough. The library name that redis-rs sends may be refused.
async fn assert_nothing_refused(redis: &Redis) {
    let mut refused = refused(redis).await;
    refused.remove("client");
    assert_eq!(refused, BTreeSet::new());
}
