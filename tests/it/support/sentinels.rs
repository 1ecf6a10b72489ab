//! A private master of one test, its replicas and their sentinels.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::support::binary::Binary;
use crate::support::port::free_port;
use crate::support::prelude::SOON;
use crate::support::process::{Process, folder, pause, resume};
use crate::support::redis::Redis;
use crate::support::server::{PORT_ATTEMPTS, RedisServer, ServerBuilder};
use crate::support::wait::{becomes_true, eventually};

/// The sentinels' name of the master.
pub(crate) const MASTER: &str = "orders";

/// Three sentinels, and three servers of which the first was the master at the start.
pub(crate) struct Sentinels {
    pub(crate) servers: Vec<RedisServer>,
    pub(crate) sentinels: Vec<Sentinel>,
}

/// One sentinel.
pub(crate) struct Sentinel {
    port: u16,
    process: Process,
    folder: TempDir,
}

impl Sentinels {
    /// Starts all, and waits until the sentinels know of all.
    pub(crate) async fn start() -> Self {
        Self::of_servers(RedisServer::builder).await
    }

    /// As [`Sentinels::start`], with servers of this kind, which need no password.
    pub(crate) async fn of_servers(server: impl Fn() -> ServerBuilder) -> Self {
        let (first, second, third) =
            tokio::join!(server().start(), server().start(), server().start());
        let servers = vec![first, second, third];
        let port = servers[0].port().to_string();
        for replica in &servers[1..] {
            let redis = replica.redis().await;
            redis.cmd(&["REPLICAOF", "127.0.0.1", &port]).await;
        }
        for replica in &servers[1..] {
            eventually(SWITCHED_WITHIN, "a replica follows", async || {
                let info = replication(replica).await;
                info.is_some_and(|info| info.contains("master_link_status:up"))
            })
            .await;
        }
        let mut sentinels = Vec::new();
        for _ in 0..3 {
            sentinels.push(Sentinel::start(servers[0].port()).await);
        }
        let all = Self { servers, sentinels };
        for sentinel in &all.sentinels {
            eventually(SWITCHED_WITHIN, "the sentinels know all", async || {
                let Some(redis) = sentinel.try_redis().await else {
                    return false;
                };
                let known: Vec<String> = redis.ask(&["SENTINEL", "MASTER", MASTER]).await;
                let value = |name: &str| {
                    let at = known.iter().position(|field| field == name);
                    at.map(|at| known[at + 1].clone())
                };
                let numbers = ["num-slaves", "num-other-sentinels"].map(value);
                numbers.iter().all(|it| it.as_deref() == Some("2"))
            })
            .await;
            sentinel.shorten_tilt().await;
        }
        all
    }

    /// All processes, and where each of them writes.
    pub(crate) fn processes(&self) -> Vec<(u32, PathBuf)> {
        let servers = self.servers.iter().map(RedisServer::process);
        let sentinels = self.sentinels.iter().map(Sentinel::process);
        servers.chain(sentinels).collect()
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(Sentinel::url).collect()
    }

    /// All of them in one URL.
    pub(crate) fn url(&self) -> String {
        let hosts = self
            .sentinels
            .iter()
            .map(|it| format!("127.0.0.1:{}", it.port));
        let hosts: Vec<_> = hosts.collect();
        format!("redis+sentinel://{}/{MASTER}", hosts.join(","))
    }

    /// The master according to the sentinel with the highest configuration epoch.
    pub(crate) async fn master(&self) -> &RedisServer {
        let mut best = (0, 0);
        for sentinel in &self.sentinels {
            let Some(redis) = sentinel.try_redis().await else {
                continue;
            };
            let known: Vec<String> = redis.ask(&["SENTINEL", "MASTER", MASTER]).await;
            let at = known.iter().position(|it| it == "config-epoch").unwrap();
            let epoch: u64 = known[at + 1].parse().unwrap();
            let (_, port): (String, u16) = redis
                .ask(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER])
                .await;
            best = best.max((epoch + 1, port));
        }
        let named = self.servers.iter().find(|server| server.port() == best.1);
        named.expect("a sentinel names one of ours")
    }

    /// Waits until another server than `old` is the master by what the sentinels say and it says.
    pub(crate) async fn await_switch_from(&self, old: u16) -> &RedisServer {
        let is_switched = becomes_true(SWITCHED_WITHIN, async || self.is_switched_from(old).await);
        // The logs show whether the sentinels were busy or disagreed.
        assert!(
            is_switched.await,
            "within {SWITCHED_WITHIN:?} {old} had no successor\n{}",
            self.logs()
        );
        self.master().await
    }

    /// Waits until this server follows another one. It closes its connections when it begins to follow.
    pub(crate) async fn await_demotion(&self, old: &RedisServer) {
        eventually(SOON * 4, "the old master follows", async || {
            is_master(old).await == Some(false)
        })
        .await;
    }

    async fn is_switched_from(&self, old: u16) -> bool {
        let master = self.master().await;
        master.port() != old && is_master(master).await == Some(true)
    }

    /// Waits until both replicas follow the master and have executed all that it executed before this call. What
    /// the master says about them is not enough: Valkey 9 calls a replica online that has yet to load the data.
    pub(crate) async fn await_replication(&self) {
        let mut seen = None;
        eventually(SWITCHED_WITHIN, "the replicas have it all", async || {
            let master = self.master().await;
            // The sentinels may have named another master meanwhile.
            if seen.is_none_or(|(port, _)| port != master.port()) {
                let info = Replication::of(master).await;
                let written = info.number("master_repl_offset");
                seen = written.map(|written| (master.port(), written));
            }
            let Some((port, written)) = seen else {
                return false;
            };
            for replica in self.servers.iter().filter(|it| it.port() != port) {
                if !Replication::of(replica).await.has_all(port, written) {
                    return false;
                }
            }
            true
        })
        .await;
    }

    fn logs(&self) -> String {
        let logs = self.sentinels.iter().map(|it| {
            let log = it.log();
            let lines: Vec<_> = log.lines().rev().take(LOGGED).collect();
            let lines = lines.into_iter().rev().collect::<Vec<_>>().join("\n");
            format!(
                "the end of the log of the sentinel at {}:\n{lines}",
                it.port
            )
        });
        logs.collect::<Vec<_>>().join("\n")
    }

    /// Makes a sentinel choose another server as the master, though this one is well. The new master has all that
    /// the old one executed before this call.
    pub(crate) async fn failover(&self) -> &RedisServer {
        self.await_replication().await;
        self.failover_at_once().await
    }

    /// As [`Sentinels::failover`], whatever the replicas have received.
    pub(crate) async fn failover_at_once(&self) -> &RedisServer {
        let old = self.master().await.port();
        let sentinel = self.sentinels[0].redis().await;
        eventually(SWITCHED_WITHIN, "the failover took place", async || {
            // On a busy machine the sentinel refuses, because it knows no replica that answers, or it gives the
            // failover up.
            if self.master().await.port() == old {
                let command = ["SENTINEL", "FAILOVER", MASTER];
                let _refused_or_begun = sentinel.try_cmd(&command).await;
            }
            for _ in 0..100 {
                if self.is_switched_from(old).await {
                    return true;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            false
        })
        .await;
        self.await_switch_from(old).await
    }
}

/// What a server says about its replication; nothing if it does not answer.
struct Replication(String);

impl Replication {
    async fn of(server: &RedisServer) -> Self {
        Self(replication(server).await.unwrap_or_default())
    }

    fn value(&self, name: &str) -> Option<&str> {
        let mut lines = self.0.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(value.trim())
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.value(name)?.parse().ok()
    }

    /// Whether a replica follows this master and has executed all that it wrote up to this offset.
    fn has_all(&self, master: u16, written: u64) -> bool {
        self.number("master_port") == Some(master.into())
            && self.value("master_link_status") == Some("up")
            && self.number("slave_repl_offset") >= Some(written)
    }
}

/// Whether a server reports that it is the master. `None` without an answer.
pub(crate) async fn is_master(server: &RedisServer) -> Option<bool> {
    Some(replication(server).await?.contains("role:master"))
}

/// `None` if the server does not answer within a second, or closes the connection: it closes all when it begins to
/// follow another one.
async fn replication(server: &RedisServer) -> Option<String> {
    let ask = async {
        let client = redis::Client::open(server.url()).ok()?;
        let mut connection = client.get_multiplexed_async_connection().await.ok()?;
        redis::cmd("INFO")
            .arg("replication")
            .query_async(&mut connection)
            .await
            .ok()
    };
    tokio::time::timeout(Duration::from_secs(1), ask)
        .await
        .ok()?
}

impl Sentinel {
    async fn start(master: u16) -> Self {
        Self::start_at(master, 0).await
    }

    /// Starts it with this configuration epoch. Another process can take a port between our check and
    /// the bind. Then the next port is tried.
    pub(crate) async fn start_at(master: u16, epoch: u64) -> Self {
        for _ in 0..PORT_ATTEMPTS {
            let sentinel = Self::launch(master, epoch);
            let mut log = String::new();
            eventually(SOON, "the sentinel runs or has ended", async || {
                log = sentinel.log();
                log.contains("+monitor master") || !sentinel.process.is_running()
            })
            .await;
            if sentinel.process.is_running() {
                return sentinel;
            }
            assert!(log.contains("Address already in use"), "{log}");
        }
        panic!("{PORT_ATTEMPTS} ports in a row were taken by others");
    }

    /// Lets the sentinel watch again a second after its process was frozen, and not after thirty. Servers
    /// before 7.0 cannot.
    async fn shorten_tilt(&self) {
        let Some(redis) = self.try_redis().await else {
            return;
        };
        let shorten = ["SENTINEL", "DEBUG", "tilt-period", "1000"];
        if let Err(refused) = redis.try_cmd(&shorten).await {
            assert!(refused.to_string().contains("nknown"), "{refused}");
        }
    }

    fn launch(master: u16, epoch: u64) -> Self {
        let folder = folder();
        let port = free_port();
        let config = folder.path().join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor {MASTER} 127.0.0.1 {master} 2\n\
             sentinel down-after-milliseconds {MASTER} 2000\n\
             sentinel failover-timeout {MASTER} 5000\nsentinel config-epoch {MASTER} {epoch}\n\
             sentinel current-epoch {epoch}\n",
            folder.path().display()
        );
        fs::write(&config, text).expect("the folder can be written to");
        let log = File::create(folder.path().join("log")).expect("the folder can be written to");
        let errors = log.try_clone().expect("the log can be shared");
        let child = Binary::under_test()
            .command()
            .arg(&config)
            .arg("--sentinel")
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .expect("tests/setup installs it");
        let process = Process::default();
        process.set(child);
        Self {
            port,
            process,
            folder,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub(crate) async fn redis(&self) -> Redis {
        Redis::connect(&self.url(), self.port, None).await
    }

    /// `None` where it does not run.
    async fn try_redis(&self) -> Option<Redis> {
        let is_there = tokio::net::TcpStream::connect(("127.0.0.1", self.port)).await;
        match is_there {
            Ok(_) if self.process.is_running() => Some(self.redis().await),
            _ => None,
        }
    }

    fn process(&self) -> (u32, PathBuf) {
        let pid = self.process.with(Child::id);
        (pid, self.folder.path().to_owned())
    }

    /// Ends the process as a crash does.
    pub(crate) fn kill(&self) {
        self.process.kill();
    }

    /// Stops the process (SIGSTOP).
    pub(crate) fn pause(&self) {
        self.process.with(pause);
    }

    pub(crate) fn resume(&self) {
        self.process.with(resume);
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

/// The sentinels consider the master down after two seconds and vote for a few more. A sentinel that got no
/// processor for two seconds waits another 30 s.
const SWITCHED_WITHIN: Duration = Duration::from_secs(120);
/// How many lines of a log a failed test shows.
const LOGGED: usize = 40;
