//! A release on one side wakes the waiters of the other by its message: every timer is a minute long.

use std::time::SystemTime;

use lockdog::{Lock, Owner, Unlocked};

use super::{
    NEVER, SAFETY, a_waiter_listens, assert_woken, holder, java_at, waiter, without_timers,
};
use crate::support::RedisServer;
use crate::support::redis::Redis;
use crate::support::redisson::{JavaThread, PendingCall, Redisson};

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
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
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

/// Our lock, and a Java thread that will wait for it.
struct Scene {
    server: RedisServer,
    redis: Redis,
    java: Redisson,
    client: lockdog::Client,
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
        // The time after which Java would look again of its own accord.
        assert!(self.redis.pttl("orders").await > 30_000);
        waiting
    }

    async fn java_was_woken(self, waiting: PendingCall<()>, released: SystemTime) {
        let locked = tokio::time::timeout(SAFETY, waiting.answer()).await;
        let locked = locked.expect("Java is woken at all");
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
