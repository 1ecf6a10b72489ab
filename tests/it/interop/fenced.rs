//! The tokens of a fenced lock that both sides use. FE1 and FE2 are invariants of `docs/design.md`.

use lockdog::{Guard, Lock};

use super::{SAFETY, a_waiter_listens, assert_woken, java_at, ours_at, waiter, without_timers};
use crate::support::RedisServer;
use crate::support::redisson::{JavaLock, JavaThread};

/// FE1: Redisson's INCR and our grants use one counter.
#[tokio::test]
async fn tokens_grow_from_one_side_to_the_other() {
    let server = RedisServer::start().await;
    let java = java_at(&server).start().await;
    let (t1, theirs) = (java.thread("t1"), JavaLock::from_getter(GETTER, "orders"));
    let client = ours_at(&server).build().await.unwrap();
    let ours = client.fenced_lock("orders");

    assert_eq!(token_of_java(&t1, &theirs).await, 1);
    let mut last = 1;
    for _ in 0..3 {
        let next = token_of_ours(&ours).await;
        assert!(next > last, "{next} comes after {last}");
        assert_eq!(t1.last_token(&theirs).await, next);
        last = token_of_java(&t1, &theirs).await;
        assert_eq!(last, next + 1, "Redisson counts by one");
        assert_eq!(ours.last_token().await.unwrap(), Some(last));
    }
    server.redis().await.assert_clean().await;
}

/// FE1 while each side waits for the other: a message wakes the waiter, which gets a larger token.
#[tokio::test]
async fn a_waiter_that_the_other_side_wakes_has_a_larger_token() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let java = java_at(&server).start().await;
    let (t1, theirs) = (java.thread("t1"), JavaLock::from_getter(GETTER, "orders"));
    let client = without_timers(&server).build().await.unwrap();
    let ours = client.fenced_lock("orders");

    let first = t1.start_lock_and_get_token(&theirs).value().await;
    let waiting = waiter(&ours);
    a_waiter_listens(&redis, "orders").await;
    let unlocked = t1.start_unlock(&theirs).answer().await;
    unlocked.result.unwrap();
    let (guard, at) = waiting.await.unwrap();
    assert_woken("our waiter", unlocked.at - unlocked.took, at);
    let second = token(&guard);
    assert!(second > first, "{second} comes after {first}");

    let waiting = t1.start_lock_and_get_token(&theirs);
    a_waiter_listens(&redis, "orders").await;
    let released = std::time::SystemTime::now();
    guard.unlock().await.unwrap();
    let locked = tokio::time::timeout(SAFETY, waiting.answer()).await;
    let locked = locked.expect("a message wakes Java");
    assert_woken("Java", released, locked.at);
    let third = locked.result.unwrap();
    assert!(third > second, "{third} comes after {second}");
    t1.unlock(&theirs).await.unwrap();
    redis.assert_clean().await;
}

/// FE2: Redisson issues a new token for a re-entry, and we do not.
#[tokio::test]
async fn a_lockdog_hold_has_one_token_where_a_java_thread_gets_one_for_each_acquire() {
    let server = RedisServer::start().await;
    let java = java_at(&server).start().await;
    let (t1, theirs) = (java.thread("t1"), JavaLock::from_getter(GETTER, "orders"));
    let client = ours_at(&server).build().await.unwrap();
    let ours = client.fenced_lock_from_one("orders");

    for expected in [1, 2] {
        let issued = t1.start_lock_and_get_token(&theirs).value().await;
        assert_eq!(issued, expected);
    }
    for _ in 0..2 {
        t1.unlock(&theirs).await.unwrap();
    }
    let outer = ours.lock().await.unwrap();
    let inner = ours.lock().await.unwrap();
    assert_eq!((token(&outer), token(&inner)), (3, 3));
    assert_eq!(t1.last_token(&theirs).await, 3);
    inner.unlock().await.unwrap();
    outer.unlock().await.unwrap();
    assert_eq!(token_of_java(&t1, &theirs).await, 4);
    server.redis().await.assert_clean().await;
}

async fn token_of_java(thread: &JavaThread, lock: &JavaLock) -> u64 {
    let token = thread.start_lock_and_get_token(lock).value().await;
    thread.unlock(lock).await.unwrap();
    token
}

async fn token_of_ours(lock: &Lock) -> u64 {
    let guard = lock.lock().await.unwrap();
    let token = token(&guard);
    guard.unlock().await.unwrap();
    token
}

fn token(guard: &Guard) -> u64 {
    guard.token().expect("a fenced lock issues tokens")
}

const GETTER: &str = "getFencedLock";
