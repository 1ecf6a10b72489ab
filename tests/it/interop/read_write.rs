//! A read/write lock that both sides hold.

use std::time::{Duration, SystemTime};

use lockdog::{Owner, ReadWriteLock};

use super::{NEVER, SAFETY, assert_woken, java_at, waiter, without_timers};
use crate::support::redis::Redis;
use crate::support::redisson::{JavaLock, Redisson};
use crate::support::{RedisServer, eventually};

/// Both sides of one lock.
struct Scene {
    _server: RedisServer,
    redis: Redis,
    java: Redisson,
    ours: ReadWriteLock,
    java_reads: JavaLock,
    java_writes: JavaLock,
}

impl Scene {
    async fn new() -> Self {
        let server = RedisServer::start().await;
        let client = without_timers(&server).build().await.unwrap();
        Self {
            redis: server.redis().await,
            java: java_at(&server).start().await,
            ours: client.read_write_lock(NAME),
            _server: server,
            java_reads: JavaLock::from_getter("getReadWriteLock.readLock", NAME),
            java_writes: JavaLock::from_getter("getReadWriteLock.writeLock", NAME),
        }
    }

    async fn somebody_waits(&self) {
        eventually(SAFETY, "somebody listens", async || {
            self.redis.channels().await.contains(&CHANNEL.to_owned())
        })
        .await;
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
}

#[tokio::test]
async fn each_side_excludes_the_other_and_shares_reads_with_it() {
    let scene = Scene::new().await;
    let (t1, t2) = (scene.java.thread("t1"), scene.java.thread("t2"));
    let (reads, writes) = (&scene.java_reads, &scene.java_writes);
    let ours = scene.ours.read().lock().await.unwrap();
    t1.lock(reads).await;
    assert!(!t2.try_lock(writes).await);
    assert!(
        scene
            .ours
            .write()
            .try_lock()
            .owner(&Owner::new())
            .await
            .unwrap()
            .is_none()
    );
    ours.unlock().await.unwrap();
    assert!(!t2.try_lock(writes).await);
    t1.unlock(reads).await.unwrap();
    let ours = scene.ours.write().lock().await.unwrap();
    assert!(!t1.try_lock(reads).await && !t2.try_lock(writes).await);
    ours.unlock().await.unwrap();
    t1.lock(writes).await;
    assert!(scene.ours.read().try_lock().await.unwrap().is_none());
    assert!(scene.ours.write().try_lock().await.unwrap().is_none());
    t1.unlock(writes).await.unwrap();
    scene.redis.assert_clean().await;
}

/// The other's holds as each side sees them.
#[tokio::test]
async fn counts_modes_and_ttls_are_read_by_the_other_side() {
    let scene = Scene::new().await;
    let t1 = scene.java.thread("t1");
    let (reads, writes) = (&scene.java_reads, &scene.java_writes);
    for _ in 0..2 {
        t1.lock_for(reads, NEVER).await;
    }
    let holders = scene.ours.holders().await.unwrap();
    let [java] = &holders[..] else {
        panic!("{holders:?}");
    };
    assert_eq!(
        (java.count, java.is_lockdog(), java.is_write()),
        (2, false, false)
    );
    assert!(scene.ours.read().is_locked().await.unwrap());
    assert!(!scene.ours.write().is_locked().await.unwrap());
    assert!(scene.ours.read().remaining_ttl().await.unwrap().is_some());
    let ours = scene.ours.read().lock().lease(NEVER * 2).await.unwrap();
    // Redisson's unlocks do not shorten our holds, and count our timeout key.
    for _ in 0..2 {
        t1.unlock(reads).await.unwrap();
    }
    let ttl = scene.redis.pttl(NAME).await;
    assert!(ttl > 90_000, "{ttl}");
    assert!(t1.is_locked(reads).await && !t1.is_locked(writes).await);
    assert!(t1.remaining_ttl_ms(reads).await > 90_000);
    assert!(t1.unlock(reads).await.unwrap_err().is_not_owner());
    ours.unlock().await.unwrap();
    let ours = scene.ours.write().lock().await.unwrap();
    assert!(t1.is_locked(writes).await && !t1.is_held(writes).await);
    assert_eq!(t1.hold_count(writes).await, 0);
    // Each side frees the other's lock by force, in one mode.
    assert!(!t1.force_unlock(reads).await && t1.force_unlock(writes).await);
    assert!(ours.unlock().await.unwrap_err().is_lost());
    for _ in 0..2 {
        t1.lock(reads).await;
    }
    assert!(!scene.ours.write().force_unlock().await.unwrap());
    assert!(scene.ours.read().force_unlock().await.unwrap());
    assert!(!t1.is_held(reads).await);
    scene.redis.eventually_empty().await;
}

/// Our downgrade publishes `1`, so Redisson's readers wake up. Redisson's own downgrade does not.
#[tokio::test]
async fn a_lockdog_downgrade_wakes_java_readers() {
    let scene = Scene::new().await;
    let (t1, t2) = (scene.java.thread("t1"), scene.java.thread("t2"));
    let guard = scene.ours.write().lock().lease(NEVER).await.unwrap();
    let waiting = [
        t1.start_lock(&scene.java_reads),
        t2.start_lock(&scene.java_reads),
    ];
    for thread in [&t1, &t2] {
        thread.waits_for_message().await;
    }
    let downgraded = SystemTime::now();
    let guard = guard.downgrade().await.unwrap();
    for waiting in waiting {
        let locked = tokio::time::timeout(SAFETY, waiting.answer()).await;
        assert_woken("Java", downgraded, locked.expect("Java is woken").at);
    }
    for thread in [&t1, &t2] {
        thread.unlock(&scene.java_reads).await.unwrap();
    }
    guard.unlock().await.unwrap();
    scene.redis.assert_clean().await;
}

/// A writer waits for the last reader, and the readers behind the writer acquire together.
#[tokio::test]
async fn a_lockdog_writer_takes_its_turn_between_java_readers() {
    let scene = Scene::new().await;
    let threads: Vec<_> = (0..4)
        .map(|n| scene.java.thread(&format!("t{n}")))
        .collect();
    let (before, behind) = threads.split_at(2);
    for reader in before {
        reader.lock_for(&scene.java_reads, NEVER).await;
    }
    let writing = waiter(&scene.ours.write().into());
    scene.somebody_waits().await;
    before[0].unlock(&scene.java_reads).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!writing.is_finished(), "one still reads");
    before[1].unlock(&scene.java_reads).await.unwrap();
    let (guard, _) = tokio::time::timeout(SAFETY, writing)
        .await
        .expect("no one reads")
        .unwrap();
    let reading: Vec<_> = behind
        .iter()
        .map(|reader| reader.start_lock(&scene.java_reads))
        .collect();
    for reader in behind {
        reader.waits_for_message().await;
    }
    assert!(reading.iter().all(|call| !call.is_finished()));
    guard.unlock().await.unwrap();
    for call in reading {
        let entered = tokio::time::timeout(SAFETY, call.answer()).await;
        entered.expect("no one writes").result.unwrap();
    }
    let holders = scene.ours.holders().await.unwrap();
    assert_eq!(holders.len(), 2, "both read at a time");
    for reader in behind {
        reader.unlock(&scene.java_reads).await.unwrap();
    }
    scene.redis.assert_clean().await;
}

#[tokio::test]
async fn a_java_writer_takes_its_turn_between_lockdog_readers() {
    let scene = Scene::new().await;
    let t1 = scene.java.thread("t1");
    let read = || scene.ours.read().lock().owner(&Owner::new()).lease(NEVER);
    let (first, second) = (read().await.unwrap(), read().await.unwrap());
    let writing = t1.start_lock_for(&scene.java_writes, NEVER);
    t1.waits_for_message().await;
    first.unlock().await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!writing.is_finished(), "one still reads");
    second.unlock().await.unwrap();
    let entered = tokio::time::timeout(SAFETY, writing.answer()).await;
    entered.expect("no one reads").result.unwrap();
    let reading = [
        waiter(&scene.ours.read().into()),
        waiter(&scene.ours.read().into()),
    ];
    scene.somebody_waits().await;
    assert!(reading.iter().all(|waiting| !waiting.is_finished()));
    t1.unlock(&scene.java_writes).await.unwrap();
    let mut guards = Vec::new();
    for waiting in reading {
        let entered = tokio::time::timeout(SAFETY, waiting).await;
        guards.push(entered.expect("no one writes").unwrap().0);
    }
    let holders = scene.ours.holders().await.unwrap();
    assert_eq!(holders.len(), 2, "both read at a time");
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    scene.redis.assert_clean().await;
}

const NAME: &str = "doc";
const CHANNEL: &str = "redisson_rwlock:{doc}";
