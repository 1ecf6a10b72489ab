//! A Redisson client that runs together with the lockdog clients. Its scripts do what Redisson's own
//! scripts do; `recorded` compares them with the recordings of a real Redisson. It has a clock of its
//! own. In the runs of the plain lock its commands may be late, and it sends them again; in the others
//! they run once.

pub(super) mod fair;
pub(super) mod group;
pub(super) mod latch;
pub(super) mod permits;
pub(super) mod plain;
pub(super) mod read_write;
mod recorded;
pub(super) mod semaphore;

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::chance::Chance;
use super::network::{Network, RedissonWire};

/// The steps of a run's Redisson client are drawn from this.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct RedissonPlan {
    seed: u64,
    threads: u64,
    /// How far its clock is ahead of the server's.
    ahead_ms: i64,
    lease_ms: u64,
}

impl RedissonPlan {
    /// Draws a Redisson client in two of five runs.
    pub(super) fn draw(seed: u64, aheads: &[i64], lease_ms: u64) -> Option<Self> {
        let mut chance = Chance::new(seed, 50);
        chance.percent(40).then(|| Self {
            seed: chance.next(),
            threads: chance.within(1, 2),
            ahead_ms: chance.one_of(aheads),
            lease_ms,
        })
    }

    pub(super) fn lease_ms(&self) -> u64 {
        self.lease_ms
    }

    /// Starts its threads, which have numbers. They end when the returned value is dropped.
    pub(super) fn begin<F>(plan: Option<Self>, thread: impl Fn(Self, u64) -> F) -> JoinSet<()>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut threads = JoinSet::new();
        if let Some(plan) = plan {
            for number in 1..=plan.threads {
                threads.spawn(thread(plan, number));
            }
        }
        threads
    }
}

/// One thread of a Redisson client.
pub(super) struct RedissonThread {
    wire: RedissonWire,
    pub(super) chance: Chance,
    /// Its client and itself, as in Redis.
    pub(super) owner: String,
    plan: RedissonPlan,
    /// The time of the server's clock at the start of the run.
    epoch_ms: u64,
}

impl RedissonThread {
    pub(super) fn new(
        network: &Arc<Network>,
        plan: RedissonPlan,
        number: u64,
        epoch_ms: u64,
    ) -> Self {
        Self {
            wire: RedissonWire::new(network.clone()),
            chance: Chance::new(plan.seed, number),
            owner: format!("{CLIENT}:{number}"),
            plan,
            epoch_ms,
        }
    }

    /// Its own clock.
    pub(super) fn now_ms(&self) -> i64 {
        (self.epoch_ms + self.wire.now_ms()) as i64 + self.plan.ahead_ms
    }

    pub(super) fn lease(&self) -> String {
        self.plan.lease_ms.to_string()
    }

    /// `None` if there is no answer.
    pub(super) async fn run(
        &mut self,
        script: &str,
        keys: &[&str],
        args: &[&str],
    ) -> Option<Value> {
        self.wire.send(command(script, keys, args)).await
    }

    /// As [`run`](Self::run), and sends it again if there is no answer in time.
    pub(super) async fn run_again(
        &mut self,
        script: &str,
        keys: &[&str],
        args: &[&str],
    ) -> Option<Value> {
        self.wire.send_again(command(script, keys, args)).await
    }

    pub(super) async fn delete(&mut self, key: &str) {
        let command = ["DEL", key].map(str::to_owned);
        self.wire.send_again(command.into()).await;
    }

    pub(super) async fn rest(&mut self, most_ms: u64) {
        let ms = self.chance.within(0, most_ms);
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }

    /// Pauses between two polls of a waiter without messages, until this time at most.
    pub(super) async fn pause(&mut self, until: Instant) {
        let ms = self.chance.within(5, 60);
        let next = Instant::now() + Duration::from_millis(ms);
        tokio::time::sleep_until(next.min(until)).await;
    }

    /// The end of its wait.
    pub(super) fn patience(&mut self) -> Instant {
        let ms = self.chance.one_of(&[0, 100, 1_000, 5_000]);
        Instant::now() + Duration::from_millis(ms)
    }

    /// Holds for a while. Its watchdog extends the lease meanwhile, by this script.
    pub(super) async fn hold(&mut self, renew: &str, keys: &[&str], args: &[&str]) {
        let most = self.chance.one_of(&[20, 200, 2 * self.plan.lease_ms]);
        let until = Instant::now() + Duration::from_millis(self.chance.within(0, most));
        // Else its lease is fixed, and may end first.
        let is_watched = self.chance.percent(50);
        let period = Duration::from_millis(self.plan.lease_ms / 3);
        while Instant::now() + period < until && is_watched {
            tokio::time::sleep(period).await;
            self.run_again(renew, keys, args).await;
        }
        tokio::time::sleep_until(until).await;
    }
}

fn command(script: &str, keys: &[&str], args: &[&str]) -> Vec<String> {
    let count = keys.len().to_string();
    let parts = ["EVAL", script, &count].into_iter();
    let args = parts
        .chain(keys.iter().copied())
        .chain(args.iter().copied());
    args.map(str::to_owned).collect()
}

/// Its id.
const CLIENT: &str = "7e3c7d1e-0f0a-4b1c-9d58-3d2a6c1b5e90";
