//! Many waiters on both sides of one lock, woken by messages only.

use std::time::Duration;

use super::{NEVER, SAFETY, a_waiter_listens, java_at, without_timers};
use crate::support::{Cell, RedisServer, eventually};

#[tokio::test]
async fn a_release_wakes_one_waiter_of_each_client() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let java = java_at(&server).start().await;
    let (client, other) = tokio::join!(
        without_timers(&server).build(),
        without_timers(&server).build()
    );
    let (client, other) = (client.unwrap(), other.unwrap());
    let held = other.lock("orders").lock().await.unwrap();
    let theirs: Vec<_> = (0..4)
        .map(|n| {
            java.thread(&format!("t{n}"))
                .start_lock_for("orders", NEVER)
        })
        .collect();
    let ours: Vec<_> = (0..4)
        .map(|_| super::waiter(&client.lock("orders")))
        .collect();
    a_waiter_listens(&redis, "orders").await;
    eventually(SAFETY, "both clients listen", async || {
        let listeners: (String, u64) = redis
            .ask(&["PUBSUB", "NUMSUB", "redisson_lock__channel:{orders}"])
            .await;
        listeners.1 == 2
    })
    .await;
    // Their attempts after the subscription are over.
    let asked = async || redis.commandstats().await.get("evalsha").copied();
    let (mut before, mut quiet) = (asked().await, 0);
    eventually(SAFETY, "no client asks for half a second", async || {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now = asked().await;
        quiet = if now == before { quiet + 1 } else { 0 };
        before = now;
        quiet == 10
    })
    .await;
    let monitor = redis.monitor().await;

    held.unlock().await.unwrap();

    let digest = redis::Script::new(include_str!("../../../lua/lock/acquire.lua"));
    let attempts = || {
        let seen = monitor.seen();
        let calls = seen.iter().filter(|line| line.contains("\"EVALSHA\""));
        let acquires: Vec<_> = calls
            .filter(|line| !line.contains("lock__channel"))
            .collect();
        let ours = acquires
            .iter()
            .filter(|line| line.contains(digest.get_hash()) || line.contains("lockdog_waiters"))
            .count();
        (ours, acquires.len() - ours)
    };
    eventually(SAFETY, "one waiter of each client tries", async || {
        attempts() == (1, 1)
    })
    .await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(attempts(), (1, 1));
    let won = theirs.iter().filter(|call| call.is_finished()).count()
        + ours.iter().filter(|task| task.is_finished()).count();
    assert_eq!(won, 1);
    for task in ours {
        task.abort();
    }
}

#[tokio::test]
async fn all_of_many_waiters_on_both_sides_get_the_lock() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let java = java_at(&server).start().await;
    let clients = tokio::join!(
        without_timers(&server).build(),
        without_timers(&server).build()
    );
    let clients = [clients.0.unwrap(), clients.1.unwrap()];
    let (cell, pause) = (Cell::new(), Duration::from_millis(5));
    let first = java.thread("first");
    first.lock_for("orders", NEVER).await;

    let mut waiters = Vec::new();
    for n in 0..6 {
        let (thread, visited) = (java.thread(&format!("t{n}")), cell.clone());
        waiters.push(tokio::spawn(async move {
            thread.lock_for("orders", NEVER).await;
            visited.bump_as(&format!("java {n}"), pause).await;
            thread.unlock("orders").await.unwrap();
        }));
        let (lock, visited) = (clients[n % 2].lock("orders"), cell.clone());
        waiters.push(tokio::spawn(async move {
            let guard = lock.lock().lease(NEVER).await.unwrap();
            visited.bump_as(&format!("ours {n}"), pause).await;
            guard.unlock().await.unwrap();
        }));
    }
    a_waiter_listens(&redis, "orders").await;
    first.unlock("orders").await.unwrap();
    for waiter in waiters {
        // Shorter than any timer, so only messages can have woken them.
        tokio::time::timeout(SAFETY, waiter).await.unwrap().unwrap();
    }

    cell.assert_exclusive(12);
    redis.assert_clean().await;
}
