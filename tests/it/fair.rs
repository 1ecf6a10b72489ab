//! The fair lock. FA1 to FA8 are the invariants of `docs/design.md`.

mod absent;
mod basics;
mod cluster;
mod faults;
mod nemesis;
mod order;
mod processes;
mod scripts;

use std::time::Duration;

use lockdog::{Client, ClientBuilder, Guard, Lock, Owner};
use tokio::task::{JoinHandle, JoinSet};

use crate::support::prelude::{LONG, SOON, ms, poll_once};
use crate::support::{Cell, Redis, eventually};

/// The lock under test.
struct Door {
    lock: Lock,
}

type Fixture = crate::fixture::Fixture<Door>;

impl Fixture {
    async fn start() -> Self {
        Self::with(|builder| builder).await
    }

    async fn with(set: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Self {
        Self::of(set, |client| Door {
            lock: client.fair_lock(NAME),
        })
        .await
    }

    /// The lock as seen by another client.
    async fn another(&self) -> Lock {
        self.another_with(|builder| builder).await
    }

    async fn another_with(&self, set: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Lock {
        self.connect(set).await.fair_lock(NAME)
    }

    /// The queue in Redis. The list and the sorted set have the same members (FA2).
    async fn queue(&self) -> Vec<String> {
        let script = "local list = redis.call('lrange', KEYS[1], 0, -1)\n\
            for _, field in ipairs(list) do\n\
                if not redis.call('zscore', KEYS[2], field) then return { 'no place', field } end\n\
            end\n\
            if #list ~= redis.call('zcard', KEYS[2]) then return { 'no entry' } end\n\
            return list";
        self.redis.ask(&["EVAL", script, "2", QUEUE, PLACES]).await
    }

    /// Waits until this number of waiters is in the queue.
    async fn eventually_queued(&self, waiters: usize) {
        eventually(SOON, "the waiters are in the queue", async || {
            self.queue().await.len() == waiters
        })
        .await;
    }

    /// Waits until the waiter with this entry is subscribed to its channel.
    async fn eventually_listening(&self, entry: &str) {
        let channel = format!("{CHANNELS}{entry}");
        eventually(SOON, "the waiter listens", async || {
            self.redis.channels().await.contains(&channel)
        })
        .await;
    }

    /// Starts a task that waits, and waits until it has changed the queue.
    async fn queued_beside(&self, lock: &Lock) -> JoinHandle<Guard> {
        let before = self.queue().await;
        let waiter = crate::turn::waiter(lock);
        eventually(SOON, "it waits in the queue", async || {
            self.queue().await != before
        })
        .await;
        waiter
    }

    /// Starts a task that waits, and waits until it is in the queue.
    async fn queued(&self, lock: &Lock) -> JoinHandle<Guard> {
        let before = self.queue().await.len();
        let waiter = crate::turn::waiter(lock);
        self.eventually_queued(before + 1).await;
        waiter
    }

    /// Nothing is left of the lock and its queue (FA8).
    async fn eventually_empty(&self) {
        eventually(SOON, "nothing is left", async || {
            let keys = self.redis.keys().await;
            // The presence expires.
            keys.iter().all(|key| key == PRESENCE) && self.present().await.is_empty()
        })
        .await;
    }

    async fn present(&self) -> Vec<String> {
        self.redis.ask(&["ZRANGE", PRESENCE, "0", "-1"]).await
    }
}

/// Waits for the lock, and writes while it holds it.
pub(crate) async fn visit(lock: Lock, cell: Cell) {
    let guard = lock.try_lock().owner(&Owner::new()).wait(LONG).await;
    let guard = guard.unwrap().expect("it is its turn");
    cell.bump(ms(20)).await;
    guard.unlock().await.unwrap();
}

/// Five visits of each client, all clients at the same time.
pub(crate) async fn visit_in_rounds(locks: impl Iterator<Item = Lock>, cell: &Cell) {
    let mut clients = JoinSet::new();
    for lock in locks {
        let cell = cell.clone();
        clients.spawn(async move {
            for _ in 0..5 {
                visit(lock.clone(), cell.clone()).await;
            }
        });
    }
    clients.join_all().await;
}

const NAME: &str = "door";
const QUEUE: &str = "redisson_lock_queue:{door}";
const PLACES: &str = "redisson_lock_timeout:{door}";
const PRESENCE: &str = "lockdog_fair:{door}";
const CHANNELS: &str = "redisson_lock__channel:{door}:";
