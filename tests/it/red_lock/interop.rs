//! Beside real `RedissonRedLock`s of the same three servers, in both directions.

use std::future::IntoFuture;
use std::time::{Duration, SystemTime};

use lockdog::{Client, RedLock, Unlocked};

use super::{SOON, Servers, lock_of, ms};
use crate::support::eventually;
use crate::support::redisson::{JavaLock, JavaThread, Redisson};

/// Three servers, our clients without timers, and Java's.
struct Scene {
    servers: Servers,
    clients: Vec<Client>,
    java: Redisson,
}

impl Scene {
    async fn start() -> Self {
        let servers = Servers::start(3).await;
        let clients = servers.clients_without_polling().await;
        let mut java = Redisson::builder(&servers.all[0].url());
        for server in &servers.all[1..] {
            java = java.server(&server.url());
        }
        Self {
            servers,
            clients,
            java: java.start().await,
        }
    }

    fn ours(&self) -> RedLock {
        lock_of(&self.clients, "l")
    }

    fn thread(&self) -> JavaThread {
        self.java.thread("t1")
    }

    async fn end(self) {
        drop(self.clients);
        drop(self.java);
        self.servers.assert_counts("l", [0, 0, 0]).await;
        self.servers.assert_clean().await;
    }
}

fn theirs() -> JavaLock {
    JavaLock::red([(0, "l"), (1, "l"), (2, "l")])
}

/// Catalogue, last list: 13.
#[tokio::test]
async fn a_java_unlock_wakes_our_waiter() {
    let scene = Scene::start().await;
    let (thread, ours) = (scene.thread(), scene.ours());
    thread.lock_for(theirs(), LONG).await;
    assert!(ours.try_lock().await.unwrap().is_none());
    let waiting = tokio::spawn(ours.lock().into_future());
    for view in &scene.servers.views {
        eventually(SOON, "it listens everywhere", async || {
            view.channels().await.len() == 1
        })
        .await;
    }
    tokio::time::sleep(ms(150)).await;
    assert!(!waiting.is_finished());
    thread.unlock(theirs()).await.unwrap();
    let guard = tokio::time::timeout(SOON * 3, waiting).await;
    let guard = guard.expect("it is woken").unwrap().unwrap();
    assert!(!thread.try_lock(theirs()).await);
    guard.unlock().await.unwrap();
    drop(ours);
    scene.end().await;
}

/// Catalogue, last list: 13.
#[tokio::test]
async fn our_unlock_wakes_a_java_waiter() {
    let scene = Scene::start().await;
    let (thread, ours) = (scene.thread(), scene.ours());
    let guard = ours.lock().await.unwrap();
    super::has(&guard, 3).await;
    assert!(!thread.try_lock(theirs()).await);
    let waiting = thread.start_try_lock_for(theirs(), ms(20_000), Some(LONG));
    tokio::time::sleep(ms(500)).await;
    assert!(!waiting.is_finished());
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    let released = SystemTime::now();
    let locked = tokio::time::timeout(SOON * 3, waiting.answer()).await;
    let locked = locked.expect("it is woken");
    assert!(locked.result.unwrap());
    let took = locked.at.duration_since(released).unwrap_or_default();
    assert!(took < ms(15_000), "{took:?}");
    assert!(ours.try_lock().await.unwrap().is_none());
    thread.unlock(theirs()).await.unwrap();
    drop(ours);
    scene.end().await;
}

/// What stands on each server is a plain lock of either side, with a count of one and a lease.
#[tokio::test]
async fn each_side_sees_the_others_instances_as_plain_locks() {
    let scene = Scene::start().await;
    let (thread, ours) = (scene.thread(), scene.ours());
    let guard = ours.lock().lease(LONG).await.unwrap();
    super::has(&guard, 3).await;
    scene.servers.assert_counts("l", [1, 1, 1]).await;
    assert!(thread.is_locked("l").await);
    assert!((1..=120_000).contains(&thread.remaining_ttl_ms("l").await));
    guard.unlock().await.unwrap();
    scene.servers.assert_counts("l", [0, 0, 0]).await;
    thread.lock_for(theirs(), LONG).await;
    for (server, client) in scene.clients.iter().enumerate() {
        let lock = client.lock("l");
        // Redisson stops at its quorum.
        if let Some(holder) = lock.holder().await.unwrap() {
            assert_eq!(holder.field, thread.field_on(server).await);
            assert_eq!((holder.count, holder.ours), (1, false));
        }
    }
    assert!(scene.servers.taken("l").await >= 2);
    thread.unlock(theirs()).await.unwrap();
    drop(ours);
    scene.end().await;
}

/// Catalogue, last list: 13. Both sides on a value that shows every lost update.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_lose_no_update() {
    let servers = Servers::start(3).await;
    let mut java = Redisson::builder(&servers.all[0].url());
    for server in &servers.all[1..] {
        java = java.server(&server.url());
    }
    let java = java.start().await;
    let redis = servers.views[0].clone();
    let pause = ms(1);
    let calls: Vec<_> = (0..2)
        .map(|n| {
            let thread = java.thread(&format!("t{n}"));
            thread.start_cell(theirs(), "cell", ROUNDS, pause)
        })
        .collect();
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let lock = servers.lock("l").await;
        let redis = redis.clone();
        tasks.push(tokio::spawn(async move {
            for _ in 0..ROUNDS {
                let guard = lock.lock().await.unwrap();
                let value: Option<u64> = redis.ask(&["GET", "cell"]).await;
                tokio::time::sleep(pause).await;
                let next = value.unwrap_or(0) + 1;
                redis.cmd(&["SET", "cell", &next.to_string()]).await;
                guard.unlock().await.unwrap();
            }
        }));
    }
    for task in tasks {
        let done = tokio::time::timeout(SOON * 6, task).await;
        done.expect("it gets in").unwrap();
    }
    for call in calls {
        let done = tokio::time::timeout(SOON * 6, call.value()).await;
        done.expect("it gets in");
    }
    let value: u32 = redis.ask(&["GET", "cell"]).await;
    assert_eq!(value, 4 * ROUNDS);
    redis.cmd(&["DEL", "cell"]).await;
    drop(java);
}

/// Shorter than `max_lease`, and longer than any test lasts.
const LONG: Duration = Duration::from_secs(100);
const ROUNDS: u32 = 15;
