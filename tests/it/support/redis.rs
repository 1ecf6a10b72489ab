//! The test's own connection to a server: plain commands and the server's statistics.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue, RedisResult, Value};

use crate::support::tap::{Messages, Monitor};
use crate::support::wait::eventually;

/// A connection that goes past every proxy. It does not come back after the server was killed: ask
/// for a new one.
///
/// Of a cluster, one to each master: a command goes where its key is, or to the first, and a command
/// about the server goes to all.
#[derive(Clone, Debug)]
pub(crate) struct Redis {
    connection: MultiplexedConnection,
    /// The other masters of a cluster.
    others: Vec<Self>,
    password: Option<String>,
    port: u16,
}

impl Redis {
    pub(crate) async fn connect(url: &str, port: u16, password: Option<&str>) -> Self {
        let config = patient();
        let client = Client::open(url).expect("the URL is one of ours");
        let began = Instant::now();
        let connection = loop {
            match client
                .get_multiplexed_async_connection_with_config(&config)
                .await
            {
                Ok(connection) => break connection,
                // A server that becomes a replica closes all its connections, the newest ones too.
                Err(error) if error.is_io_error() && began.elapsed() < RETRIES_FOR => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(error) => panic!("no connection to {url}: {error}"),
            }
        };
        Self {
            connection,
            others: Vec::new(),
            password: password.map(str::to_owned),
            port,
        }
    }

    /// All masters of a cluster as one.
    pub(crate) fn of_cluster(masters: Vec<Self>) -> Self {
        let mut masters = masters.into_iter();
        let mut first = masters.next().expect("there is one");
        first.others = masters.collect();
        first
    }

    fn all(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.others)
    }

    /// Sends one command and fails the test if the server refuses it.
    pub(crate) async fn cmd(&self, args: &[&str]) -> Value {
        self.ask(args).await
    }

    pub(crate) async fn try_cmd(&self, args: &[&str]) -> RedisResult<Value> {
        self.query(args).await
    }

    /// As `cmd`, with the reply converted.
    pub(crate) async fn ask<T: FromRedisValue>(&self, args: &[&str]) -> T {
        self.query(args)
            .await
            .unwrap_or_else(|error| panic!("{args:?} failed: {error}"))
    }

    /// All keys, sorted, but for the counters of fenced locks, which stay for good, and the lists of waiting clients,
    /// which expire.
    pub(crate) async fn keys(&self) -> Vec<String> {
        let mut keys = self.all_keys().await;
        keys.retain(|key| !key.starts_with("redisson_lock_token:") && !key.starts_with(WAITING));
        keys
    }

    /// As [`keys`](Self::keys), without the marks of calls, which last for seconds.
    pub(crate) async fn unmarked_keys(&self) -> Vec<String> {
        let mut keys = self.keys().await;
        keys.retain(|key| !key.starts_with("lockdog_ledger:"));
        keys
    }

    /// Deletes the marks of the calls for this name, as an eviction does. Fails the test if there is none.
    pub(crate) async fn delete_marks(&self, name: &str) {
        let prefix = format!("lockdog_ledger:{{{name}}}:");
        let mut marks = self.keys().await;
        marks.retain(|key| key.starts_with(&prefix));
        assert!(!marks.is_empty(), "no call has a mark");
        for mark in &marks {
            self.cmd(&["DEL", mark]).await;
        }
    }

    /// All keys, sorted.
    pub(crate) async fn all_keys(&self) -> Vec<String> {
        let mut keys = BTreeSet::new();
        for server in self.all() {
            keys.extend(server.ask::<Vec<String>>(&["KEYS", "*"]).await);
        }
        keys.into_iter().collect()
    }

    pub(crate) async fn hash(&self, key: &str) -> BTreeMap<String, String> {
        self.ask(&["HGETALL", key]).await
    }

    /// Milliseconds; -1 without an expiry, -2 without a key.
    pub(crate) async fn pttl(&self, key: &str) -> i64 {
        self.ask(&["PTTL", key]).await
    }

    pub(crate) async fn exists(&self, key: &str) -> bool {
        self.ask(&["EXISTS", key]).await
    }

    /// Closes the connections of all replicas, and says how many there were. With a replica paused before, what
    /// is written afterwards does not wait in its socket.
    pub(crate) async fn cut_replicas(&self) -> u32 {
        self.ask(&["CLIENT", "KILL", "TYPE", "replica"]).await
    }

    /// How often each command was called, by scripts too; subcommands read `config|get` (just
    /// `config` on redis 6.2).
    pub(crate) async fn commandstats(&self) -> BTreeMap<String, u64> {
        self.stats("commandstats", "cmdstat_", "calls").await
    }

    /// How often each error was answered, by its first word.
    pub(crate) async fn errorstats(&self) -> BTreeMap<String, u64> {
        self.stats("errorstats", "errorstat_", "count").await
    }

    pub(crate) async fn reset_stats(&self) {
        for server in self.all() {
            server.cmd(&["CONFIG", "RESETSTAT"]).await;
        }
    }

    /// The channels with a subscriber, sorted, without those of the lists of waiting clients.
    pub(crate) async fn channels(&self) -> Vec<String> {
        let mut channels = self.all_channels().await;
        channels.retain(|channel| !channel.starts_with(WAITING));
        channels
    }

    /// The channels with a subscriber, sorted; without patterns, and without those between sentinels.
    pub(crate) async fn all_channels(&self) -> Vec<String> {
        let mut channels = BTreeSet::new();
        for server in self.all() {
            let plain: Vec<String> = server.ask(&["PUBSUB", "CHANNELS"]).await;
            channels.extend(plain);
            // Redis 6.2 knows no sharded channels and refuses the question.
            let sharded: RedisResult<Vec<String>> =
                server.query(&["PUBSUB", "SHARDCHANNELS"]).await;
            channels.extend(sharded.unwrap_or_default());
        }
        channels.remove("__sentinel__:hello");
        channels.into_iter().collect()
    }

    /// Every connection the server has, this one included.
    pub(crate) async fn clients(&self) -> Vec<ClientInfo> {
        let mut clients = Vec::new();
        for server in self.all() {
            let list: String = server.ask(&["CLIENT", "LIST"]).await;
            clients.extend(list.lines().map(ClientInfo::parse));
        }
        clients
    }

    pub(crate) async fn kill_client(&self, id: i64) {
        let killed: u64 = self.ask(&["CLIENT", "KILL", "ID", &id.to_string()]).await;
        assert_eq!(killed, 1, "client {id} was not connected");
    }

    /// Closes every connection of the client of this name. Returns their number.
    pub(crate) async fn kill_named(&self, name: &str) -> usize {
        let mut killed = 0;
        for server in self.all() {
            let list: String = server.ask(&["CLIENT", "LIST"]).await;
            for client in list.lines().map(ClientInfo::parse) {
                if client.name == name {
                    let id = client.id.to_string();
                    // It may have been closed meanwhile.
                    let answer = server.try_cmd(&["CLIENT", "KILL", "ID", &id]).await;
                    killed += usize::from(answer == Ok(Value::Int(1)));
                }
            }
        }
        killed
    }

    /// Records every message on channels that match the pattern; of a cluster, that scripts send.
    pub(crate) async fn messages(&self, pattern: &str) -> Messages {
        if !self.others.is_empty() {
            assert_eq!(pattern, "*", "there is no pattern of sharded channels");
            let monitors = self.all().map(Self::monitor);
            return Messages::of_monitors(join_all(monitors).await);
        }
        Messages::record(self.port, self.password.as_deref(), pattern).await
    }

    /// Records every command the server executes.
    pub(crate) async fn monitor(&self) -> Monitor {
        Monitor::record(self.port, self.password.as_deref()).await
    }

    /// Fails unless every key has an expiry and no channel has a subscriber, within the time a
    /// clean-up may take.
    pub(crate) async fn assert_clean(&self) {
        self.assert_clean_within(CLEAN_WITHIN).await;
    }

    pub(crate) async fn assert_clean_within(&self, limit: Duration) {
        let deadline = Instant::now() + limit;
        loop {
            let leftovers = self.leftovers().await;
            if leftovers.is_empty() {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "left behind on the server: {}",
                leftovers.join(", ")
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until there is no key: what a dropped guard or a cancelled call held is released by the
    /// background.
    pub(crate) async fn eventually_empty(&self) {
        eventually(RELEASED_WITHIN, "no key is left", async || {
            self.keys().await.is_empty()
        })
        .await;
    }

    /// Waits until this key is gone, for the same reason.
    pub(crate) async fn eventually_gone(&self, key: &str) {
        let what = format!("the key {key} is gone");
        eventually(RELEASED_WITHIN, &what, async || !self.exists(key).await).await;
    }

    async fn leftovers(&self) -> Vec<String> {
        let mut leftovers = Vec::new();
        for key in self.all_keys().await {
            let stays = key.starts_with("redisson_lock_token:");
            if !stays && self.pttl(&key).await == -1 {
                leftovers.push(format!("key {key} without expiry"));
            }
        }
        let channels = self.all_channels().await;
        leftovers.extend(channels.iter().map(|name| format!("channel {name}")));
        leftovers
    }

    async fn stats(&self, section: &str, prefix: &str, field: &str) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        for server in self.all() {
            let info: String = server.ask(&["INFO", section]).await;
            let counts = info.lines().filter_map(|line| {
                let (name, fields) = line.strip_prefix(prefix)?.split_once(':')?;
                let mut fields = fields.split(',').filter_map(|pair| pair.split_once('='));
                let (_, count) = fields.find(|(key, _)| *key == field)?;
                Some((name.to_owned(), count.parse::<u64>().ok()?))
            });
            for (name, count) in counts {
                *sums.entry(name).or_default() += count;
            }
        }
        sums
    }

    async fn query<T: FromRedisValue>(&self, args: &[&str]) -> RedisResult<T> {
        let mut command = redis::cmd(args[0]);
        for arg in &args[1..] {
            command.arg(arg);
        }
        let answer = command.query_async(&mut self.connection.clone()).await;
        let Err(elsewhere) = &answer else {
            return answer;
        };
        let address = elsewhere.redirect_node().map(|(address, _slot)| address);
        let port = address.and_then(|it| it.rsplit_once(':')?.1.parse().ok());
        match self.others.iter().find(|it| Some(it.port) == port) {
            Some(there) => command.query_async(&mut there.connection.clone()).await,
            None => answer,
        }
    }
}

/// How the keys and channels of the lists of waiting clients begin.
pub(crate) const WAITING: &str = "lockdog_waiters:";

/// One line of CLIENT LIST.
#[derive(Clone, Debug)]
pub(crate) struct ClientInfo {
    pub(crate) id: i64,
    pub(crate) name: String,
    /// `lib-name`, which servers before 7.2 do not know.
    pub(crate) lib: Option<String>,
    /// The last command.
    pub(crate) cmd: String,
    /// Subscribed channels.
    pub(crate) sub: u64,
    /// Every field, as the server calls it.
    pub(crate) fields: BTreeMap<String, String>,
}

impl ClientInfo {
    fn parse(line: &str) -> Self {
        let fields: BTreeMap<String, String> = line
            .split(' ')
            .filter_map(|pair| pair.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        let number = |key: &str| {
            let field = fields.get(key).map(|value| value.parse::<i64>());
            field.unwrap_or_else(|| panic!("CLIENT LIST has no {key}: {line}"))
        };
        Self {
            id: number("id").expect("an id is a number"),
            name: fields["name"].clone(),
            lib: fields.get("lib-name").cloned(),
            cmd: fields["cmd"].clone(),
            sub: number("sub").expect("a count is a number") as u64,
            fields,
        }
    }
}

/// For a test's own connection. The default, half a second for an answer, is too short for a busy machine.
pub(crate) fn patient() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(ANSWERS_WITHIN))
        .set_response_timeout(Some(ANSWERS_WITHIN))
}

const ANSWERS_WITHIN: Duration = Duration::from_secs(30);
const RETRIES_FOR: Duration = Duration::from_secs(20);
/// A time limit for steps that take milliseconds on an idle machine.
const RELEASED_WITHIN: Duration = Duration::from_secs(30);
const CLEAN_WITHIN: Duration = Duration::from_secs(30);
