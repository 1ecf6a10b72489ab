//! The message of a release wakes the waiters of the other side. No timer fires during a test.

use std::future::IntoFuture;
use std::time::{Duration, SystemTime};

use lockdog::{Client, Lock, Owner, Unlocked};

use super::{
    NEVER, SAFETY, a_waiter_listens, assert_woken, has_every_kind, holder, is_empty, java_at,
    ours_at, waiter, without_timers,
};
use crate::kinds::{FAIR, FENCED, Kind, NON_REENTRANT, NON_REENTRANT_FAIR, PLAIN};
use crate::support::redis::Redis;
use crate::support::redisson::{JavaThread, PendingCall, Redisson};
use crate::support::{RedisServer, eventually};

#[tokio::test]
async fn a_java_unlock_wakes_a_lockdog_waiter() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let java = java_at(&server).start().await;
    let t1 = java.thread("t1");
    let client = without_timers(&server).build().await.unwrap();
    t1.lock_for("orders", NEVER).await;

    let waiting = waiter(&client.lock("orders"));
    a_waiter_listens(&redis, "orders").await;
    assert!(!waiting.is_finished());
    assert!(redis.pttl("orders").await > 30_000);
    let unlocked = t1.start_unlock("orders").answer().await;
    unlocked.result.unwrap();
    let (guard, at) = waiting.await.unwrap();

    assert_woken("our waiter", unlocked.at - unlocked.took, at);
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    redis.assert_clean().await;
}

#[tokio::test]
async fn a_java_force_unlock_wakes_a_lockdog_waiter() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let java = java_at(&server).start().await;
    let client = without_timers(&server).build().await.unwrap();
    java.thread("t1").lock_for("orders", NEVER).await;

    let waiting = waiter(&client.lock("orders"));
    a_waiter_listens(&redis, "orders").await;
    assert!(!waiting.is_finished());
    let forced = SystemTime::now();
    assert!(java.thread("t2").force_unlock("orders").await);
    let (guard, at) = waiting.await.unwrap();

    assert_woken("our waiter", forced, at);
    guard.unlock().await.unwrap();
    redis.assert_clean().await;
}

#[tokio::test]
async fn a_lockdog_unlock_wakes_a_java_waiter() {
    let scene = Scene::new().await;
    let guard = scene.lock.lock().await.unwrap();
    let waiting = scene.java_waits().await;

    let released = SystemTime::now();
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);

    scene.java_was_woken(waiting, released).await;
}

#[tokio::test]
async fn a_lockdog_unlock_of_a_fixed_lease_wakes_a_java_waiter() {
    let scene = Scene::new().await;
    let guard = scene.lock.lock().lease(NEVER).await.unwrap();
    let waiting = scene.java_waits().await;

    let released = SystemTime::now();
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);

    scene.java_was_woken(waiting, released).await;
}

#[tokio::test]
async fn a_dropped_guard_wakes_a_java_waiter() {
    let scene = Scene::new().await;
    let guard = scene.lock.lock().await.unwrap();
    let waiting = scene.java_waits().await;

    let released = SystemTime::now();
    drop(guard);

    scene.java_was_woken(waiting, released).await;
}

#[tokio::test]
async fn only_the_last_nested_unlock_wakes_a_java_waiter() {
    let scene = Scene::new().await;
    let owner = Owner::new();
    for _ in 0..2 {
        scene.lock.lock().owner(&owner).await.unwrap().forget();
    }
    let messages = scene.redis.messages("*").await;
    let waiting = scene.java_waits().await;

    let inner = scene.lock.unlock().owner(&owner).await.unwrap();
    assert_eq!(inner, Unlocked::StillHeld { count: 1 });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished());
    assert_eq!(messages.seen(), []);
    let released = SystemTime::now();
    let outer = scene.lock.unlock().owner(&owner).await.unwrap();
    assert_eq!(outer, Unlocked::Released);

    scene.java_was_woken(waiting, released).await;
}

#[tokio::test]
async fn a_lockdog_force_unlock_of_its_own_holder_wakes_a_java_waiter() {
    let scene = Scene::new().await;
    let guard = scene.lock.lock().await.unwrap();
    let waiting = scene.java_waits().await;

    let released = SystemTime::now();
    assert!(scene.lock.force_unlock().await.unwrap());

    scene.java_was_woken(waiting, released).await;
    assert!(!guard.is_valid());
}

#[tokio::test]
async fn a_lockdog_shutdown_wakes_a_java_waiter() {
    let scene = Scene::new().await;
    let guard = scene.lock.lock().await.unwrap();
    let waiting = scene.java_waits().await;

    let released = SystemTime::now();
    assert_eq!(scene.client.shutdown().await.released, 1);

    scene.java_was_woken(waiting, released).await;
    assert!(!guard.is_valid());
}

/// Java waits for the TTL that it read, here ten minutes, or for the time of its place in a fair lock's
/// queue.
#[tokio::test]
async fn java_waits_for_the_rest_of_a_least_time_and_no_longer() {
    let server = RedisServer::start().await;
    let java = java_at(&server).start().await;
    let client = without_timers(&server).build().await.unwrap();
    let kinds = [&PLAIN, &NON_REENTRANT, &FENCED, &FAIR, &NON_REENTRANT_FAIR];
    let kinds = if has_every_kind() {
        &kinds[..]
    } else {
        &kinds[..1]
    };
    let waits = kinds.iter();
    let waits = waits.map(|kind| java_waits_for_the_rest(kind, &client, &java));
    futures_util::future::join_all(waits).await;
    // Java's client may still delete what its unlock left.
    let redis = server.redis().await;
    eventually(SAFETY, "no key is left", async || is_empty(&redis).await).await;
}

async fn java_waits_for_the_rest(kind: &Kind, client: &Client, java: &Redisson) {
    // On a busy machine Java may be late, so that the shortest wait is over before the unlock.
    for attempt in 1..=ATTEMPTS {
        let least = LEAST * attempt;
        let name = format!("{} {attempt}", kind.java);
        let threads = ["first", "second"].map(|thread| java.thread(&format!("{name} {thread}")));
        let acquired = SystemTime::now();
        let request = kind.lock(client, &name).lock().owner(&Owner::new());
        let guard = request.hold_at_least(least).await.unwrap();
        let mut waiting = Vec::new();
        for thread in &threads {
            waiting.push(thread.start_lock_for(kind.java_lock(&name), NEVER));
            thread.waits_for_message().await;
        }
        let unlocked = guard.unlock().await.unwrap();
        // In either order: both wake when the remaining time is over.
        let each = threads.iter().zip(waiting).map(async |(thread, waiting)| {
            let locked = tokio::time::timeout(SAFETY, waiting.answer()).await;
            let locked = locked.unwrap_or_else(|_| panic!("{name}: Java waits for longer"));
            locked.result.unwrap();
            let waited = locked.at.duration_since(acquired).unwrap_or_default();
            assert!(waited >= least, "{name}: {waited:?}");
            thread.unlock(kind.java_lock(&name)).await.unwrap();
        });
        futures_util::future::join_all(each).await;
        if matches!(unlocked, Unlocked::Kept { .. }) {
            return;
        }
    }
    panic!("{kind:?}: Java is late each time");
}

/// Its place is valid after that of the waiter before it.
#[tokio::test]
async fn java_behind_a_lockdog_waiter_of_a_fair_lock_waits_for_the_rest_of_a_least_time_only() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let java = java_at(&server).start().await;
    let client = without_timers(&server).build().await.unwrap();
    let lock = client.fair_lock("orders");
    let holder = lock.lock().owner(&Owner::new()).await.unwrap();
    let request = lock.lock().owner(&Owner::new()).hold_at_least(LEAST);
    let ours = tokio::spawn(request.into_future());
    eventually(SAFETY, "ours is in the queue", async || {
        let waiting: i64 = redis.ask(&["LLEN", "redisson_lock_queue:{orders}"]).await;
        waiting == 1
    })
    .await;
    let thread = java.thread("t1");
    let waiting = thread.start_lock_for(FAIR.java_lock("orders"), NEVER);
    thread.waits_for_message().await;
    let acquired = SystemTime::now();
    holder.unlock().await.unwrap();
    let guard = ours.await.unwrap().unwrap();
    guard.unlock().await.unwrap();
    let locked = tokio::time::timeout(SAFETY, waiting.answer()).await;
    let locked = locked.expect("Java does not wait for longer");
    locked.result.unwrap();
    let waited = locked.at.duration_since(acquired).unwrap_or_default();
    assert!(waited >= LEAST, "{waited:?}");
    thread.unlock(FAIR.java_lock("orders")).await.unwrap();
    redis.assert_clean().await;
}

/// The wait ends at its own limit, although a message makes it query again before.
#[tokio::test]
async fn a_java_wait_with_a_limit_ends_at_it_while_a_lock_stays_for_its_least_time() {
    let scene = Scene::new().await;
    let request = scene.lock.lock().hold_at_least(NEVER / 2);
    let guard = request.await.unwrap();
    let limit = Duration::from_secs(8);
    let messages = scene.redis.messages("*").await;
    let waiting = scene.waiter.start_try_lock_for("orders", limit, None);
    a_waiter_listens(&scene.redis, "orders").await;
    let unlocked = guard.unlock().await.unwrap();
    assert!(matches!(unlocked, Unlocked::Kept { .. }));
    let waited = waiting.answer().await;
    assert!(!waited.result.unwrap());
    // Java counts in milliseconds.
    let least = limit - Duration::from_millis(100);
    assert!(waited.took >= least, "{:?}", waited.took);
    eventually(
        SAFETY,
        "messages said that the time is shorter",
        async || messages.seen().len() == 2,
    )
    .await;
    assert!(scene.java.thread("t2").force_unlock("orders").await);
}

/// The first thread gives up before the remaining time is over. The second has read the earlier TTL.
#[tokio::test]
async fn each_java_thread_of_a_client_learns_that_a_lock_stays_for_its_least_time_only() {
    let scene = Scene::new().await;
    // A thread that is not notified waits that long.
    let client = ours_at(&scene.server).watchdog_lease(SAFETY * 2);
    let client = client.build().await.unwrap();
    let lock = client.lock("orders");
    let mut unnotified = 0;
    for attempt in 1..=ATTEMPTS {
        let request = lock.lock().owner(&Owner::new());
        let guard = request.hold_at_least(LEAST * 2 * attempt).await.unwrap();
        let threads = ["first", "second"].map(|it| scene.java.thread(&format!("{it} {attempt}")));
        let [first, second] = &threads;
        let limited = first.start_try_lock_for("orders", LEAST, None);
        first.waits_for_message().await;
        let waiting = second.start_lock_for(PLAIN.java_lock("orders"), NEVER);
        second.waits_for_message().await;
        let ended = SystemTime::now();
        let unlocked = guard.unlock().await.unwrap();
        let gave_up = !limited.answer().await.result.unwrap();
        if !gave_up {
            first.unlock("orders").await.unwrap();
        }
        let locked = tokio::time::timeout(SAFETY * 3, waiting.answer()).await;
        let locked = locked.expect("the TTL that the second thread has read ends its wait");
        locked.result.unwrap();
        second.unlock("orders").await.unwrap();
        let is_notified = locked.at.duration_since(ended).unwrap_or_default() < SAFETY;
        // On a busy machine Java may be late. And a thread of Java that wakes and sleeps again may take the
        // wake-up of another one that has had no processor yet.
        if is_notified && gave_up && matches!(unlocked, Unlocked::Kept { .. }) {
            return;
        }
        unnotified += u32::from(!is_notified);
        assert!(
            unnotified < 3,
            "the second thread waits for the TTL that it has read"
        );
    }
    panic!("Java is late each time");
}

const LEAST: Duration = Duration::from_secs(2);
const ATTEMPTS: u32 = 10;

/// Our lock, and a Java thread that is about to wait for it.
struct Scene {
    server: RedisServer,
    redis: Redis,
    java: Redisson,
    client: Client,
    lock: Lock,
    waiter: JavaThread,
}

impl Scene {
    async fn new() -> Self {
        let server = RedisServer::start().await;
        let client = without_timers(&server).build().await.unwrap();
        let java = java_at(&server).start().await;
        Self {
            redis: server.redis().await,
            lock: client.lock("orders"),
            waiter: java.thread("t1"),
            server,
            java,
            client,
        }
    }

    async fn java_waits(&self) -> PendingCall<()> {
        let waiting = self.waiter.start_lock_for("orders", NEVER);
        a_waiter_listens(&self.redis, "orders").await;
        assert!(!waiting.is_finished());
        // The time after which Java would query again without a message.
        assert!(self.redis.pttl("orders").await > 30_000);
        waiting
    }

    async fn java_was_woken(self, waiting: PendingCall<()>, released: SystemTime) {
        let locked = tokio::time::timeout(SAFETY, waiting.answer()).await;
        let locked = locked.expect("a message wakes Java");
        locked.result.unwrap();
        assert_woken("Java", released, locked.at);
        let field = self.waiter.field().await;
        assert_eq!(
            holder(&self.redis, "orders").await,
            Some((field, "1".to_owned()))
        );
        self.waiter.unlock("orders").await.unwrap();
        self.redis.assert_clean().await;
        drop((self.java, self.server));
    }
}
