//! A master and its replicas, private to one test.

use std::time::Duration;

use futures_util::future::join_all;

use crate::support::binary::Binary;
use crate::support::port::dead_port;
use crate::support::prelude::SOON;
use crate::support::proxy::{Direction, Proxy};
use crate::support::redis::Redis;
use crate::support::server::{RedisServer, ServerBuilder};
use crate::support::wait::eventually;

pub(crate) struct Replicated {
    pub(crate) master: RedisServer,
    pub(crate) replicas: Vec<RedisServer>,
    /// The test's own view of the master.
    pub(crate) redis: Redis,
    /// The proxies between the replicas and the master.
    line: Option<Proxy>,
}

impl Replicated {
    /// Starts them, and waits until all replicas follow.
    pub(crate) async fn start(replicas: usize) -> Self {
        Self::start_with(replicas, |server| server).await
    }

    pub(crate) async fn start_on(binary: Binary, replicas: usize) -> Self {
        Self::start_with(replicas, |server| server.binary(binary)).await
    }

    /// With these server settings.
    pub(crate) async fn start_with(
        replicas: usize,
        set_up: impl Fn(ServerBuilder) -> ServerBuilder,
    ) -> Self {
        let server = || {
            // Else a master waits five seconds for more replicas before it sends its data.
            let server = RedisServer::builder().arg("--repl-diskless-sync-delay", "0");
            set_up(server).start()
        };
        let mut servers = join_all((0..=replicas).map(|_| server())).await;
        let master = servers.remove(0);
        let redis = master.redis().await;
        let all = Self {
            master,
            replicas: servers,
            redis,
            line: None,
        };
        for replica in 0..replicas {
            all.follow(replica).await;
        }
        all.redis.reset_stats().await;
        all
    }

    /// With replicas that receive everything this much later.
    pub(crate) async fn start_behind(replicas: usize, lag: Duration) -> Self {
        let mut all = Self::start(replicas).await;
        let line = Proxy::start(&all.master).await;
        line.delay(Direction::ToClient, lag);
        all.line = Some(line);
        for replica in 0..replicas {
            all.cut_off(replica).await;
            all.follow(replica).await;
        }
        all.redis.reset_stats().await;
        all
    }

    /// Makes a replica follow the master, and waits until the master says that it does.
    pub(crate) async fn follow(&self, replica: usize) {
        let port = self
            .line
            .as_ref()
            .map_or_else(|| self.master.port(), Proxy::port);
        let port = port.to_string();
        let replica = &self.replicas[replica];
        let redis = replica.redis().await;
        redis.cmd(&["REPLICAOF", "127.0.0.1", &port]).await;
        let line = format!("port={},state=online", replica.port());
        eventually(SOON, "the replica follows", async || {
            let info: String = self.redis.ask(&["INFO", "replication"]).await;
            info.contains(&line)
        })
        .await;
        // The master counts a replica before it knows the replica's offset.
        let info: String = self.redis.ask(&["INFO", "replication"]).await;
        let following = info.matches("state=online").count();
        eventually(SOON, "the replicas acknowledge", async || {
            self.redis.cmd(&["SET", "followed", "1"]).await;
            let wait = ["WAIT", &following.to_string(), "1000"];
            self.redis.ask::<usize>(&wait).await >= following
        })
        .await;
        self.redis.cmd(&["DEL", "followed"]).await;
    }

    /// The replica follows an address without a server; the master knows at once.
    pub(crate) async fn cut_off(&self, replica: usize) {
        let unused = dead_port().to_string();
        let replica = &self.replicas[replica];
        let redis = replica.redis().await;
        redis.cmd(&["REPLICAOF", "127.0.0.1", &unused]).await;
        let line = format!("port={},", replica.port());
        eventually(SOON, "the master has lost its replica", async || {
            let info: String = self.redis.ask(&["INFO", "replication"]).await;
            !info.contains(&line)
        })
        .await;
    }

    /// How often each of these commands was called at the master since the last reset.
    pub(crate) async fn calls<const N: usize>(&self, commands: [&str; N]) -> [u64; N] {
        let stats = self.redis.commandstats().await;
        commands.map(|command| stats.get(command).copied().unwrap_or(0))
    }
}
