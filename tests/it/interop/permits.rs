//! A semaphore with leases that both sides use. PE1 to PE5 are invariants of `docs/design.md`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lockdog::report::Ttl;
use lockdog::{PermitId, PermitSemaphore};
use serde_json::json;
use tokio::task::JoinSet;

use super::{NEVER, PermitsInUse, SAFETY, java_at, ours_at, seconds_of_contention, without_timers};
use crate::support::redis::Redis;
use crate::support::redisson::{JavaThread, Redisson};
use crate::support::{RedisServer, eventually};

struct Scene {
    redis: Redis,
    _java: Redisson,
    t1: JavaThread,
    seats: PermitSemaphore,
    server: RedisServer,
}

impl Scene {
    async fn of(permits: u32) -> Self {
        let server = RedisServer::start().await;
        let java = java_at(&server).start().await;
        let client = without_timers(&server).build().await.unwrap();
        let seats = client.permit_semaphore(NAME);
        seats.set_permits(permits).await.unwrap();
        Self {
            redis: server.redis().await,
            t1: java.thread("t1"),
            _java: java,
            seats,
            server,
        }
    }

    async fn a_waiter_listens(&self) {
        eventually(SAFETY, "a waiter listens", async || {
            self.redis.channels().await.contains(&CHANNEL.to_owned())
        })
        .await;
        tokio::time::sleep(Duration::from_millis(150)).await;
    }

    /// The permits that are available, acquired, and both, according to Java.
    async fn counted_by_java(&self) -> [i64; 3] {
        let mut counts = [0; 3];
        let methods = ["availablePermits", "acquiredPermits", "getPermits"];
        for (count, method) in counts.iter_mut().zip(methods) {
            *count = self.t1.start_permits(NAME, method, json!([])).value().await;
        }
        counts
    }

    async fn counted_by_us(&self) -> [i64; 3] {
        let acquired = self.seats.acquired().await.unwrap();
        [
            self.seats.available().await.unwrap(),
            i64::from(acquired),
            self.seats.permits().await.unwrap(),
        ]
    }
}

/// PE1: each side sees the permits that the other takes.
#[tokio::test]
async fn each_side_counts_and_releases_the_permits_of_the_other() {
    let scene = Scene::of(5).await;
    let theirs = scene
        .t1
        .start_permits::<Vec<String>>(NAME, "acquire", json!([{ "int": 2 }]));
    let theirs = theirs.value().await;
    let ours = scene.seats.acquire_many(2).await.unwrap();
    assert_eq!(scene.counted_by_java().await, [1, 4, 5]);
    assert_eq!(scene.counted_by_us().await, [1, 4, 5]);

    let ids: Vec<PermitId> = theirs.iter().map(|id| id.parse().unwrap()).collect();
    // Redisson's permit without a lease never ends, and ours has the watchdog's lease.
    assert_eq!(
        scene.seats.lease_of(&ids[0]).await.unwrap(),
        Some(Ttl::Persistent)
    );
    let our_ids: Vec<String> = ours.ids().iter().map(ToString::to_string).collect();
    let left = scene
        .t1
        .start_permits::<i64>(NAME, "getLeaseTime", json!([{ "id": our_ids[0] }]));
    let left = left.value().await;
    assert!((1..=NEVER.as_millis() as i64).contains(&left), "{left}");

    assert!(scene.seats.update_lease(&ids[0], NEVER).await.unwrap());
    scene.seats.release(&ids).await.unwrap();
    let again = scene
        .t1
        .start_permits::<bool>(NAME, "tryRelease", json!([{ "id": theirs[0] }]));
    assert!(!again.value().await);

    let ours = ours.into_ids();
    let args = json!([{ "id": our_ids[0] }, { "ms": 90_000 }]);
    let updated = scene
        .t1
        .start_permits::<bool>(NAME, "updateLeaseTime", args);
    assert!(updated.value().await);
    let Some(Ttl::Expires(left)) = scene.seats.lease_of(&ours[0]).await.unwrap() else {
        panic!("Java set a lease")
    };
    assert!(left > Duration::from_secs(60), "{left:?}");
    scene
        .t1
        .start_permits::<()>(NAME, "release", json!([{ "ids": our_ids }]))
        .value()
        .await;
    assert!(!scene.seats.try_release(&ours).await.unwrap());
    assert_eq!(scene.counted_by_java().await, [5, 0, 5]);
    assert_eq!(scene.counted_by_us().await, [5, 0, 5]);
    assert_eq!(scene.redis.unmarked_keys().await, [NAME]);
}

/// Redisson's message for the release of a list contains the number released, ours the number available.
#[tokio::test]
async fn a_list_release_serves_the_waiters_of_the_other_side() {
    let scene = Scene::of(3).await;
    let theirs = scene
        .t1
        .start_permits::<Vec<String>>(NAME, "acquire", json!([{ "int": 3 }]));
    let theirs = theirs.value().await;
    let waiting: Vec<_> = (0..3)
        .map(|_| tokio::spawn(scene.seats.acquire().lease(NEVER).into_future()))
        .collect();
    scene.a_waiter_listens().await;
    scene
        .t1
        .start_permits::<()>(NAME, "release", json!([{ "ids": theirs }]))
        .value()
        .await;
    let mut ids = Vec::new();
    for waiter in waiting {
        let permit = tokio::time::timeout(SAFETY, waiter)
            .await
            .expect("it is served");
        ids.extend(permit.unwrap().unwrap().into_ids());
    }
    let waiting = scene
        .t1
        .start_permits::<Vec<String>>(NAME, "acquire", json!([{ "int": 3 }]));
    scene.a_waiter_listens().await;
    scene.seats.release(&ids).await.unwrap();
    let acquired = tokio::time::timeout(SAFETY, waiting.value()).await;
    assert_eq!(acquired.expect("Java is served").len(), 3);
}

/// Each side sees the numbers of permits that the other sets.
#[tokio::test]
async fn each_side_sets_the_number_of_permits() {
    let scene = Scene::of(2).await;
    let set = |method, permits| {
        scene
            .t1
            .start_permits::<()>(NAME, method, json!([{ "int": permits }]))
    };
    let two = scene.seats.acquire_many(2).await.unwrap();
    set("setPermits", 5).value().await;
    assert_eq!(scene.counted_by_us().await, [3, 2, 5]);
    scene.seats.set_permits(1).await.unwrap();
    assert_eq!(scene.counted_by_java().await, [-1, 2, 1]);
    set("addPermits", 4).value().await;
    scene.seats.add_permits(1).await.unwrap();
    assert_eq!(scene.counted_by_us().await, [4, 2, 6]);
    assert_eq!(scene.counted_by_java().await, [4, 2, 6]);
    assert!(!scene.seats.try_set_permits(9).await.unwrap());
    let tried = scene
        .t1
        .start_permits::<bool>(NAME, "trySetPermits", json!([{ "int": 9 }]));
    assert!(!tried.value().await);
    two.release().await.unwrap();
}

/// PE1 and PE2 with four clients of each side: the total is kept, and no permit is used twice.
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
        let (seats, held) = (client.permit_semaphore(NAME), in_use.clone());
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
                    _ => seats.release(&permit.into_ids()).await.unwrap(),
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
                let ids = thread.start_permits::<Vec<String>>(NAME, "acquire", count);
                let ids = ids.value().await;
                held.enter(permits);
                tokio::time::sleep(Duration::from_millis(2)).await;
                held.leave(permits);
                let ids = json!([{ "ids": ids }]);
                thread
                    .start_permits::<()>(NAME, "release", ids)
                    .value()
                    .await;
                rounds += 1;
            }
            ("Redisson", rounds)
        });
    }
    let mut rounds = BTreeMap::new();
    while let Some(done) = tasks.join_next().await {
        let (side, count) = done.unwrap();
        *rounds.entry(side).or_insert(0) += count;
    }
    let most = in_use.most();
    println!("{rounds:?} rounds in {lasts:?}, at most {most} of {TOTAL} permits were used");
    assert!(rounds.values().all(|count| *count >= 4 * ROUNDS));
    let total = i64::from(TOTAL);
    assert_eq!(scene.counted_by_java().await, [total, 0, total]);
    assert_eq!(scene.counted_by_us().await, [total, 0, total]);
    assert_eq!(scene.redis.unmarked_keys().await, [NAME]);
}

const TOTAL: u32 = 5;
const ROUNDS: u32 = 2;
const NAME: &str = "seats";
const CHANNEL: &str = "redisson_sc:{seats}";
