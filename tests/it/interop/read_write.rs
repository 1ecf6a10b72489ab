//! A read/write lock that both sides hold. RW2 is an invariant of `docs/design.md`.

use std::time::{Duration, SystemTime};

use lockdog::{Client, Lock, Owner, ReadWriteLock};

use super::{NEVER, SAFETY, assert_woken, waiter, without_timers};
use crate::support::redis::Redis;
use crate::support::redisson::{JavaLock, Redisson};
use crate::support::{RedisServer, eventually};

/// Both sides of one lock.
struct Scene {
    server: RedisServer,
    redis: Redis,
    java: Redisson,
    client: Client,
    ours: ReadWriteLock,
    java_reads: JavaLock,
    java_writes: JavaLock,
}

impl Scene {
    async fn new() -> Self {
        Self::with_watchdog(None).await
    }

    async fn with_watchdog(lease: Option<Duration>) -> Self {
        let server = RedisServer::start().await;
        let java = Redisson::builder(&server.url());
        let (java, builder) = match lease {
            Some(lease) => (
                java.watchdog_timeout(lease).own_jvm(),
                Client::builder().url(server.url()).watchdog_lease(lease),
            ),
            None => (java, without_timers(&server)),
        };
        let client = builder.build().await.unwrap();
        Self {
            redis: server.redis().await,
            java: java.start().await,
            ours: client.read_write_lock(NAME),
            client,
            server,
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

/// What each side says of the other's holds.
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
    // Redisson shortens nothing of ours at its unlocks, and counts our timeout key.
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
    // Each side frees the other by force, in one mode.
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

#[tokio::test]
async fn the_end_of_a_hold_wakes_the_other_sides_waiters() {
    let scene = Scene::new().await;
    let (t1, t2) = (scene.java.thread("t1"), scene.java.thread("t2"));
    let (reads, writes) = (&scene.java_reads, &scene.java_writes);
    let ours: [Lock; 2] = [scene.ours.read().into(), scene.ours.write().into()];
    // Java's writer wakes ours in both modes, and its reader wakes our writer.
    for (java, waits_for) in [(writes, &ours[0]), (writes, &ours[1]), (reads, &ours[1])] {
        t1.lock_for(java, NEVER).await;
        let waiting = waiter(waits_for);
        scene.somebody_waits().await;
        let unlocked = t1.start_unlock(java).answer().await;
        unlocked.result.unwrap();
        let (guard, at) = waiting.await.unwrap();
        assert_woken("our waiter", unlocked.at - unlocked.took, at);
        guard.unlock().await.unwrap();
        scene.redis.eventually_empty().await;
    }
    // The same the other way.
    for (ours, java) in [(&ours[1], reads), (&ours[1], writes), (&ours[0], writes)] {
        let guard = ours.lock().lease(NEVER).await.unwrap();
        let waiting = t2.start_lock(java);
        scene.somebody_waits().await;
        let released = SystemTime::now();
        guard.unlock().await.unwrap();
        let locked = tokio::time::timeout(SAFETY, waiting.answer()).await;
        assert_woken("Java", released, locked.expect("Java is woken").at);
        t2.unlock(java).await.unwrap();
        scene.redis.eventually_empty().await;
    }
}

/// Our downgrade publishes `1`, so Redisson's readers come in; Redisson's own does not.
#[tokio::test]
async fn our_downgrade_wakes_java_readers() {
    let scene = Scene::new().await;
    let (t1, t2) = (scene.java.thread("t1"), scene.java.thread("t2"));
    let guard = scene.ours.write().lock().lease(NEVER).await.unwrap();
    let waiting = [
        t1.start_lock(&scene.java_reads),
        t2.start_lock(&scene.java_reads),
    ];
    scene.somebody_waits().await;
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

/// A JVM that is killed keeps the lock for its lease, in both modes; so does a process of ours.
/// R19 of Redisson's tests, in both modes.
#[tokio::test]
async fn a_side_that_dies_leaves_its_hold_to_the_lease() {
    let lease = Duration::from_secs(4);
    for reads in [true, false] {
        let scene = Scene::with_watchdog(Some(lease)).await;
        let java = match reads {
            true => &scene.java_reads,
            false => &scene.java_writes,
        };
        scene.java.thread("t1").lock(java).await;
        scene.java.kill();
        let busy = scene.ours.write().try_lock().await.unwrap();
        assert!(busy.is_none(), "its lease is not over");
        let waiting = waiter(&scene.ours.write().into());
        let (guard, _) = tokio::time::timeout(SAFETY, waiting)
            .await
            .unwrap()
            .unwrap();
        guard.unlock().await.unwrap();
        scene.redis.assert_clean().await;
        let java = Redisson::start(&scene.server.url()).await;
        let ours: Lock = match reads {
            true => scene.ours.read().into(),
            false => scene.ours.write().into(),
        };
        let guard = ours.lock().lease(lease).await.unwrap();
        // As if the process had died.
        guard.leave_to_lease();
        let t1 = java.thread("t1");
        assert!(!t1.try_lock(&scene.java_writes).await);
        let waits = t1.start_lock(&scene.java_writes);
        tokio::time::timeout(SAFETY, waits.value())
            .await
            .expect("the lease ended");
        t1.unlock(&scene.java_writes).await.unwrap();
        scene.redis.assert_clean().await;
        let _ = &scene.client;
    }
}

/// Redisson's renewal sets the lock's TTL to its own lease, whatever other readers have. A reader of ours with a
/// longer lease is looked after: the reader that dies beside it does not take its hold along.
#[tokio::test]
async fn a_long_read_of_ours_outlives_a_java_reader_that_dies() {
    let lease = Duration::from_secs(6);
    let scene = Scene::with_watchdog(Some(lease)).await;
    let ours = scene.ours.read().lock().lease(NEVER).await.unwrap();
    scene.java.thread("t1").lock(&scene.java_reads).await;
    eventually(SAFETY, "Java's renewal cut the TTL", async || {
        scene.redis.pttl(NAME).await <= 6_000
    })
    .await;
    scene.java.kill();
    // Without a renewal of ours the key would be gone by then.
    tokio::time::sleep(lease * 2).await;
    assert!(ours.is_valid() && scene.redis.exists(NAME).await);
    let busy = scene
        .ours
        .write()
        .try_lock()
        .owner(&Owner::new())
        .await
        .unwrap();
    assert!(busy.is_none(), "we still read");
    ours.unlock().await.unwrap();
    scene.redis.eventually_empty().await;
}

/// RW2, with an unprotected number in Redis: writers of both sides lose no update, and no reader of either side
/// sees a number change. `LOCKDOG_READ_WRITE_ROUNDS` sets how long it takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_writers_of_both_sides_exclude_each_other() {
    let rounds = std::env::var("LOCKDOG_READ_WRITE_ROUNDS").ok();
    let rounds: u32 = rounds.map_or(ROUNDS, |it| it.parse().expect("a number"));
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let mut theirs_write = Vec::new();
    let mut theirs_read = Vec::new();
    let mut sessions = Vec::new();
    let pause = Duration::from_millis(2);
    let lock = |mode: &str| JavaLock::from_getter(&format!("getReadWriteLock.{mode}Lock"), NAME);
    for _ in 0..4 {
        let java = Redisson::start(&server.url()).await;
        let (writer, reader) = (java.thread("w"), java.thread("r"));
        theirs_write.push(writer.start_cell(lock("write"), "cell", rounds, pause));
        theirs_read.push(reader.start_read_cell(lock("read"), "cell", rounds * 2, pause));
        sessions.push((java, writer, reader));
    }
    let mut ours = Vec::new();
    for _ in 0..4 {
        let client = Client::connect(server.url()).await.unwrap();
        let rw = client.read_write_lock(NAME);
        let (write, redis_) = (rw.write(), redis.clone());
        ours.push(tokio::spawn(async move {
            for _ in 0..rounds {
                let guard = write.lock().await.unwrap();
                let value: Option<u64> = redis_.ask(&["GET", "cell"]).await;
                tokio::time::sleep(pause).await;
                let next = value.unwrap_or(0) + 1;
                redis_.cmd(&["SET", "cell", &next.to_string()]).await;
                guard.unlock().await.unwrap();
            }
        }));
        let (read, redis_) = (rw.read(), redis.clone());
        ours.push(tokio::spawn(async move {
            for _ in 0..rounds * 2 {
                let guard = read.lock().await.unwrap();
                let before: Option<u64> = redis_.ask(&["GET", "cell"]).await;
                tokio::time::sleep(pause).await;
                let after: Option<u64> = redis_.ask(&["GET", "cell"]).await;
                assert_eq!(before, after, "somebody wrote while we read");
                guard.unlock().await.unwrap();
            }
        }));
    }
    for task in ours {
        task.await.unwrap();
    }
    for call in theirs_read {
        assert_eq!(call.value().await, 0, "somebody wrote while Java read");
    }
    for call in theirs_write {
        call.value().await;
    }
    let value: u32 = redis.ask(&["GET", "cell"]).await;
    assert_eq!(value, 8 * rounds);
    redis.cmd(&["DEL", "cell"]).await;
    redis.assert_clean().await;
}

const NAME: &str = "doc";
const CHANNEL: &str = "redisson_rwlock:{doc}";
const ROUNDS: u32 = 40;
