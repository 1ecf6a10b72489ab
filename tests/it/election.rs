//! Leader election. LE1 to LE4 are the invariants of `docs/design.md`.

mod basics;
mod cluster;
mod faults;
mod flushed;
mod input;
mod nemesis;
mod observe;
mod run;

use std::time::Duration;

use lockdog::{Client, ClientBuilder, Election, Leadership, Owner};
use tokio::task::JoinHandle;

use crate::support::eventually;
use crate::support::prelude::{LONG, SOON, ms, poll_once};

/// The election under test.
struct Scheduler {
    election: Election,
}

type Fixture = crate::fixture::Fixture<Scheduler>;

impl Fixture {
    async fn start() -> Self {
        Self::with(|builder| builder).await
    }

    async fn with(set: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Self {
        Self::of(set, |client| Scheduler {
            election: client.election(NAME),
        })
        .await
    }

    /// The election as seen by another client.
    async fn another(&self) -> Election {
        self.another_with(|builder| builder).await
    }

    async fn another_with(&self, set: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Election {
        self.connect(set).await.election(NAME)
    }

    /// Starts a task that campaigns, and waits until it is in the queue.
    async fn queued(&self, election: &Election, value: &str) -> JoinHandle<Leadership> {
        let before: usize = self.redis.ask(&["LLEN", QUEUE]).await;
        let waiter = campaigner(election, value);
        eventually(SOON, "it waits in the queue", async || {
            self.redis.ask::<usize>(&["LLEN", QUEUE]).await == before + 1
        })
        .await;
        waiter
    }

    /// Nothing is left but the counter and the presence, which expires.
    async fn eventually_over(&self) {
        eventually(SOON, "nothing is left", async || {
            let keys = self.redis.keys().await;
            keys.iter().all(|key| key == PRESENCE || key == COUNTER)
        })
        .await;
    }

    /// The value that the leader published, as stored in Redis.
    async fn published_value(&self) -> Option<String> {
        self.redis.ask(&["GET", LEADER_KEY]).await
    }

    /// The value that a client without a candidate sees.
    async fn value(&self) -> Option<String> {
        let leader = self.election.leader().await.expect("the server answers");
        leader.and_then(|leader| leader.value)
    }
}

/// Starts a task that campaigns with its own owner.
fn campaigner(election: &Election, value: &str) -> JoinHandle<Leadership> {
    let campaign = election.campaign(value).owner(&Owner::new());
    tokio::spawn(async move { campaign.await.expect("it is first in the queue") })
}

async fn in_time<T>(task: JoinHandle<T>) -> T {
    let ended = tokio::time::timeout(SOON, task).await;
    ended.expect("in time").expect("it does not panic")
}

/// The script of an election, which contains a script of the fair lock, as the client sends it.
fn composed(fair: &str, election: &str) -> String {
    format!("local function fair()\n{fair}\nend\n{election}")
}

const NAME: &str = "scheduler";
const LEADER_KEY: &str = "lockdog_leader:{scheduler}";
const COUNTER: &str = "redisson_lock_token:{scheduler}";
const QUEUE: &str = "redisson_lock_queue:{scheduler}";
const PRESENCE: &str = "lockdog_fair:{scheduler}";
