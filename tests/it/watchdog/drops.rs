//! Dropping the last handle does in the background what `shutdown()` does.

use std::time::Duration;

use tokio::runtime::Builder;
use tokio::time::sleep;

use super::clean_end::{no_connection_is_left, threads};
use super::{OUTLAST, SAFETY, builder, connect, connected};
use crate::support::child::is_alone;
use crate::support::{RedisServer, eventually};

#[tokio::test]
async fn dropping_the_last_handle_ends_the_thread_the_connections_and_the_holds() {
    if !is_alone(
        "watchdog::drops::dropping_the_last_handle_ends_the_thread_the_connections_and_the_holds",
    ) {
        return;
    }
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let client = connected(builder(&server.url()).watchdog_lease(SAFETY * 3)).await;
    let lock = client.lock("forgotten");
    lock.lock().await.unwrap().forget();
    let waiting = client.clone();
    redis.cmd(&["HSET", "busy", "somebody:1", "1"]).await;
    redis.cmd(&["PEXPIRE", "busy", "30000"]).await;
    let waiter = tokio::spawn(waiting.lock("busy").lock().into_future());
    drop(waiting);
    eventually(SAFETY, "it waits", async || {
        !redis.channels().await.is_empty()
    })
    .await;
    drop((client, lock));
    sleep(Duration::from_millis(200)).await;
    assert_eq!(threads(), 1, "the waiter is a handle too");
    waiter.abort();
    everything_is_gone(&redis, "forgotten").await;
}

#[tokio::test]
async fn a_pending_release_is_completed_before_the_client_ends() {
    if !is_alone("watchdog::drops::a_pending_release_is_completed_before_the_client_ends") {
        return;
    }
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let client = connected(builder(&server.url()).watchdog_lease(SAFETY * 3)).await;
    let guard = client.lock("owed").lock().await.unwrap();
    server.pause();
    drop(guard);
    drop(client);
    sleep(Duration::from_millis(300)).await;
    assert_eq!(threads(), 1, "it stays for what it owes");
    server.resume();
    everything_is_gone(&redis, "owed").await;
}

#[tokio::test]
async fn the_last_handle_may_be_dropped_outside_a_runtime() {
    if !is_alone("watchdog::drops::the_last_handle_may_be_dropped_outside_a_runtime") {
        return;
    }
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let url = server.url();
    let dropping = std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let (client, guard) = runtime.block_on(async {
            let client = connected(builder(&url).watchdog_lease(SAFETY * 3)).await;
            client.lock("forgotten").lock().await.unwrap().forget();
            let guard = client.lock("held").lock().await.unwrap();
            (client, guard)
        });
        drop(runtime);
        // No runtime is left that could do anything.
        drop(client);
        drop(guard);
    });
    dropping.join().unwrap();
    everything_is_gone(&redis, "held").await;
}

#[tokio::test]
async fn a_guard_and_a_lock_keep_the_client_alive() {
    let server = RedisServer::start().await;
    let client = connect(&server.url()).await;
    let lock = client.lock("a");
    drop(client);
    let guard = lock.lock().await.unwrap();
    drop(lock);
    sleep(OUTLAST).await;
    assert!(guard.is_valid(), "it is renewed on");
    guard.unlock().await.unwrap();
    let redis = server.redis().await;
    no_connection_is_left(&redis).await;
    redis.assert_clean().await;
}

async fn everything_is_gone(redis: &crate::support::Redis, key: &str) {
    // Far from the end of any lease.
    eventually(SAFETY, "the lock is free", async || {
        !redis.exists(key).await && !redis.exists("forgotten").await
    })
    .await;
    no_connection_is_left(redis).await;
    eventually(SAFETY, "the thread ended", async || threads() == 0).await;
    redis.assert_clean().await;
}
