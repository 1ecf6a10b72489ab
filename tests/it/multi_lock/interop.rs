//! Beside real `RedissonMultiLock`s of two servers, in both directions.

use std::time::Duration;

use lockdog::{Owner, Unlocked};

use super::{Fixture, LONG, SOON, ms, multi, waiter};
use crate::support::redisson::{JavaError, JavaLock, JavaThread, PendingCall, Redisson};
use crate::support::{eventually, until_ok};

/// Two servers, our clients without timers, and Java's.
struct Scene {
    test: Fixture,
    patient: Vec<lockdog::Client>,
    java: Redisson,
}

impl Scene {
    async fn start() -> Self {
        let test = Fixture::start(2).await;
        let patient = test
            .servers
            .clients_with(|client| client.watchdog_lease(NEVER).poll_cap(NEVER))
            .await;
        let java = Redisson::builder(&test.servers.all[0].url()).server(&test.servers.all[1].url());
        let java = java.timeout(SOON).start().await;
        Self {
            test,
            patient,
            java,
        }
    }

    fn ours(&self) -> lockdog::MultiLock {
        multi(&self.patient, &MEMBERS)
    }

    fn thread(&self) -> JavaThread {
        self.java.thread("t1")
    }

    /// Waits until a waiter is subscribed to this member's channel and had time for the poll that
    /// follows.
    async fn a_waiter_listens(&self, (server, name): (usize, &str)) {
        let channel = format!("redisson_lock__channel:{{{name}}}");
        eventually(SOON, "a waiter listens", async || {
            self.test.servers.redis[server]
                .channels()
                .await
                .contains(&channel)
        })
        .await;
        tokio::time::sleep(ms(150)).await;
    }

    async fn end(self) {
        drop(self.patient);
        drop(self.java);
        self.test.assert_clean().await;
    }
}

/// A `RedissonMultiLock` of the members, for one Java thread.
struct Theirs {
    thread: JavaThread,
    lock: JavaLock,
}

impl Theirs {
    fn of(thread: &JavaThread) -> Self {
        Self {
            thread: thread.clone(),
            lock: JavaLock::multi(MEMBERS),
        }
    }

    fn start_lock(&self) -> PendingCall<()> {
        self.thread.start_lock(&self.lock)
    }

    fn start_lock_for(&self, lease: Duration) -> PendingCall<()> {
        self.thread.start_lock_for(&self.lock, lease)
    }

    fn start_try_lock(&self, wait: Duration, lease: Option<Duration>) -> PendingCall<bool> {
        self.thread.start_try_lock_for(&self.lock, wait, lease)
    }

    async fn try_lock(&self) -> bool {
        self.thread.try_lock(&self.lock).await
    }

    async fn unlock(&self) -> Result<(), JavaError> {
        self.thread.unlock(&self.lock).await
    }

    async fn is_held(&self) -> bool {
        self.thread.is_held(&self.lock).await
    }

    fn start_cell(&self, key: &str, rounds: u32, pause: Duration) -> PendingCall<()> {
        self.thread.start_cell(&self.lock, key, rounds, pause)
    }
}

#[tokio::test]
async fn a_java_unlock_wakes_a_lockdog_waiter() {
    let scene = Scene::start().await;
    let theirs = Theirs::of(&scene.thread());
    theirs.start_lock_for(LONG).value().await;
    assert!(theirs.is_held().await);
    let ours = scene.ours();
    assert!(ours.try_lock().await.unwrap().is_none());
    assert!(
        until_ok(SOON, async || ours.try_lock().wait(ms(1_000)).await)
            .await
            .is_none()
    );
    let waiting = waiter(&ours);
    // Every member blocks; it waits for one of them.
    eventually(SOON, "it waits", async || {
        let channels = [
            scene.test.servers.redis[0].channels().await,
            scene.test.servers.redis[1].channels().await,
        ];
        channels.concat().len() == 1
    })
    .await;
    tokio::time::sleep(ms(150)).await;
    assert!(!waiting.is_finished());
    theirs.unlock().await.unwrap();
    // Its lease and our poll interval are longer, so only the message can have done it.
    let guard = tokio::time::timeout(SOON, waiting)
        .await
        .expect("it is woken")
        .unwrap();
    assert!(!theirs.is_held().await);
    guard.unlock().await.unwrap();
    drop(ours);
    scene.end().await;
}

#[tokio::test]
async fn a_lockdog_unlock_wakes_a_java_waiter() {
    let scene = Scene::start().await;
    let theirs = Theirs::of(&scene.thread());
    let ours = scene.ours();
    let guard = ours.lock().await.unwrap();
    assert!(!theirs.try_lock().await);
    let waiting = theirs.start_try_lock(ms(60_000), Some(LONG));
    // Java takes them in the order of its list, and waits for the first.
    scene.a_waiter_listens(MEMBERS[0]).await;
    assert!(!waiting.is_finished());
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    let locked = tokio::time::timeout(SOON, waiting.value())
        .await
        .expect("it is woken");
    assert!(locked);
    assert!(ours.try_lock().await.unwrap().is_none());
    theirs.unlock().await.unwrap();
    drop(ours);
    scene.end().await;
}

/// A member is an ordinary lock, for either side.
#[tokio::test]
async fn a_member_locked_alone_blocks_the_other_side() {
    let scene = Scene::start().await;
    let (thread, other) = (scene.thread(), scene.java.thread("t2"));
    let theirs = Theirs::of(&thread);
    let ours = scene.ours();
    // Java's single lock, our multi lock.
    other.lock_for("b", LONG).await;
    assert!(ours.try_lock().await.unwrap().is_none());
    let waiting = waiter(&ours);
    scene.a_waiter_listens((0, "b")).await;
    assert!(!waiting.is_finished());
    other.unlock("b").await.unwrap();
    let guard = tokio::time::timeout(SOON, waiting)
        .await
        .expect("it is woken")
        .unwrap();
    // Our multi lock, Java's single lock.
    assert!(!other.try_lock("a").await);
    guard.unlock().await.unwrap();
    assert!(other.try_lock("a").await);
    other.unlock("a").await.unwrap();
    // Our single lock, Java's multi lock.
    let single = scene.patient[1].lock("c").lock().await.unwrap();
    assert!(!theirs.try_lock().await);
    assert!(!theirs.is_held().await);
    single.unlock().await.unwrap();
    // Java's multi lock, our single lock.
    assert!(theirs.try_lock().await);
    assert!(
        scene.patient[1]
            .lock("c")
            .try_lock()
            .await
            .unwrap()
            .is_none()
    );
    theirs.unlock().await.unwrap();
    drop(ours);
    scene.end().await;
}

/// Both sides write the same to Redis: a count and a TTL for each member.
#[tokio::test]
async fn each_side_sees_the_holds_of_the_other_as_plain_locks() {
    let scene = Scene::start().await;
    let theirs = Theirs::of(&scene.thread());
    let ours = scene.ours();
    for _ in 0..2 {
        theirs.start_lock().value().await;
    }
    for lock in ours.locks() {
        let holder = lock.holder().await.unwrap().expect("Java has it");
        assert_eq!((holder.count, holder.ours), (2, false));
    }
    for _ in 0..2 {
        theirs.unlock().await.unwrap();
    }
    let owner = Owner::from_id(7);
    let mut guards = Vec::new();
    for _ in 0..2 {
        guards.push(ours.lock().lease(ms(60_000)).owner(&owner).await.unwrap());
    }
    for (server, name) in MEMBERS {
        let redis = &scene.test.servers.redis[server];
        let hash = redis.hash(name).await;
        let (field, count) = hash.iter().next().expect("it is held");
        let client = scene.patient[server].id();
        assert!(field.starts_with(&format!("{client}:7.")), "{field}");
        assert_eq!((hash.len(), &**count), (1, "2"));
        assert!((50_000..=60_000).contains(&redis.pttl(name).await));
    }
    assert_eq!(scene.test.servers.redis[0].keys().await, ["a", "b"]);
    assert_eq!(scene.test.servers.redis[1].keys().await, ["c"]);
    assert!(scene.thread().is_locked("a").await);
    drop((guards, ours));
    scene.end().await;
}

/// Both sides take the locks in opposite orders and update a value that shows every lost update.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_lose_no_update() {
    let test = Fixture::start(2).await;
    let java = Redisson::builder(&test.servers.all[0].url()).server(&test.servers.all[1].url());
    let java = java.timeout(SOON).start().await;
    let redis = test.servers.redis[0].clone();
    let pause = ms(1);
    let theirs: Vec<_> = (0..3)
        .map(|n| {
            let thread = java.thread(&format!("t{n}"));
            Theirs::of(&thread).start_cell("cell", ROUNDS, pause)
        })
        .collect();
    let ours: Vec<_> = (0..3)
        .map(|_| {
            let lock = test.multi(&[(1, "c"), (0, "b"), (0, "a")]);
            let redis = redis.clone();
            tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    let guard = lock.lock().await.unwrap();
                    let value: Option<u64> = redis.ask(&["GET", "cell"]).await;
                    tokio::time::sleep(pause).await;
                    let next = value.unwrap_or(0) + 1;
                    redis.cmd(&["SET", "cell", &next.to_string()]).await;
                    guard.unlock().await.unwrap();
                }
            })
        })
        .collect();
    for task in ours {
        tokio::time::timeout(SOON * 4, task)
            .await
            .expect("it acquires the locks")
            .unwrap();
    }
    for call in theirs {
        tokio::time::timeout(SOON * 4, call.value())
            .await
            .expect("it acquires the locks");
    }
    let value: u32 = redis.ask(&["GET", "cell"]).await;
    assert_eq!(value, 6 * ROUNDS);
    redis.cmd(&["DEL", "cell"]).await;
    drop(java);
    test.assert_clean().await;
}

/// A Java process that dies while it holds the lock.
#[tokio::test]
async fn lockdog_gets_the_lock_of_a_killed_java_process_when_its_leases_end() {
    let test = Fixture::start(2).await;
    let java = Redisson::builder(&test.servers.all[0].url()).server(&test.servers.all[1].url());
    let java = java.timeout(SOON).watchdog_timeout(ms(1_500));
    let java = java.own_jvm().start().await;
    let theirs = Theirs::of(&java.thread("t1"));
    theirs.start_lock().value().await;
    java.kill();
    let lock = test.multi(&MEMBERS);
    let guard = lock
        .try_lock()
        .wait(SOON)
        .await
        .unwrap()
        .expect("its leases are over");
    guard.unlock().await.unwrap();
    drop(theirs);
    test.assert_clean().await;
}

const MEMBERS: [(usize, &str); 3] = [(0, "a"), (0, "b"), (1, "c")];
const NEVER: Duration = Duration::from_secs(600);
const ROUNDS: u32 = 60;
