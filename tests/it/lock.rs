//! The plain lock on a healthy server: who gets it, when, with how many commands, and what callers
//! are told.

mod absent;
mod acl;
mod basics;
mod connect;
mod deployment;
mod exclusion;
mod forgotten;
mod input;
mod limits;
mod load;
mod logs;
mod names;
mod nested;
mod owners;
mod pool;
mod queries;
mod queue;
mod queue_turns;
mod reentry;
mod reentry_local;
mod round_trips;
mod secrets;
mod uncontended;
mod waits;
mod with;

use std::time::Duration;

use lockdog::{Client, Guard, Lock, Owner};

use crate::support::{Deployment, Redis};

/// What the run asks for, one client of it, and the test's own view.
struct Fixture {
    server: Deployment,
    redis: Redis,
    client: Client,
}

impl Fixture {
    async fn start() -> Self {
        let server = Deployment::start().await;
        let redis = server.redis().await;
        let client = Client::connect(server.url()).await.expect("it runs");
        Self {
            server,
            redis,
            client,
        }
    }

    /// A client whose waiters are woken by nothing but messages and TTLs while the test lasts.
    async fn without_polling(&self) -> Client {
        Client::builder()
            .url(self.server.url())
            .poll_cap(Duration::from_secs(60))
            .build()
            .await
            .expect("it runs")
    }

    async fn another(&self) -> Client {
        Client::connect(self.server.url()).await.expect("it runs")
    }

    /// The lock in another client's hands, for longer than the test lasts.
    async fn held_elsewhere(&self, name: &str) -> Guard {
        let lock = self.another().await.lock(name);
        lock.lock().lease(LONG).await.expect("it is free")
    }

    /// Lets the server know every script of a plain cycle, and forgets what that cost. Of a cluster it
    /// is the one that has `l`.
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
        self.redis.reset_stats().await;
    }

    /// How often each of these commands was called since the last reset.
    async fn calls<const N: usize>(&self, commands: [&str; N]) -> [u64; N] {
        let mut stats = self.redis.commandstats().await;
        if self.server.sentinels().is_some() {
            // They do it all the time.
            stats.remove("ping");
        }
        // A waiter of a cluster listens so.
        if let Some(sharded) = stats.remove("ssubscribe") {
            *stats.entry("subscribe".to_owned()).or_default() += sharded;
        }
        commands.map(|command| stats.get(command).copied().unwrap_or(0))
    }
}

/// Starts a task that waits for the lock as an owner of its own and tells when it has it.
fn waiter(lock: &Lock) -> tokio::task::JoinHandle<Guard> {
    let request = lock.lock().owner(&Owner::new());
    tokio::spawn(async move { request.await.expect("nothing is wrong with the server") })
}

/// Polls a future once and says what came of it.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    tokio::select! {
        biased;
        output = future => Some(output),
        () = std::future::ready(()) => None,
    }
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// A safety net for what takes milliseconds on an idle machine.
const SOON: Duration = Duration::from_secs(30);

/// A lease that outlives every test.
const LONG: Duration = Duration::from_secs(300);
