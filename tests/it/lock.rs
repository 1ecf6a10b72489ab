//! Locks on a healthy server: who gets them, when, with how many commands, and what callers learn.

mod absent;
mod acl;
mod basics;
mod connect;
mod deployment;
mod exclusion;
mod fenced;
mod fenced_replies;
mod forgotten;
mod input;
mod limits;
mod load;
mod logs;
mod names;
mod nested;
mod non_reentrant;
mod owners;
#[cfg(feature = "deadpool")]
mod pool;
mod queries;
mod queue;
mod queue_turns;
mod reentry;
mod reentry_local;
mod round_trips;
pub(crate) mod secrets;
mod spin;
mod uncontended;
mod waits;
mod with;

use std::time::Duration;

use lockdog::{Client, Guard, Lock};

use crate::faults::scripts;
use crate::fixture::patient;
use crate::kinds::{self, Kind, each_kind};
use crate::support::Deployment;
use crate::support::prelude::{LONG, SOON, ms, poll_once};
use crate::turn::{renewed, waiter};

/// The kind under test.
struct OfKind {
    kind: &'static Kind,
}

/// The client's server is the deployment of the test run.
type Fixture = crate::fixture::Fixture<OfKind, Deployment>;

impl Fixture {
    /// For tests of the plain lock.
    async fn start() -> Self {
        Self::of_kind(&kinds::PLAIN).await
    }

    async fn of_kind(kind: &'static Kind) -> Self {
        let server = Deployment::start().await;
        let (redis, client) = (server.redis().await, patient(server.url()));
        Self::at(server, redis, client, |_| OfKind { kind }).await
    }

    /// The lock of this name and the kind under test.
    fn lock(&self, name: &str) -> Lock {
        self.kind.lock(&self.client, name)
    }

    /// A client whose waiters only messages and TTLs wake while the test lasts.
    async fn without_polling(&self) -> Client {
        let client = patient(self.server.url()).poll_cap(Duration::from_secs(60));
        client.build().await.expect("it runs")
    }

    async fn another(&self) -> Client {
        let client = patient(self.server.url());
        client.build().await.expect("it runs")
    }

    /// Another client holds the lock for longer than the test lasts.
    async fn held_elsewhere(&self, name: &str) -> Guard {
        let lock = self.kind.lock(&self.another().await, name);
        lock.lock().lease(LONG).await.expect("it is free")
    }

    /// Loads every script of a plain cycle into the server, and resets its statistics. On a cluster it is
    /// the server of `l`.
    async fn warm_up(&self, client: &Client) {
        let lock = client.lock("{l}warm-up");
        let guard = lock.lock().await.expect("it is free");
        lock.lock()
            .await
            .expect("it is ours")
            .unlock()
            .await
            .expect("it is held");
        guard.unlock().await.expect("it is held");
        // That of a client that waits, too.
        for text in scripts::texts() {
            self.redis.cmd(&["SCRIPT", "LOAD", text]).await;
        }
        self.redis.reset_stats().await;
    }

    /// How often each of these commands was called since the last reset.
    async fn calls<const N: usize>(&self, commands: [&str; N]) -> [u64; N] {
        let mut stats = self.redis.commandstats().await;
        if self.server.sentinels().is_some() {
            // Sentinels send it periodically.
            stats.remove("ping");
        }
        // A waiter on a cluster subscribes with this command.
        if let Some(sharded) = stats.remove("ssubscribe") {
            *stats.entry("subscribe".to_owned()).or_default() += sharded;
        }
        commands.map(|command| stats.get(command).copied().unwrap_or(0))
    }
}
