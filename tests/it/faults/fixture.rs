//! A server, a proxy in front of it, and a client that connects to the proxy.

use std::time::{Duration, Instant};

use lockdog::{Client, ClientBuilder, Error, Guard, Lock};

use crate::faults::{SOON, scripts};
use crate::support::{Proxy, Redis, RedisServer, eventually};

/// What the client is connected to.
pub(super) struct Proxied {
    pub(super) proxy: Proxy,
}

pub(super) type Fixture = crate::fixture::Fixture<Proxied>;

impl Fixture {
    /// With a command timeout that a busy machine does not exceed.
    pub(super) async fn start() -> Self {
        Self::with(|client| client.command_timeout(SOON)).await
    }

    /// With further settings of the client.
    pub(super) async fn with(set: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Self {
        Self::on(RedisServer::start().await, set).await
    }

    pub(super) async fn on(
        server: RedisServer,
        set: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> Self {
        let proxy = Proxy::start(&server).await;
        let redis = server.redis().await;
        load_scripts(&redis).await;
        let client = set(Client::builder().url(proxy.url()));
        Self::at(server, redis, client, |_| Proxied { proxy }).await
    }

    pub(super) fn lock(&self) -> Lock {
        self.client.lock(NAME)
    }

    /// The same lock as seen by another client, which is connected without the proxy.
    pub(super) async fn others_lock(&self) -> Lock {
        let other = Client::connect(self.server.url()).await;
        other.expect("the server is reachable").lock(NAME)
    }

    /// The counts of all holders. There is at most one holder.
    pub(super) async fn counts(&self) -> Vec<String> {
        self.redis.hash(NAME).await.into_values().collect()
    }

    /// The field of the holder.
    pub(super) async fn holder(&self) -> String {
        let fields: Vec<String> = self.redis.hash(NAME).await.into_keys().collect();
        assert_eq!(fields.len(), 1, "one holder: {fields:?}");
        fields.concat()
    }

    pub(super) async fn is_free(&self) -> bool {
        !self.redis.exists(NAME).await
    }

    pub(super) async fn await_free(&self) {
        eventually(SOON, "the lock is free", async || self.is_free().await).await;
    }

    /// The scripts and commands that the client sent after the first `from`, by name.
    pub(super) fn sent_since(&self, from: usize) -> Vec<String> {
        let commands = self.proxy.commands();
        let sent = commands[from..].iter();
        sent.map(|seen| scripts::name(&seen.args)).collect()
    }

    /// The server fails to save its data, and so refuses writes (`MISCONF`).
    pub(super) async fn fail_to_save(&self) {
        // It refuses writes only if it is set to save by itself.
        let set = ["CONFIG", "SET", "save", "3600 100000"];
        self.redis.cmd(&set).await;
        std::fs::remove_dir_all(self.server.data_dir()).unwrap();
        let _ = self.redis.try_cmd(&["BGSAVE"]).await;
        eventually(SOON, "saving failed", async || {
            let info: String = self.redis.ask(&["INFO", "persistence"]).await;
            info.contains("rdb_last_bgsave_status:err")
        })
        .await;
    }

    /// The server takes writes again, which it cannot save.
    pub(super) async fn write_unsaved(&self) {
        let set = ["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"];
        self.redis.cmd(&set).await;
    }

    /// Checks that nothing is held or waited for, that the server is clean, and that another client gets
    /// the lock before the end of a lease.
    pub(super) async fn assert_recovered(&self) {
        assert_recovered(&self.client, &self.redis, &self.others_lock().await).await;
    }
}

pub(super) async fn assert_recovered(client: &Client, redis: &Redis, others: &Lock) {
    take(others).await.unlock().await.expect("it is held");
    eventually(SOON, "nothing is held", async || {
        client.holds().is_empty() && redis.keys().await.is_empty()
    })
    .await;
    redis.assert_clean().await;
}

/// Acquires a lock that is free or will be released soon.
pub(super) async fn take(lock: &Lock) -> Guard {
    let taken = lock.try_lock().wait(SOON).await;
    taken
        .expect("nothing is wrong")
        .expect("it was set free long before its lease was over")
}

/// The error of a short wait for a server that answers and grants nothing. On a busy machine a wait may end
/// without an answer, which is a timeout.
pub(super) async fn error_of(lock: &Lock) -> Error {
    let until = Instant::now() + SOON;
    loop {
        let error = lock.try_lock().wait(MOMENT).await;
        let error = error.expect_err("the server grants nothing");
        if !error.is_timeout() || Instant::now() > until {
            return error;
        }
    }
}

/// Loads the scripts, so that a rule applies to the first sending, and no NOSCRIPT comes first.
pub(super) async fn load_scripts(redis: &Redis) {
    for text in scripts::texts() {
        redis.cmd(&["SCRIPT", "LOAD", text]).await;
    }
}

pub(super) const NAME: &str = "orders:42";

/// A command timeout that a test can wait for, and long enough for an answer on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_millis(2_000);

/// The length of an outage, and a wait whose outcome does not depend on its length.
pub(super) const MOMENT: Duration = Duration::from_millis(1_000);
