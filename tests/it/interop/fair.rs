//! One queue of Java threads and lockdog owners.

use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use lockdog::{Client, Error, Owner};

use super::{NEVER, SAFETY, assert_woken, waiter, without_timers};
use crate::support::redis::Redis;
use crate::support::redisson::{JavaLock, Redisson};
use crate::support::{RedisServer, eventually};

fn java_lock() -> JavaLock {
    JavaLock::from_getter("getFairLock", NAME)
}

/// FA4 across both sides: the lock is granted in the order of arrival.
#[tokio::test]
async fn java_threads_and_lockdog_owners_get_the_lock_in_the_order_of_their_arrival() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let java = Redisson::start(&server.url()).await;
    let clients = [
        Client::connect(server.url()).await.unwrap(),
        Client::connect(server.url()).await.unwrap(),
    ];
    let held = clients[0].fair_lock(NAME).lock().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut turns = Vec::new();
    for number in 0..WAITERS {
        let order = order.clone();
        turns.push(if number % 2 == 0 {
            let thread = java.thread(&format!("t{number}"));
            let waiting = thread.start_lock(java_lock());
            tokio::spawn(async move {
                waiting.value().await;
                order.lock().unwrap().push(number);
                thread.unlock(java_lock()).await.unwrap();
            })
        } else {
            let lock = clients[number / 2 % 2].fair_lock(NAME);
            tokio::spawn(async move {
                let guard = lock.lock().owner(&Owner::new()).await.unwrap();
                order.lock().unwrap().push(number);
                guard.unlock().await.unwrap();
            })
        });
        queued(&redis, number + 1).await;
    }
    held.unlock().await.unwrap();
    for turn in turns {
        tokio::time::timeout(SAFETY, turn)
            .await
            .expect("in time")
            .unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..WAITERS).collect::<Vec<_>>());
    eventually(SAFETY, "nothing is left", async || {
        redis.keys().await.is_empty()
    })
    .await;
}

#[tokio::test]
async fn the_message_of_an_unlock_wakes_the_head_on_the_other_side() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let java = Redisson::start(&server.url()).await;
    let t1 = java.thread("t1");
    let client = without_timers(&server).build().await.unwrap();
    let ours = client.fair_lock(NAME);

    t1.lock_for(java_lock(), NEVER).await;
    let waiting = waiter(&ours);
    listening(&redis).await;
    assert!(!waiting.is_finished());
    let unlocked = t1.start_unlock(java_lock()).answer().await;
    unlocked.result.unwrap();
    let (guard, at) = waiting.await.unwrap();
    assert_woken("our waiter", unlocked.at - unlocked.took, at);

    let waiting = t1.start_lock(java_lock());
    listening(&redis).await;
    assert!(!waiting.is_finished());
    let released = SystemTime::now();
    guard.unlock().await.unwrap();
    let locked = tokio::time::timeout(SAFETY, waiting.answer()).await;
    let locked = locked.expect("Java is woken at all");
    locked.result.unwrap();
    assert_woken("Java", released, locked.at);
    t1.unlock(java_lock()).await.unwrap();
}

/// FA6: a killed Java waiter is dropped when its score has passed.
#[tokio::test]
async fn lockdog_passes_a_killed_java_head_when_its_place_is_over() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let java = Redisson::builder(&server.url()).own_jvm().start().await;
    let client = Client::connect(server.url()).await.unwrap();
    let lock = client.fair_lock(NAME);
    let lease = Duration::from_secs(3);
    let held = lock.lock().owner(&Owner::new()).lease(lease).await.unwrap();
    // Its place is good for its wait after the lease.
    let wait = Duration::from_secs(4);
    let _killed = java
        .thread("t1")
        .start_try_lock_for(java_lock(), wait, Some(NEVER));
    queued(&redis, 1).await;
    let waiting = waiter(&lock);
    queued(&redis, 2).await;
    java.kill();
    // A machine that is busy needs more than the lease for all this.
    let released = held.unlock().await;
    assert!(released.as_ref().map_or_else(Error::is_lost, |_| true));
    let (guard, _) = tokio::time::timeout(SAFETY, waiting)
        .await
        .expect("in time")
        .unwrap();
    assert_eq!(redis.ask::<usize>(&["LLEN", QUEUE]).await, 0);
    guard.unlock().await.unwrap();
}

/// FA6: a killed lockdog waiter is dropped after its absence by another lockdog client, which calls the
/// Java thread behind it. Runs twice: as the test, and started by it as the process that is killed.
#[tokio::test]
async fn java_passes_a_killed_lockdog_head_after_its_absence() {
    if let Ok(url) = std::env::var(WAITER) {
        let client = absent_after_a_second(url).await;
        let _guard = client.fair_lock(NAME).lock().await;
        return tokio::time::sleep(2 * SAFETY).await;
    }
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let java = Redisson::start(&server.url()).await;
    let t1 = java.thread("t1");
    let client = absent_after_a_second(server.url()).await;
    let lock = client.fair_lock(NAME);
    let held = lock.lock().owner(&Owner::new()).lease(NEVER).await.unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "interop::fair::java_passes_a_killed_lockdog_head_after_its_absence",
        ])
        .env(WAITER, server.url())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    queued(&redis, 1).await;
    let theirs = t1.start_lock(java_lock());
    queued(&redis, 2).await;
    let ours = waiter(&lock);
    queued(&redis, 3).await;
    child.kill().unwrap();
    child.wait().unwrap();
    held.unlock().await.unwrap();
    let locked = tokio::time::timeout(SAFETY, theirs.answer()).await;
    locked.expect("Java is called").result.unwrap();
    t1.unlock(java_lock()).await.unwrap();
    let (guard, _) = tokio::time::timeout(SAFETY, ours)
        .await
        .expect("in time")
        .unwrap();
    guard.unlock().await.unwrap();
}

#[tokio::test]
async fn four_java_clients_and_four_lockdog_clients_lose_no_update() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let pause = Duration::from_millis(1);
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let java = Redisson::start(&server.url()).await;
        let cell = java
            .thread("t1")
            .start_cell(java_lock(), "cell", ROUNDS, pause);
        theirs.push((java, cell));
        let lock = Client::connect(server.url()).await.unwrap().fair_lock(NAME);
        let redis = redis.clone();
        ours.push(tokio::spawn(async move {
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
    for task in ours {
        task.await.unwrap();
    }
    for (_java, cell) in theirs {
        cell.value().await;
    }
    let value: u32 = redis.ask(&["GET", "cell"]).await;
    assert_eq!(value, 8 * ROUNDS);
}

async fn absent_after_a_second(url: String) -> Client {
    let client = Client::builder()
        .url(url)
        .poll_cap(Duration::from_millis(250));
    let client = client.fair_absence(Duration::from_secs(1));
    client.build().await.unwrap()
}

async fn queued(redis: &Redis, waiters: usize) {
    eventually(SAFETY, "they stand in the queue", async || {
        redis.ask::<usize>(&["LLEN", QUEUE]).await == waiters
    })
    .await;
}

/// Waits until the head of the queue listens, and has had time for the look that follows.
async fn listening(redis: &Redis) {
    eventually(SAFETY, "the head listens", async || {
        let head: Option<String> = redis.ask(&["LINDEX", QUEUE, "0"]).await;
        let channels = redis.channels().await;
        head.is_some_and(|head| channels.iter().any(|channel| channel.ends_with(&head)))
    })
    .await;
    tokio::time::sleep(Duration::from_millis(150)).await;
}

const NAME: &str = "orders";
const QUEUE: &str = "redisson_lock_queue:{orders}";
const WAITERS: usize = 20;
const ROUNDS: u32 = 50;
/// Tells the waiter where the server is.
const WAITER: &str = "LOCKDOG_TEST_WAITER";
