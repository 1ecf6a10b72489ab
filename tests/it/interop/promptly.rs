//! A message ends the wait on the other side within 50 ms, for each kind that has messages. The spin lock
//! has none. On a busy machine a message may take longer, so each scene is tried for half a minute, and one
//! attempt below 50 ms is enough. It proves that a message ended the wait, because the lease and the poll
//! would end it after ten minutes.

use std::time::{Duration, Instant, SystemTime};

use super::objects::{Object, WRITE};
use super::{NEVER, SAFETY, java_at, without_timers};
use crate::kinds;
use crate::support::redisson::Redisson;
use crate::support::{RedisServer, eventually};

/// The object that one side holds, and the object that the other side waits for.
const SCENES: [(Object, Object); 14] = [
    alike(Object::Lock(&kinds::PLAIN)),
    alike(Object::Lock(&kinds::NON_REENTRANT)),
    alike(Object::Lock(&kinds::FENCED)),
    alike(Object::Lock(&kinds::FENCED_FROM_ONE)),
    alike(Object::Lock(&kinds::FAIR)),
    alike(Object::Lock(&kinds::NON_REENTRANT_FAIR)),
    (
        Object::Values(["Jack", "Mary"]),
        Object::Values(["Mary", "Tom"]),
    ),
    alike(WRITE),
    (WRITE, Object::Read),
    (Object::Read, WRITE),
    alike(Object::Election),
    alike(Object::Permits),
    alike(Object::Semaphore),
    alike(Object::Latch),
];

const fn alike(object: Object) -> (Object, Object) {
    (object, object)
}

#[tokio::test]
async fn a_java_release_of_an_object_of_any_kind_wakes_a_lockdog_waiter_within_50_ms() {
    let fixture = Fixture::start().await;
    for (holds, waits) in SCENES {
        let attempt = async |name: &str| fixture.java_wakes_lockdog(holds, waits, name).await;
        is_prompt(holds, waits, attempt).await;
    }
}

#[tokio::test]
async fn a_lockdog_release_of_an_object_of_any_kind_wakes_a_java_waiter_within_50_ms() {
    let fixture = Fixture::start().await;
    for (holds, waits) in SCENES {
        let attempt = async |name: &str| fixture.lockdog_wakes_java(holds, waits, name).await;
        is_prompt(holds, waits, attempt).await;
    }
}

/// Tries a new name each time, until an attempt is short enough or `SAFETY` is over.
async fn is_prompt(holds: Object, waits: Object, attempt: impl AsyncFn(&str) -> Duration) {
    let what = format!("{} after {}", waits.label(), holds.label());
    let mut took = Vec::new();
    let began = Instant::now();
    for n in 0_u32.. {
        took.push(attempt(&format!("{what} {n}")).await);
        if took.last().is_some_and(|last| *last < PROMPTLY) {
            println!("{what}: {took:?}");
            return;
        }
        let is_late = began.elapsed() >= SAFETY;
        assert!(!is_late, "{what}: each wait ended late: {took:?}");
        // The other load may end.
        tokio::time::sleep(Duration::from_millis(100) * n.min(10)).await;
    }
}

/// The other side.
struct Peer {
    java: Redisson,
}

type Fixture = crate::fixture::Fixture<Peer>;

impl Fixture {
    async fn start() -> Self {
        let server = RedisServer::start().await;
        let (redis, client) = (server.redis().await, without_timers(&server));
        let java = java_at(&server).start().await;
        Self::at(server, redis, client, |_| Peer { java }).await
    }

    async fn java_wakes_lockdog(&self, holds: Object, waits: Object, name: &str) -> Duration {
        holds.make(&self.client, name).await;
        let holder = self.java.thread("holder");
        let held = holds.java_hold(&holder, name, Some(NEVER)).await;
        let (client, of) = (self.client.clone(), name.to_owned());
        let waiting = tokio::spawn(async move {
            let held = waits.wait(&client, &of, Some(NEVER)).await;
            (held, SystemTime::now())
        });
        self.a_lockdog_waiter_listens(name).await;
        assert!(!waiting.is_finished(), "{name}");
        let given = held.start_give_back().answer().await;
        given.result.unwrap();
        let (_held, at) = tokio::time::timeout(SAFETY, waiting)
            .await
            .unwrap_or_else(|_| panic!("{name}: no message ends our wait"))
            .unwrap();
        at.duration_since(given.at - given.took).unwrap_or_default()
    }

    async fn lockdog_wakes_java(&self, holds: Object, waits: Object, name: &str) -> Duration {
        holds.make(&self.client, name).await;
        let held = holds.hold(&self.client, name, Some(NEVER)).await;
        let waiter = self.java.thread("waiter");
        let waiting = waits.java_wait(&waiter, name, Some(NEVER));
        waiter.waits_for_message().await;
        assert!(!waiting.is_finished(), "{name}");
        let given = SystemTime::now();
        held.give_back().await;
        let (_held, at) = tokio::time::timeout(SAFETY, waiting.done())
            .await
            .unwrap_or_else(|_| panic!("{name}: no message ends Java's wait"));
        at.duration_since(given).unwrap_or_default()
    }

    /// Its next query is over, too: no client sends a command any more.
    async fn a_lockdog_waiter_listens(&self, name: &str) {
        eventually(SAFETY, "a waiter listens", async || {
            let channels = self.redis.channels().await;
            channels.iter().any(|channel| channel.contains(name))
        })
        .await;
        let (mut before, mut quiet) = (0, 0);
        eventually(SAFETY, "no client sends anything", async || {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let now = self.sent().await;
            quiet = if now == before { quiet + 1 } else { 0 };
            before = now;
            quiet == 3
        })
        .await;
    }

    /// The number of commands that the server received, without those that ask for it.
    async fn sent(&self) -> u64 {
        let stats = self.redis.commandstats().await;
        let asks = |command: &str| command.starts_with("info") || command.starts_with("pubsub");
        let others = stats.iter().filter(|(command, _)| !asks(command));
        others.map(|(_, calls)| calls).sum()
    }
}

const PROMPTLY: Duration = Duration::from_millis(50);
