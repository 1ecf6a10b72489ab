//! A latch that both sides use. CL1 and CL2 are invariants of `docs/design.md`.

use std::time::{Duration, SystemTime};

use lockdog::CountDownLatch;
use serde_json::{Value, json};

use super::{SAFETY, assert_woken, java_at, without_timers};
use crate::support::redis::Redis;
use crate::support::redisson::{FromAnswer, JavaThread, PendingCall, Redisson};
use crate::support::{RedisServer, eventually};

struct Scene {
    redis: Redis,
    t1: JavaThread,
    start: CountDownLatch,
    _java: Redisson,
    _server: RedisServer,
}

impl Scene {
    async fn start() -> Self {
        let server = RedisServer::start().await;
        let java = java_at(&server).start().await;
        let client = without_timers(&server).build().await.unwrap();
        Self {
            redis: server.redis().await,
            t1: java.thread("t1"),
            start: client.count_down_latch(NAME),
            _java: java,
            _server: server,
        }
    }

    fn ask<T: FromAnswer>(&self, method: &str, args: Value) -> PendingCall<T> {
        self.t1
            .start_object(("getCountDownLatch", NAME), method, args)
    }

    async fn somebody_waits(&self) {
        eventually(SAFETY, "somebody listens", async || {
            self.redis.channels().await.contains(&CHANNEL.to_owned())
        })
        .await;
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
}

/// Each side sees the other's count.
#[tokio::test]
async fn each_side_counts_the_latch_of_the_other_down() {
    let scene = Scene::start().await;
    let set = scene.ask::<bool>("trySetCount", json!([{ "long": 4 }]));
    assert!(set.value().await);
    assert!(!scene.start.try_set_count(9).await.unwrap());
    scene.start.count_down().await.unwrap();
    assert_eq!(scene.ask::<i64>("getCount", json!([])).value().await, 3);
    scene.ask::<()>("countDown", json!([])).value().await;
    assert_eq!(scene.start.count().await.unwrap(), 2);
    scene.start.count_down().await.unwrap();
    scene.ask::<()>("countDown", json!([])).value().await;
    scene.start.wait_zero().await.unwrap();
    assert!(scene.start.try_set_count(1).await.unwrap());
    assert_eq!(scene.ask::<i64>("getCount", json!([])).value().await, 1);
    assert!(scene.ask::<bool>("delete", json!([])).value().await);
    assert!(!scene.start.delete().await.unwrap());
}

/// Redisson's own `delete` does not wake its waiters.
#[tokio::test]
async fn a_lockdog_delete_ends_the_wait_of_a_java_thread() {
    let scene = Scene::start().await;
    assert!(scene.start.try_set_count(1).await.unwrap());
    let waiting = scene.ask::<()>("await", json!([]));
    scene.somebody_waits().await;
    assert!(!waiting.is_finished());
    let deleted = SystemTime::now();
    assert!(scene.start.delete().await.unwrap());
    let ended = tokio::time::timeout(SAFETY, waiting.answer()).await;
    let ended = ended.expect("Java's wait ends");
    assert_woken("Java", deleted, ended.at);
    ended.result.unwrap();
}

const NAME: &str = "start";
const CHANNEL: &str = "redisson_countdownlatch__channel__{start}";
