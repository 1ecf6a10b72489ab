//! One server of a cluster, and what it says of all of them.

use std::ops::RangeInclusive;
use std::time::Duration;

use redis::FromRedisValue;

use crate::support::proxy::Proxy;
use crate::support::redis::{Redis, patient};
use crate::support::server::RedisServer;

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) server: RedisServer,
    pub(crate) id: String,
    /// The port that it announces to clients and to replicas of the other nodes.
    pub(crate) proxy: Option<Proxy>,
    /// Its port for TLS.
    pub(crate) tls: Option<u16>,
}

impl Node {
    /// The port that it announces to clients.
    pub(crate) fn port(&self) -> u16 {
        let proxy = self.proxy.as_ref();
        proxy.map_or_else(|| self.server.port(), Proxy::port)
    }

    /// The port that clients and other nodes are to use: that for TLS, where it speaks it.
    pub(crate) fn client_port(&self) -> u16 {
        self.tls.unwrap_or_else(|| self.port())
    }

    /// What `announce_proxies` put in front of it.
    pub(crate) fn proxy(&self) -> &Proxy {
        self.proxy.as_ref().expect("the cluster announces proxies")
    }

    pub(crate) fn url(&self) -> String {
        self.server.url_at(self.port())
    }

    /// A connection that observes, past the proxy.
    pub(crate) async fn redis(&self) -> Redis {
        self.server.redis().await
    }

    pub(crate) async fn cmd(&self, line: &str) {
        let args: Vec<_> = line.split(' ').collect();
        self.redis().await.cmd(&args).await;
    }

    /// As a redirected client, so that it answers for slots in migration.
    pub(crate) async fn asking<T: FromRedisValue>(&self, args: &[&str]) -> T {
        let client = redis::Client::open(self.server.url()).expect("the URL is ours");
        let config = patient();
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        let mut connection = connection.await.expect("it runs");
        let mut both = redis::pipe();
        both.cmd("ASKING").ignore().cmd(args[0]).arg(&args[1..]);
        let answers: Result<(T,), _> = both.query_async(&mut connection).await;
        answers
            .unwrap_or_else(|error| panic!("{args:?} failed: {error}"))
            .0
    }

    /// `None` where it does not run, is frozen or refuses.
    pub(crate) async fn try_ask<T: FromRedisValue>(&self, line: &str) -> Option<T> {
        let ask = async {
            let client = redis::Client::open(self.server.url()).ok()?;
            let mut connection = client.get_multiplexed_async_connection().await.ok()?;
            let args: Vec<_> = line.split(' ').collect();
            let mut command = redis::cmd(args[0]);
            command.arg(&args[1..]);
            command.query_async(&mut connection).await.ok()
        };
        let answer = tokio::time::timeout(Duration::from_secs(1), ask).await;
        answer.ok()?
    }

    /// Its keys with TTLs, its view of the nodes, its channels and the end of its log, for the message
    /// of a failed test.
    pub(crate) async fn shown(&self) -> String {
        let mut text = format!("node {} at port {}:\n", self.id, self.port());
        let nodes: Option<String> = self.try_ask("CLUSTER NODES").await;
        text += nodes.as_deref().unwrap_or("it does not answer\n");
        let keys: Option<Vec<String>> = self.try_ask("KEYS *").await;
        for key in keys.unwrap_or_default() {
            let fields: Option<Vec<String>> = self.try_ask(&format!("HGETALL {key}")).await;
            let ttl: Option<i64> = self.try_ask(&format!("PTTL {key}")).await;
            text += &format!("key {key}: {fields:?} for {ttl:?} ms\n");
        }
        for channels in ["CHANNELS", "SHARDCHANNELS"] {
            let names: Option<Vec<String>> = self.try_ask(&format!("PUBSUB {channels}")).await;
            text += &format!("{channels}: {names:?}\n");
        }
        let log = self.server.log();
        let lines: Vec<_> = log.lines().collect();
        text + &lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }

    /// All nodes as this one sees them; `None` where it does not answer.
    pub(super) async fn view(&self) -> Option<Vec<Seen>> {
        let lines: String = self.try_ask("CLUSTER NODES").await?;
        Some(lines.lines().map(Seen::parse).collect())
    }
}

/// What one node says of another, or of itself.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) id: String,
    pub(super) port: u16,
    pub(super) flags: Vec<String>,
    /// The id of its master, `-` for a master.
    pub(super) master: String,
    pub(super) epoch: u64,
    pub(super) slots: Vec<RangeInclusive<u16>>,
}

impl Seen {
    /// A line of CLUSTER NODES: id, address, flags, master, ping, pong, epoch, link, then its slots.
    fn parse(line: &str) -> Self {
        let fields: Vec<_> = line.split(' ').collect();
        let (_, address) = fields[1].rsplit_once(':').expect("host and ports");
        let port = address.split('@').next().expect("a port");
        let slots = fields[8..].iter().filter(|slots| !slots.starts_with('['));
        let slots = slots.map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            first.parse().expect("a slot")..=last.parse().expect("a slot")
        });
        Self {
            id: fields[0].to_owned(),
            port: port.parse().expect("a port"),
            flags: fields[2].split(',').map(str::to_owned).collect(),
            master: fields[3].to_owned(),
            epoch: fields[6].parse().expect("an epoch"),
            slots: slots.collect(),
        }
    }

    pub(super) fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|it| it == flag)
    }

    pub(super) fn has(&self, slot: u16) -> bool {
        self.slots.iter().any(|range| range.contains(&slot))
    }
}

const LOG_LINES: usize = 40;
