//! What the tests of a healthy lock run on: one server, or whatever else a run asks for.
//!
//! `LOCKDOG_TEST_DEPLOYMENT` names it, and the same tests run on each. A test has it to itself. What
//! is quick to start belongs to the test; the rest goes from test to test, emptied in between, and
//! ends with this process.

use crate::support::certificates::Certificates;
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
    Sentinel,
    Standalone,
    /// One server, over a connection that nobody can read.
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
            "sentinel" => Self::Sentinel,
            "standalone" => Self::Standalone,
            "tls" => Self::Tls,
            _ => {
                panic!("LOCKDOG_TEST_DEPLOYMENT is {name:?}, not standalone, sentinel, acl or tls")
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
    Own(RedisServer),
    Lent(Lent<Sentinels>),
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
            Kind::Sentinel => {
                static POOL: Pool<Sentinels> = Pool::new(SET_UPS);
                let lent = POOL.take(start_sentinels).await;
                empty(&lent.servers[0]).await;
                Self {
                    url: lent.url(),
                    place: Place::Lent(lent),
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

    /// For a connection of the test's own to the server that has the keys.
    pub(crate) fn plain_url(&self) -> String {
        self.server().url()
    }

    /// The test's own view, by a user that may do everything.
    pub(crate) async fn redis(&self) -> Redis {
        self.server().redis().await
    }

    /// The sentinels, where there are any.
    pub(crate) fn sentinels(&self) -> Option<&Sentinels> {
        match &self.place {
            Place::Own(_) => None,
            Place::Lent(sentinels) => Some(sentinels),
        }
    }

    fn server(&self) -> &RedisServer {
        match &self.place {
            Place::Own(server) => server,
            // Nobody switches it.
            Place::Lent(sentinels) => &sentinels.servers[0],
        }
    }
}

async fn start_sentinels() -> (Sentinels, Vec<(u32, std::path::PathBuf)>) {
    let all = Sentinels::start().await;
    for sentinel in &all.sentinels {
        let redis = sentinel.redis().await;
        // A busy machine is no failover.
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
            // It may have gone by itself.
            let _ = redis.try_cmd(&["CLIENT", "KILL", "ID", &id]).await;
        }
    }
    redis.cmd(&["FLUSHALL"]).await;
    redis.cmd(&["SCRIPT", "FLUSH"]).await;
    redis.reset_stats().await;
}

/// So many tests at a time have a set-up of many processes.
const SET_UPS: usize = 3;
