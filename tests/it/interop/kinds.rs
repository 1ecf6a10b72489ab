//! Each kind of lock that both sides have, in both directions.

use std::time::Duration;

use lockdog::Client;

use super::{NEVER, SAFETY, a_waiter_listens, assert_woken, holder, waiter, without_timers};
use crate::kinds::{Kind, each_kind};
use crate::support::RedisServer;
use crate::support::redisson::Redisson;

each_kind! {
    every: {
        java_threads_and_lockdog_tasks_lose_no_update
    }
    without_modes: {
        a_java_holder_is_visible_and_excludes_lockdog_owners
        a_lockdog_holder_excludes_java_threads
    }
    published: {
        the_message_of_an_unlock_wakes_the_other_side
    }
}

async fn a_java_holder_is_visible_and_excludes_lockdog_owners(kind: &'static Kind) {
    let server = RedisServer::start().await;
    let java = Redisson::start(&server.url()).await;
    let (t1, theirs) = (java.thread("t1"), kind.java_lock("orders"));
    let client = Client::connect(server.url()).await.unwrap();
    let ours = kind.lock(&client, "orders");

    t1.lock_for(&theirs, NEVER).await;
    assert!(ours.try_lock().await.unwrap().is_none());
    let seen = ours.holder().await.unwrap().expect("it is held");
    assert_eq!(
        (seen.field().to_owned(), seen.count, seen.ours),
        (t1.field().await, 1, false)
    );
    let waiting = waiter(&ours);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished());
    t1.unlock(&theirs).await.unwrap();

    let entered = tokio::time::timeout(SAFETY, waiting).await;
    let (guard, _) = entered.expect("it was unlocked").unwrap();
    guard.unlock().await.unwrap();
    server.redis().await.assert_clean().await;
}

async fn a_lockdog_holder_excludes_java_threads(kind: &'static Kind) {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let java = Redisson::start(&server.url()).await;
    let (t1, theirs) = (java.thread("t1"), kind.java_lock("orders"));
    let client = Client::connect(server.url()).await.unwrap();

    let guard = kind.lock(&client, "orders").lock().await.unwrap();
    assert!(!t1.try_lock(&theirs).await);
    assert!(t1.is_locked(&theirs).await && !t1.is_held(&theirs).await);
    let waiting = t1.start_lock_for(&theirs, NEVER);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished());
    guard.unlock().await.unwrap();

    let entered = tokio::time::timeout(SAFETY, waiting.answer()).await;
    entered.expect("it was unlocked").result.unwrap();
    let field = t1.field().await;
    assert_eq!(
        holder(&redis, "orders").await,
        Some((field, "1".to_owned()))
    );
    t1.unlock(&theirs).await.unwrap();
    redis.assert_clean().await;
}

async fn java_threads_and_lockdog_tasks_lose_no_update(kind: &'static Kind) {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let java = Redisson::start(&server.url()).await;
    let theirs = kind.java_lock("lock");
    let client = Client::connect(server.url()).await.unwrap();

    let counting: Vec<_> = (0..2)
        .map(|n| {
            let thread = java.thread(&format!("t{n}"));
            thread.start_cell(&theirs, "cell", ROUNDS, PAUSE)
        })
        .collect();
    let ours: Vec<_> = (0..2)
        .map(|_| {
            let (lock, redis) = (kind.lock(&client, "lock"), redis.clone());
            tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    let guard = lock.lock().await.unwrap();
                    let value: Option<u32> = redis.ask(&["GET", "cell"]).await;
                    tokio::time::sleep(PAUSE).await;
                    let next = value.unwrap_or(0) + 1;
                    redis.cmd(&["SET", "cell", &next.to_string()]).await;
                    guard.unlock().await.unwrap();
                }
            })
        })
        .collect();
    for task in ours {
        task.await.unwrap();
    }
    for call in counting {
        call.value().await;
    }

    let value: u32 = redis.ask(&["GET", "cell"]).await;
    assert_eq!(value, 4 * ROUNDS);
    redis.cmd(&["DEL", "cell"]).await;
    redis.assert_clean().await;
}

async fn the_message_of_an_unlock_wakes_the_other_side(kind: &'static Kind) {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let java = Redisson::start(&server.url()).await;
    let (t1, theirs) = (java.thread("t1"), kind.java_lock("orders"));
    let client = without_timers(&server).build().await.unwrap();
    let ours = kind.lock(&client, "orders");

    t1.lock_for(&theirs, NEVER).await;
    let waiting = waiter(&ours);
    a_waiter_listens(&redis, "orders").await;
    let unlocked = t1.start_unlock(&theirs).answer().await;
    unlocked.result.unwrap();
    let (guard, at) = waiting.await.unwrap();
    assert_woken("our waiter", unlocked.at - unlocked.took, at);

    let waiting = t1.start_lock_for(&theirs, NEVER);
    a_waiter_listens(&redis, "orders").await;
    let released = std::time::SystemTime::now();
    guard.unlock().await.unwrap();
    let locked = tokio::time::timeout(SAFETY, waiting.answer()).await;
    let locked = locked.expect("Java is woken at all");
    locked.result.unwrap();
    assert_woken("Java", released, locked.at);
    t1.unlock(&theirs).await.unwrap();
    redis.assert_clean().await;
}

const ROUNDS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(1);
