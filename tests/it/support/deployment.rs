//! What the tests of a healthy lock run on: one server, or whatever else a run asks for.
//!
//! `LOCKDOG_TEST_DEPLOYMENT` names it, and the same tests run on each. A test has it to itself. What
//! is quick to start belongs to the test; the rest goes from test to test, emptied in between, and
//! ends with this process.

use std::path::PathBuf;

use futures_util::future::join_all;

use crate::support::certificates::Certificates;
use crate::support::cluster::{Cluster, slot};
use crate::support::pool::{Lent, Pool};
use crate::support::redis::Redis;
use crate::support::security;
use crate::support::sentinels::{MASTER, Sentinels};
use crate::support::server::RedisServer;

/// What a client may be connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One server, by a user that may do what `docs/security.md` says and nothing else.
    Acl,
    /// Three masters, each with a replica, by the user that the documentation gives for that.
    Cluster,
    Sentinel,
    Standalone,
    /// One server, over an encrypted connection.
    Tls,
}

impl Kind {
    /// What `LOCKDOG_TEST_DEPLOYMENT` names.
    pub(crate) fn under_test() -> Self {
        let Ok(name) = std::env::var("LOCKDOG_TEST_DEPLOYMENT") else {
            return Self::Standalone;
        };
        match &*name {
            "acl" => Self::Acl,
            "cluster" => Self::Cluster,
            "sentinel" => Self::Sentinel,
            "standalone" => Self::Standalone,
            "tls" => Self::Tls,
            _ => {
                panic!(
                    "LOCKDOG_TEST_DEPLOYMENT is {name:?}, not standalone, sentinel, cluster, acl or tls"
                )
            }
        }
    }
}

/// One of them, for one test.
pub(crate) struct Deployment {
    url: String,
    place: Place,
}

enum Place {
    Cluster(Lent<Cluster>),
    Own(RedisServer),
    Sentinels(Lent<Sentinels>),
}

impl Deployment {
    pub(crate) async fn start() -> Self {
        match Kind::under_test() {
            Kind::Acl => {
                let server = RedisServer::start().await;
                let user = security::user_of_any_name();
                let user: Vec<&str> = user.iter().map(String::as_str).collect();
                server.redis().await.cmd(&user).await;
                let url = format!("redis://lockdog:secret@127.0.0.1:{}/", server.port());
                Self::own(server, url)
            }
            Kind::Cluster => {
                static POOL: Pool<Cluster> = Pool::new(SET_UPS);
                let lent = POOL.take(start_cluster).await;
                for master in masters(&lent) {
                    empty(master).await;
                }
                let scheme = "redis+cluster://";
                let as_user = format!("{scheme}lockdog:secret@");
                Self {
                    url: lent.url().replace(scheme, &as_user),
                    place: Place::Cluster(lent),
                }
            }
            Kind::Sentinel => {
                static POOL: Pool<Sentinels> = Pool::new(SET_UPS);
                let lent = POOL.take(start_sentinels).await;
                empty(&lent.servers[0]).await;
                Self {
                    url: lent.url(),
                    place: Place::Sentinels(lent),
                }
            }
            Kind::Standalone => {
                let server = RedisServer::start().await;
                let url = server.url();
                Self::own(server, url)
            }
            Kind::Tls => {
                let (server, port) = Certificates::of_this_run().start_server().await;
                Self::own(server, format!("rediss://localhost:{port}/"))
            }
        }
    }

    fn own(server: RedisServer, url: String) -> Self {
        let place = Place::Own(server);
        Self { url, place }
    }

    /// For the client under test.
    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// For a connection of the test's own to the server that has this key.
    pub(crate) fn plain_url(&self, key: &str) -> String {
        match &self.place {
            Place::Cluster(cluster) => {
                let all: Vec<&RedisServer> = masters(cluster).collect();
                let each = usize::from(SLOTS) / all.len();
                let which = usize::from(slot(key)) / each;
                all[which.min(all.len() - 1)].url()
            }
            Place::Own(server) => server.url(),
            Place::Sentinels(sentinels) => sentinels.servers[0].url(),
        }
    }

    /// How a lock's waiters are notified.
    pub(crate) fn publishes(&self) -> &'static str {
        match &self.place {
            Place::Cluster(_) => "SPUBLISH",
            Place::Own(_) | Place::Sentinels(_) => "PUBLISH",
        }
    }

    /// Whether this may be a lock's name: on a cluster its messages have to be where it is.
    pub(crate) fn takes(&self, name: &str) -> bool {
        let channel = if name.contains('{') {
            format!("redisson_lock__channel:{name}")
        } else {
            format!("redisson_lock__channel:{{{name}}}")
        };
        !matches!(self.place, Place::Cluster(_)) || slot(name) == slot(&channel)
    }

    /// The test's own view, by a user that may do everything.
    pub(crate) async fn redis(&self) -> Redis {
        match &self.place {
            Place::Cluster(cluster) => {
                let masters = join_all(masters(cluster).map(RedisServer::redis)).await;
                Redis::of_cluster(masters)
            }
            Place::Own(server) => server.redis().await,
            // It has no failover.
            Place::Sentinels(sentinels) => sentinels.servers[0].redis().await,
        }
    }

    /// The sentinels, where there are any.
    pub(crate) fn sentinels(&self) -> Option<&Sentinels> {
        match &self.place {
            Place::Cluster(_) | Place::Own(_) => None,
            Place::Sentinels(sentinels) => Some(sentinels),
        }
    }
}

/// They have no failover, and their slots do not move.
fn masters(cluster: &Cluster) -> impl Iterator<Item = &RedisServer> {
    cluster.nodes[..MASTERS].iter().map(|node| &node.server)
}

async fn start_cluster() -> (Cluster, Vec<(u32, PathBuf)>) {
    let cluster = Cluster::start(MASTERS, 1).await;
    for node in &cluster.nodes {
        // The limit is long, so that a busy machine causes no failover.
        node.cmd("CONFIG SET cluster-node-timeout 600000").await;
        let user = [security::user_of_any_name(), security::of_a_cluster()].concat();
        node.cmd(&user.join(" ")).await;
    }
    let processes = cluster.nodes.iter().map(|node| node.server.process());
    let processes = processes.collect();
    (cluster, processes)
}

async fn start_sentinels() -> (Sentinels, Vec<(u32, PathBuf)>) {
    let all = Sentinels::start().await;
    for sentinel in &all.sentinels {
        let redis = sentinel.redis().await;
        // The limit is long, so that a busy machine causes no failover.
        let set = ["SENTINEL", "SET", MASTER, "down-after-milliseconds"];
        redis.cmd(&[&set[..], &["600000"]].concat()).await;
    }
    let processes = all.processes();
    (all, processes)
}

/// Leaves a server as it was when it started, and without the clients of the test before.
async fn empty(server: &RedisServer) {
    let redis = server.redis().await;
    let own: i64 = redis.ask(&["CLIENT", "ID"]).await;
    loop {
        let mut clients = redis.clients().await;
        // Those that belong to the set-up.
        clients.retain(|client| {
            let is_part = client.name.starts_with("sentinel-") || client.fields["flags"] == "S";
            client.id != own && !is_part
        });
        if clients.is_empty() {
            break;
        }
        for client in clients {
            let id = client.id.to_string();
            // The connection may have ended by itself.
            let _ = redis.try_cmd(&["CLIENT", "KILL", "ID", &id]).await;
        }
    }
    redis.cmd(&["FLUSHALL"]).await;
    redis.cmd(&["SCRIPT", "FLUSH"]).await;
    redis.cmd(&["ACL", "LOG", "RESET"]).await;
    redis.reset_stats().await;
}

const MASTERS: usize = 3;
const SLOTS: u16 = 16_384;

/// How many tests at a time have a set-up of many processes. Tests that run on one wait most of the time.
const SET_UPS: usize = 10;
