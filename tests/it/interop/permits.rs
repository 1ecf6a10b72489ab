//! A semaphore with permits that both sides use. PE1 to PE5 are invariants of `docs/design.md`.

use std::time::{Duration, SystemTime};

use lockdog::error::LostReason;
use lockdog::report::Ttl;
use lockdog::{Client, PermitId, PermitSemaphore};
use serde_json::json;
use tokio::task::JoinSet;

use super::{NEVER, SAFETY, assert_woken, without_timers};
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
        let java = Redisson::start(&server.url()).await;
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

    /// What Java says is available, acquired, and both.
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
            i64::try_from(acquired).unwrap(),
            self.seats.permits().await.unwrap(),
        ]
    }
}

/// PE1: what one side takes, the other sees.
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
    assert!((1..=60_000).contains(&left), "{left}");

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

#[tokio::test]
async fn a_release_of_java_wakes_our_waiter_and_ours_wakes_java() {
    let scene = Scene::of(1).await;
    let held = scene
        .t1
        .start_permits::<String>(NAME, "acquire", json!([]))
        .value()
        .await;
    let request = scene.seats.acquire().lease(NEVER);
    let waiting = tokio::spawn(async move {
        let permit = request.await.expect("the server is there");
        (permit, SystemTime::now())
    });
    scene.a_waiter_listens().await;
    assert!(!waiting.is_finished());
    let released = scene
        .t1
        .start_permits::<()>(NAME, "release", json!([{ "id": held }]));
    let released = released.answer().await;
    released.result.unwrap();
    let (permit, at) = waiting.await.unwrap();
    assert_woken("our waiter", released.at - released.took, at);

    let waiting = scene.t1.start_permits::<String>(NAME, "acquire", json!([]));
    scene.a_waiter_listens().await;
    assert!(!waiting.is_finished());
    let released = SystemTime::now();
    permit.release().await.unwrap();
    let acquired = tokio::time::timeout(SAFETY, waiting.answer()).await;
    let acquired = acquired.expect("Java is woken at all");
    assert_woken("Java", released, acquired.at);
    acquired.result.unwrap();
    assert_eq!(scene.counted_by_us().await, [0, 1, 1]);
}

/// The message of a list release of Redisson is the number released, and ours the number that is free.
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

/// The numbers that one side sets are those of the other.
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

/// A crash of either side: permits with a lease come back, and Redisson's endless ones do not.
#[tokio::test]
async fn permits_of_a_dead_client_come_back_after_their_leases() {
    let server = RedisServer::start().await;
    let java = Redisson::builder(&server.url()).own_jvm().start().await;
    let client = Client::connect(server.url()).await.unwrap();
    let seats = client.permit_semaphore(NAME);
    seats.set_permits(3).await.unwrap();
    let t1 = java.thread("t1");
    let args = json!([{ "ms": 3_000 }]);
    t1.start_permits::<String>(NAME, "acquire", args)
        .value()
        .await;
    t1.start_permits::<String>(NAME, "acquire", json!([]))
        .value()
        .await;
    java.kill();
    // As after a crash of ours: the rest of the lease is left, and no client renews it.
    drop(
        seats
            .acquire()
            .lease(Duration::from_secs(3))
            .await
            .unwrap()
            .into_ids(),
    );
    assert_eq!(seats.available().await.unwrap(), 0);
    let two = tokio::time::timeout(SAFETY, seats.acquire_many(2).into_future()).await;
    // Kept: its drop would give the permits back before they are counted.
    let two = two.expect("they come back").unwrap();
    assert!(two.is_valid());
    assert_eq!(seats.acquired().await.unwrap(), 3);
}

/// PE2: four clients of each side never have more than there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_both_sides_use_one_permit_at_a_time() {
    let scene = Scene::of(1).await;
    let key = "cell";
    scene.redis.cmd(&["SET", key, "0"]).await;
    let url = scene.server.url();
    // Each round reads, pauses and writes, so that two holders at a time would lose a count.
    const ROUNDS: i64 = 8;
    let mut sides = JoinSet::new();
    for _ in 0..4 {
        let redis = scene.server.redis().await;
        let java = Redisson::start(&url).await;
        sides.spawn(async move {
            let t1 = java.thread("t1");
            for _ in 0..ROUNDS {
                let id = t1.start_permits::<String>(NAME, "acquire", json!([]));
                let id = id.value().await;
                bump(&redis, key).await;
                let release = json!([{ "id": id }]);
                t1.start_permits::<()>(NAME, "release", release)
                    .value()
                    .await;
            }
        });
        let redis = scene.server.redis().await;
        let client = Client::connect(&url).await.unwrap();
        sides.spawn(async move {
            let seats = client.permit_semaphore(NAME);
            for round in 0..ROUNDS {
                let permit = seats.acquire().await.unwrap();
                bump(&redis, key).await;
                match round % 2 {
                    0 => permit.release().await.unwrap(),
                    _ => drop(permit),
                }
            }
            client.shutdown().await;
        });
    }
    while let Some(side) = sides.join_next().await {
        side.expect("it finishes its rounds");
    }
    assert_eq!(scene.redis.ask::<i64>(&["GET", key]).await, 8 * ROUNDS);
    assert_eq!(scene.counted_by_java().await, [1, 0, 1]);
}

/// A limit of the wire: Redisson's clients compare leases with their own clock. One that is behind keeps
/// permits longer and takes none early; one that is ahead by more than the lease takes ours, and the next
/// renewal reports that.
#[tokio::test]
async fn a_java_clock_that_is_ahead_by_more_than_a_lease_takes_a_permit_and_its_holder_is_told() {
    let server = RedisServer::start().await;
    let (behind, ahead) = tokio::join!(
        Redisson::builder(&server.url()).clock(-60).start(),
        Redisson::builder(&server.url()).clock(60).start(),
    );
    let lease = Duration::from_secs(30);
    let client = Client::builder().url(server.url()).watchdog_lease(lease);
    let client = client.build().await.unwrap();
    let seats = client.permit_semaphore(NAME);
    seats.set_permits(1).await.unwrap();
    let ours = seats.acquire().await.unwrap();
    let (behind, ahead) = (behind.thread("t1"), ahead.thread("t1"));
    // Without a wait: the id of a permit, or nothing.
    let tried = behind.start_permits::<Option<String>>(NAME, "tryAcquire", json!([]));
    assert_eq!(tried.value().await, None);
    assert!(ours.is_valid());

    let taken = ahead.start_permits::<Option<String>>(NAME, "tryAcquire", json!([]));
    let taken = taken.value().await.expect("it takes ours for expired");
    let lost = tokio::time::timeout(lease, ours.lost()).await;
    let lost = lost.expect("the next renewal finds it");
    assert_eq!(lost.reason(), LostReason::NotOurs);
    // Nothing is given back twice: the permit is Java's.
    drop(ours);
    let release = json!([{ "id": taken }]);
    ahead
        .start_permits::<()>(NAME, "release", release)
        .value()
        .await;
    let all = seats.try_acquire().wait(SAFETY).await.unwrap();
    assert_eq!(all.expect("it is free").count(), 1);
    assert_eq!(seats.permits().await.unwrap(), 1);
}

async fn bump(redis: &Redis, key: &str) {
    let value: i64 = redis.ask(&["GET", key]).await;
    tokio::time::sleep(Duration::from_millis(3)).await;
    redis.cmd(&["SET", key, &(value + 1).to_string()]).await;
}

const NAME: &str = "seats";
const CHANNEL: &str = "redisson_sc:{seats}";
