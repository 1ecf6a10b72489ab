//! A semaphore without leases that both sides use. SE1 is an invariant of `docs/design.md`.

use std::time::{Duration, Instant};

use lockdog::Semaphore;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{PermitsInUse, SAFETY, java_at, ours_at, seconds_of_contention, without_timers};
use crate::support::redis::Redis;
use crate::support::redisson::{FromAnswer, JavaThread, PendingCall, Redisson};
use crate::support::{RedisServer, eventually};

struct Scene {
    redis: Redis,
    java: Redisson,
    t1: JavaThread,
    seats: Semaphore,
    server: RedisServer,
}

impl Scene {
    async fn of(permits: u32) -> Self {
        let server = RedisServer::start().await;
        let java = java_at(&server).start().await;
        let client = without_timers(&server).build().await.unwrap();
        let seats = client.semaphore(NAME);
        assert!(seats.try_set_permits(permits).await.unwrap());
        Self {
            redis: server.redis().await,
            t1: java.thread("t1"),
            java,
            seats,
            server,
        }
    }

    async fn somebody_waits(&self) {
        eventually(SAFETY, "somebody listens", async || {
            self.redis.channels().await.contains(&CHANNEL.to_owned())
        })
        .await;
        tokio::time::sleep(Duration::from_millis(150)).await;
    }

    /// The available permits according to both sides.
    async fn available(&self) -> [i64; 2] {
        let java = ask(&self.t1, "availablePermits", json!([])).value().await;
        [java, self.seats.available().await.unwrap()]
    }
}

fn ask<T: FromAnswer>(thread: &JavaThread, method: &str, args: Value) -> PendingCall<T> {
    thread.start_object(("getSemaphore", NAME), method, args)
}

/// Each side sees the permits that the other takes and releases.
#[tokio::test]
async fn each_side_sees_the_permits_that_the_other_acquires_and_releases() {
    let scene = Scene::of(6).await;
    let java = |method, permits: i64| ask::<()>(&scene.t1, method, json!([{ "int": permits }]));
    java("acquire", 2).value().await;
    let ours = scene.seats.acquire_many(3).await.unwrap();
    assert_eq!(scene.available().await, [1, 1]);
    let refused = ask::<bool>(&scene.t1, "tryAcquire", json!([{ "int": 2 }]));
    assert!(!refused.value().await);
    assert!(scene.seats.try_acquire_many(2).await.unwrap().is_none());
    ours.release().await.unwrap();
    // SE1: permits that Java took are released by number, on either side.
    scene.seats.release(1).await.unwrap();
    java("release", 1).value().await;
    assert_eq!(scene.available().await, [6, 6]);
    java("addPermits", 2).value().await;
    scene.seats.add_permits(-1).await.unwrap();
    assert_eq!(scene.available().await, [7, 7]);
    let set = ask::<bool>(&scene.t1, "trySetPermits", json!([{ "int": 9 }]));
    assert!(!set.value().await);
    assert!(!scene.seats.try_set_permits(9).await.unwrap());
    let two = scene.seats.acquire_many(2).await.unwrap();
    let drained = ask::<i64>(&scene.t1, "drainPermits", json!([]))
        .value()
        .await;
    assert_eq!(drained, 5);
    assert!(scene.seats.drain().await.unwrap().is_none());
    two.release().await.unwrap();
    assert_eq!(scene.seats.drain().await.unwrap().unwrap().count(), 2);
    let exists = ask::<bool>(&scene.t1, "releaseIfExists", json!([{ "int": 5 }]));
    assert!(exists.value().await);
}

/// Each side sees and keeps the TTL that the other sets, and an expired semaphore stays expired for both.
#[tokio::test]
async fn each_side_gives_the_semaphore_a_time_to_live() {
    let scene = Scene::of(3).await;
    let ttl = async || {
        ask::<i64>(&scene.t1, "remainTimeToLive", json!([]))
            .value()
            .await
    };
    assert_eq!(ttl().await, -1);
    scene.redis.cmd(&["DEL", NAME]).await;
    assert_eq!(ttl().await, -2);
    let long = Duration::from_secs(100);
    assert!(scene.seats.try_set_permits_for(3, long).await.unwrap());
    let is_long = |ms: i64| (10_000..=100_000).contains(&ms);
    let one = scene.seats.acquire().await.unwrap();
    ask::<()>(&scene.t1, "acquire", json!([])).value().await;
    assert!(is_long(ttl().await));
    ask::<()>(&scene.t1, "release", json!([])).value().await;
    scene.seats.add_permits(1).await.unwrap();
    one.release().await.unwrap();
    assert!(is_long(ttl().await));
    assert_eq!(scene.available().await, [4, 4]);
    // Java lets it expire while each side holds a permit.
    let ours = scene.seats.acquire().await.unwrap();
    ask::<()>(&scene.t1, "acquire", json!([])).value().await;
    let short = ask::<bool>(&scene.t1, "expire", json!([{ "ms": 5_000 }]));
    assert!(short.value().await);
    assert_eq!(scene.available().await, [2, 2]);
    scene.redis.eventually_gone(NAME).await;
    assert_eq!(scene.available().await, [0, 0]);
    ours.release().await.unwrap();
    assert!(!scene.redis.exists(NAME).await);
    // Java releases its permit by number, which creates the semaphore again, without a TTL.
    ask::<()>(&scene.t1, "release", json!([])).value().await;
    assert_eq!((scene.available().await, ttl().await), ([1, 1], -1));
    let expires = ask::<bool>(&scene.t1, "expire", json!([{ "ms": 100_000 }]));
    assert!(expires.value().await);
    let one = scene.seats.acquire().await.unwrap();
    assert!(is_long(ttl().await));
    let cleared = ask::<bool>(&scene.t1, "clearExpire", json!([]));
    assert!(cleared.value().await);
    one.release().await.unwrap();
    assert_eq!((scene.available().await, ttl().await), ([1, 1], -1));
}

/// One message for several permits wakes several waiters of each side.
#[tokio::test]
async fn a_release_of_several_serves_all_waiters_of_the_other_side() {
    let scene = Scene::of(3).await;
    ask::<()>(&scene.t1, "acquire", json!([{ "int": 3 }]))
        .value()
        .await;
    let waiting: Vec<_> = (0..3)
        .map(|_| tokio::spawn(scene.seats.acquire().into_future()))
        .collect();
    scene.somebody_waits().await;
    ask::<()>(&scene.t1, "release", json!([{ "int": 3 }]))
        .value()
        .await;
    let mut all = Vec::new();
    for waiter in waiting {
        let permit = tokio::time::timeout(SAFETY, waiter).await;
        all.push(permit.expect("it is served").unwrap().unwrap());
    }
    let mut first = all.remove(0);
    for permit in all {
        first.merge(permit).unwrap();
    }
    let waiting = ask::<()>(&scene.t1, "acquire", json!([{ "int": 3 }]));
    scene.somebody_waits().await;
    first.release().await.unwrap();
    let acquired = tokio::time::timeout(SAFETY, waiting.value()).await;
    acquired.expect("Java is served");
    assert_eq!(scene.available().await, [0, 0]);
}

/// SE1 with four clients of each side: the total is kept, and no permit is used twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_together_keep_the_total() {
    let scene = Scene::of(TOTAL).await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        let client = ours_at(&scene.server).build().await.unwrap();
        clients.push((client, java_at(&scene.server).start().await));
    }
    let lasts = seconds_of_contention();
    let until = Instant::now() + lasts;
    let in_use = PermitsInUse::of(TOTAL);
    let mut tasks = JoinSet::new();
    for (n, (client, java)) in (0..).zip(clients) {
        let permits = 1 + n % 3;
        let (seats, held) = (client.semaphore(NAME), in_use.clone());
        tasks.spawn(async move {
            let mut rounds = 0;
            // Each client has its rounds, however slow the machine is.
            while rounds < ROUNDS || Instant::now() < until {
                let permit = seats.acquire_many(permits).await.unwrap();
                held.enter(permits);
                tokio::time::sleep(Duration::from_millis(2)).await;
                held.leave(permits);
                match rounds % 3 {
                    0 => permit.release().await.unwrap(),
                    1 => drop(permit),
                    _ => {
                        permit.forget();
                        seats.release(permits).await.unwrap();
                    }
                }
                rounds += 1;
            }
            client.shutdown().await;
            ("lockdog", rounds)
        });
        let held = in_use.clone();
        tasks.spawn(async move {
            let thread = java.thread("t");
            let mut rounds = 0;
            while rounds < ROUNDS || Instant::now() < until {
                let count = json!([{ "int": permits }]);
                ask::<()>(&thread, "acquire", count.clone()).value().await;
                held.enter(permits);
                tokio::time::sleep(Duration::from_millis(2)).await;
                held.leave(permits);
                ask::<()>(&thread, "release", count).value().await;
                rounds += 1;
            }
            ("Redisson", rounds)
        });
    }
    let mut rounds = std::collections::BTreeMap::new();
    while let Some(done) = tasks.join_next().await {
        let (side, count) = done.unwrap();
        *rounds.entry(side).or_insert(0) += count;
    }
    let most = in_use.most();
    println!("{rounds:?} rounds in {lasts:?}, at most {most} of {TOTAL} permits were used");
    assert!(rounds.values().all(|count| *count >= 4 * ROUNDS));
    assert_eq!(scene.available().await, [i64::from(TOTAL); 2]);
    assert!(scene.seats.holders().await.unwrap().is_empty());
    drop(scene.java);
}

const TOTAL: u32 = 5;
const ROUNDS: u32 = 2;
const NAME: &str = "seats";
const CHANNEL: &str = "redisson_sc:{seats}";
