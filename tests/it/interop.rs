//! Beside Redisson on the same server, and against recordings of Redisson.

mod clocks;
mod configured;
mod contention;
mod crowds;
mod deaths;
mod election;
mod fair;
mod fenced;
mod force;
mod group;
mod latch;
mod memory;
mod names;
mod objects;
mod permits;
mod promptly;
mod read_write;
mod replay;
mod semaphore;
mod views;
mod wakes;
mod watchdogs;

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use lockdog::{Client, ClientBuilder, Guard, Lock};
use tokio::task::JoinHandle;

use crate::support::redis::Redis;
use crate::support::redisson::{Builder, Redisson};
use crate::support::{RedisServer, eventually};

/// A client with a long command timeout, because a busy machine may stop for some seconds.
fn ours_at(server: &RedisServer) -> ClientBuilder {
    let builder = Client::builder().url(server.url());
    builder.command_timeout(SAFETY)
}

/// The same for Redisson.
fn java_at(server: &RedisServer) -> Builder {
    Redisson::builder(&server.url()).timeout(SAFETY)
}

/// No timer of the client fires during a test: no renewal, no poll, and no end of a lease.
fn without_timers(server: &RedisServer) -> ClientBuilder {
    ours_at(server).watchdog_lease(NEVER).poll_cap(NEVER)
}

/// Older versions of Redisson have only the plain lock.
fn has_every_kind() -> bool {
    std::env::var("LOCKDOG_TEST_REDISSON").map_or(true, |version| version == "4.7.0")
}

/// Whether the server has no key, but for what an older Redisson leaves for a while after an unlock.
async fn is_empty(redis: &Redis) -> bool {
    let stays = |key: &String| !has_every_kind() && key.starts_with("redisson_unlock_latch:");
    redis.keys().await.iter().all(stays)
}

/// A task that waits for the lock with its own owner, and the time of its grant.
fn waiter(lock: &Lock) -> JoinHandle<(Guard, SystemTime)> {
    let request = lock.lock().lease(NEVER).owner(&lockdog::Owner::new());
    tokio::spawn(async move {
        let guard = request.await.expect("the server is there");
        (guard, SystemTime::now())
    })
}

/// Waits until a waiter is subscribed to the lock's channel, and a while longer for its next query.
async fn a_waiter_listens(redis: &Redis, name: &str) {
    eventually(SAFETY, "a waiter listens", async || {
        redis.channels().await.contains(&channel(name))
    })
    .await;
    tokio::time::sleep(Duration::from_millis(150)).await;
}

pub(crate) fn channel(name: &str) -> String {
    match name.contains('{') {
        true => format!("redisson_lock__channel:{name}"),
        false => format!("redisson_lock__channel:{{{name}}}"),
    }
}

/// Checks that a message woke the waiter: it waited from `from` to `to`.
pub(crate) fn assert_woken(who: &str, from: SystemTime, to: SystemTime) {
    let took = to.duration_since(from).unwrap_or_default();
    println!(
        "{who} was woken after {:.1} ms",
        took.as_secs_f64() * 1_000.0
    );
    assert!(took < WOKEN_WITHIN, "{who} was woken after {took:?}");
}

/// The only field of the lock's hash, and its count.
async fn holder(redis: &Redis, name: &str) -> Option<(String, String)> {
    let hash = redis.hash(name).await;
    assert!(hash.len() <= 1, "{hash:?}");
    hash.into_iter().next()
}

/// How long both sides use one object in a test of exclusion.
fn seconds_of_contention() -> Duration {
    let set = std::env::var("LOCKDOG_CONTENTION_SECONDS");
    Duration::from_secs(set.map_or(2, |seconds| seconds.parse().expect("a number")))
}

/// The permits that the clients of both sides use now, and the most so far.
#[derive(Clone)]
struct PermitsInUse {
    total: u32,
    now_and_most: Arc<Mutex<(u32, u32)>>,
}

impl PermitsInUse {
    fn of(total: u32) -> Self {
        let now_and_most = Arc::default();
        Self {
            total,
            now_and_most,
        }
    }

    /// Fails the test if more are used than there are.
    fn enter(&self, permits: u32) {
        let mut inside = self.now_and_most.lock().unwrap();
        inside.0 += permits;
        inside.1 = inside.1.max(inside.0);
        let (used, total) = (inside.0, self.total);
        assert!(used <= total, "{used} of {total} permits are used");
    }

    fn leave(&self, permits: u32) {
        self.now_and_most.lock().unwrap().0 -= permits;
    }

    fn most(&self) -> u32 {
        self.now_and_most.lock().unwrap().1
    }
}

/// Longer than any test lasts.
const NEVER: Duration = Duration::from_secs(600);
/// Far below `NEVER`, so that only a message can have woken it.
const WOKEN_WITHIN: Duration = Duration::from_secs(30);
const SAFETY: Duration = Duration::from_secs(30);
