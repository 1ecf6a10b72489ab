//! Java clients whose clocks are a minute off. Redisson's scripts get the time from the client, ours from
//! the server. `docs/porting-from-redisson.md` describes the effects.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockdog::error::LostReason;
use lockdog::{Owner, Value};
use serde_json::json;

use super::{SAFETY, java_at, ours_at};
use crate::support::redis::Redis;
use crate::support::redisson::{JavaLock, JavaThread, Redisson};
use crate::support::{Cell, RedisServer, eventually};

/// All kinds in one test, because each of the two clocks needs its own JVM, and renewals take seconds.
#[tokio::test]
async fn java_clocks_that_are_a_minute_off_cost_what_the_documents_say() {
    let server = RedisServer::start().await;
    let (behind, ahead) = tokio::join!(
        java_at(&server).clock(-60).start(),
        java_at(&server).clock(60).start(),
    );
    let client = ours_at(&server).watchdog_lease(LEASE);
    let redis = server.redis().await;
    let fixture = Fixture::at(server, redis, client, |_| Peers { behind, ahead }).await;
    tokio::join!(
        permits(&fixture),
        values_of_a_group(&fixture),
        places_in_a_queue(&fixture),
        places_shorter_than_the_difference(&fixture),
    );
}

/// The clock of each is a minute off.
struct Peers {
    behind: Redisson,
    ahead: Redisson,
}

type Fixture = crate::fixture::Fixture<Peers>;

/// A client with a slow clock keeps permits longer and takes none early. A client whose clock is ahead by
/// more than the lease takes ours, and the next renewal reports that. What the first one acquires ends
/// early for us.
async fn permits(fixture: &Fixture) {
    let seats = fixture.client.permit_semaphore("seats");
    seats.set_permits(1).await.unwrap();
    let ours = seats.acquire().await.unwrap();
    let (behind, ahead) = (
        fixture.behind.thread("permits"),
        fixture.ahead.thread("permits"),
    );
    let tries = |thread: &JavaThread, args| {
        thread.start_permits::<Option<String>>("seats", "tryAcquire", args)
    };
    assert_eq!(tries(&behind, json!([])).value().await, None);
    assert!(ours.is_valid());

    let taken = tries(&ahead, json!([])).value().await;
    let taken = taken.expect("Java treats ours as expired");
    let lost = tokio::time::timeout(SAFETY, ours.lost()).await;
    let lost = lost.expect("the next renewal reports the loss");
    assert_eq!(lost.reason(), LostReason::NotOurs);
    // The permit belongs to Java, so a release of ours fails.
    drop(ours);
    let release = ahead.start_permits::<()>("seats", "release", json!([{ "id": taken }]));
    release.value().await;
    let all = seats.try_acquire().wait(SAFETY).await.unwrap();
    let all = all.expect("it is free");
    assert_eq!((all.count(), seats.permits().await.unwrap()), (1, 1));
    all.release().await.unwrap();

    // Half a minute after a minute ago is in the past. Two minutes after it are not.
    let wait_and_lease = |lease: u64| json!([{ "ms": 0 }, { "ms": lease }]);
    let early = tries(&behind, wait_and_lease(30_000)).value().await;
    assert!(early.is_some());
    let ours = seats.try_acquire().await.unwrap();
    ours.expect("Java's has expired for us")
        .release()
        .await
        .unwrap();
    let long = tries(&behind, wait_and_lease(120_000)).value().await;
    assert!(long.is_some() && seats.try_acquire().await.unwrap().is_none());
}

/// The same for the expiry times of values, except that a lock reads only the times of other owners.
async fn values_of_a_group(fixture: &Fixture) {
    let group = |name: &'static str| {
        let value = Value::kryo5("Mary").unwrap();
        (
            fixture.client.group_lock(name, [value]),
            JavaLock::of_values(name, &["Mary"]),
        )
    };
    let (behind, ahead) = (
        fixture.behind.thread("group"),
        fixture.ahead.thread("group"),
    );
    let (ours, theirs) = group("class_100");
    let guard = ours.lock().owner(&Owner::new()).await.unwrap();
    assert!(!behind.try_lock(&theirs).await);
    assert!(guard.is_valid());
    assert!(ahead.try_lock(&theirs).await, "Java treats ours as expired");
    let lost = tokio::time::timeout(SAFETY, guard.lost()).await;
    let lost = lost.expect("the next renewal reports the loss");
    assert_eq!(lost.reason(), LostReason::NotOurs);
    drop(guard);
    assert!(ours.try_lock().await.unwrap().is_none(), "it is Java's");
    ahead.unlock(&theirs).await.unwrap();

    let (ours, theirs) = group("class_200");
    behind.lock_for(&theirs, Duration::from_secs(30)).await;
    let guard = ours.try_lock().await.unwrap();
    guard
        .expect("Java's has expired for us")
        .unlock()
        .await
        .unwrap();
    let (ours, theirs) = group("class_300");
    behind.lock_for(&theirs, Duration::from_secs(120)).await;
    assert!(ours.try_lock().await.unwrap().is_none());
}

/// A difference far below the five minutes of a waiter's score changes neither the holder of a fair lock,
/// which the server's TTL decides, nor the order of its queue.
async fn places_in_a_queue(fixture: &Fixture) {
    let lock = fixture.client.fair_lock("orders");
    let held = lock.lock().owner(&Owner::new()).await.unwrap();
    let order = Arc::new(Mutex::new(Vec::<usize>::new()));
    let mut turns = Vec::new();
    for (number, java) in [&fixture.ahead, &fixture.behind, &fixture.ahead]
        .into_iter()
        .enumerate()
    {
        let thread = java.thread(&format!("fair {number}"));
        let (waiting, done) = (thread.start_lock(fair("orders")), order.clone());
        turns.push(tokio::spawn(async move {
            waiting.value().await;
            done.lock().unwrap().push(number * 2);
            thread.unlock(fair("orders")).await.unwrap();
        }));
        queued(&fixture.redis, "orders", number * 2 + 1).await;
        let (waiting, done) = (lock.lock().owner(&Owner::new()), order.clone());
        turns.push(tokio::spawn(async move {
            let guard = waiting.await.unwrap();
            done.lock().unwrap().push(number * 2 + 1);
            guard.unlock().await.unwrap();
        }));
        queued(&fixture.redis, "orders", number * 2 + 2).await;
    }
    // Several queries of each client.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(order.lock().unwrap().is_empty());
    held.unlock().await.unwrap();
    for turn in turns {
        let ended = tokio::time::timeout(SAFETY, turn).await;
        ended.expect("each has its turn").unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..6).collect::<Vec<_>>());
}

/// A Java client whose clock is ahead by more than `fair_wait` and the lease drops a present waiter of
/// ours. The waiter loses its place, enters the queue again, and gets the lock.
async fn places_shorter_than_the_difference(fixture: &Fixture) {
    let client = ours_at(&fixture.server).watchdog_lease(LEASE);
    let client = client.fair_wait(Duration::from_secs(10));
    let lock = client.build().await.unwrap().fair_lock("short");
    let executed = fixture.redis.monitor().await;
    let held = lock.lock().owner(&Owner::new()).await.unwrap();
    let (cell, pause) = (Cell::new(), Duration::from_millis(20));
    let (request, visited) = (lock.lock().owner(&Owner::new()), cell.clone());
    let ours = tokio::spawn(async move {
        let guard = request.await.unwrap();
        visited.bump_as("ours", pause).await;
        guard.unlock().await.unwrap();
    });
    queued(&fixture.redis, "short", 1).await;
    let thread = fixture.ahead.thread("short");
    let (waiting, visited) = (thread.start_lock(fair("short")), cell.clone());
    let theirs = tokio::spawn(async move {
        waiting.value().await;
        visited.bump_as("Java", pause).await;
        thread.unlock(fair("short")).await.unwrap();
    });
    let drops = "\"lpop\" \"redisson_lock_queue:{short}\"";
    eventually(SAFETY, "Java dropped our waiter", async || {
        executed.seen().iter().any(|line| line.contains(drops))
    })
    .await;
    assert!(held.is_valid() && !ours.is_finished() && !theirs.is_finished());
    held.unlock().await.unwrap();
    for turn in [ours, theirs] {
        let ended = tokio::time::timeout(SAFETY, turn).await;
        ended.expect("each has its turn").unwrap();
    }
    cell.assert_exclusive(2);
}

fn fair(name: &str) -> JavaLock {
    JavaLock::from_getter("getFairLock", name)
}

async fn queued(redis: &Redis, name: &str, waiters: usize) {
    eventually(SAFETY, "they are in the queue", async || {
        let queue = format!("redisson_lock_queue:{{{name}}}");
        redis.ask::<usize>(&["LLEN", &queue]).await == waiters
    })
    .await;
}

/// Below the difference of the clocks, and long enough for a busy machine.
const LEASE: Duration = Duration::from_secs(9);
