//! Failures of holders, connections and servers that lose no lock.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use lockdog::error::LostReason;
use lockdog::{Error, Unlocked};
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};

use super::{LEASE, OUTLAST, PERIOD, SAFETY, builder, connect, connected};
use super::{hold_many, scripts_run};
use crate::support::{Data, Redis, RedisServer, eventually, heartbeat};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runtime_starved_for_two_leases_loses_no_lock() {
    let server = RedisServer::start().await;
    let workers = 2;
    let starved = Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_all()
        .build()
        .unwrap();
    let url = server.url();
    let (client, guard) = starved
        .spawn(async move {
            let client = connect(&url).await;
            let guard = client.lock("a").lock().await.unwrap();
            (client, guard)
        })
        .await
        .unwrap();
    let beats = heartbeat(starved.handle());
    // All of them meet before they block, so that each blocks a worker of its own.
    let together = Arc::new(Barrier::new(workers));
    let blocking: Vec<_> = (0..workers)
        .map(|_| {
            let together = together.clone();
            starved.spawn(async move {
                together.wait();
                std::thread::sleep(LEASE * 2);
            })
        })
        .collect();
    let other = connect(&server.url()).await;
    for _ in 0..8 {
        sleep(LEASE / 4).await;
        assert!(other.lock("a").try_lock().await.unwrap().is_none());
        assert!(guard.is_valid());
    }
    for blocked in blocking {
        blocked.await.unwrap();
    }
    assert!(
        beats.largest_gap() >= LEASE * 2,
        "the thread was not starved"
    );
    assert!(guard.is_valid());
    starved
        .spawn(async move { guard.unlock().await.unwrap() })
        .await
        .unwrap();
    drop((client, beats));
    starved.shutdown_background();
    server.redis().await.assert_clean().await;
}

#[tokio::test]
async fn a_killed_watchdog_connection_loses_no_lock() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let client = connected(builder(&server.url()).client_name("dog")).await;
    let lock = client.lock("a");
    let guard = lock.lock().await.unwrap();
    let mut seen = Vec::new();
    let mut killed = 0;
    while killed < 3 {
        let id = watchdog_connection(&redis, &lock, &seen).await;
        // On a busy machine the watchdog itself may have replaced it.
        let text = id.to_string();
        let kill = ["CLIENT", "KILL", "ID", &text];
        killed += redis.ask::<u64>(&kill).await;
        seen.push(id);
        sleep(PERIOD).await;
    }
    watchdog_connection(&redis, &lock, &seen).await;
    sleep(OUTLAST).await;
    assert!(guard.is_valid());
    guard.unlock().await.unwrap();
    redis.assert_clean().await;
}

/// The connection that ran the last script, where the callers' last command is another one; none
/// of those that were `seen` before.
async fn watchdog_connection(redis: &Redis, lock: &lockdog::Lock, seen: &[i64]) -> i64 {
    let mut found = None;
    eventually(SAFETY, "the watchdog has renewed", async || {
        assert!(lock.is_locked().await.unwrap());
        let clients = redis.clients().await;
        let renewing = clients
            .iter()
            .filter(|info| info.name == "dog" && info.cmd.starts_with("eval"))
            .map(|info| info.id);
        found = renewing.filter(|id| !seen.contains(id)).max();
        found.is_some()
    })
    .await;
    found.expect("it was found just now")
}

#[tokio::test]
async fn a_server_frozen_for_half_a_lease_loses_no_lock() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let lease = LEASE * 3;
    let client = connected(builder(&server.url()).watchdog_lease(lease)).await;
    let guards = hold_many(&client, "a", 5).await;
    for _ in 0..2 {
        // On a busy machine a hold that was just renewed still has half a lease.
        redis.reset_stats().await;
        eventually(SAFETY, "they are renewed", async || {
            scripts_run(&redis).await > 0
        })
        .await;
        server.pause();
        sleep(lease / 2).await;
        server.resume();
    }
    redis.reset_stats().await;
    sleep(lease).await;
    assert!(scripts_run(&redis).await > 0);
    for guard in guards {
        assert!(guard.is_valid());
        guard.unlock().await.unwrap();
    }
    redis.assert_clean().await;
}

#[tokio::test]
async fn repeated_script_flushes_lose_no_lock() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let client = connect(&server.url()).await;
    let guards = hold_many(&client, "a", 5).await;
    redis.reset_stats().await;
    let flushing = tokio::spawn({
        let redis = redis.clone();
        async move {
            loop {
                redis.cmd(&["SCRIPT", "FLUSH"]).await;
                sleep(Duration::from_millis(2)).await;
            }
        }
    });
    sleep(OUTLAST).await;
    eventually(SAFETY, "renewals find no script", async || {
        redis.errorstats().await.get("NOSCRIPT") >= Some(&3)
    })
    .await;
    flushing.abort();
    for guard in guards {
        assert!(guard.is_valid());
        guard.unlock().await.unwrap();
    }
    redis.assert_clean().await;
}

#[tokio::test]
async fn a_restarted_server_that_kept_its_data_loses_no_lock() {
    let server = RedisServer::builder().persistent().start().await;
    // Long enough for the restart on a busy machine.
    let lease = LEASE * 2;
    let client = connected(builder(&server.url()).watchdog_lease(lease)).await;
    let guard = client.lock("a").lock().await.unwrap();
    let before: u64 = process_id(&server.redis().await).await;
    server.restart(Data::Kept).await;
    let redis = server.redis().await;
    assert_ne!(process_id(&redis).await, before);
    eventually(SAFETY, "it was renewed again", async || {
        scripts_run(&redis).await > 0
    })
    .await;
    sleep(lease).await;
    assert!(guard.is_valid());
    guard.unlock().await.unwrap();
    redis.assert_clean().await;
}

async fn process_id(redis: &Redis) -> u64 {
    let info: String = redis.ask(&["INFO", "server"]).await;
    let mut lines = info.lines();
    let id = lines.find_map(|line| line.strip_prefix("process_id:"));
    id.expect("INFO has it").parse().expect("it is a number")
}

#[tokio::test]
async fn a_lock_lost_with_the_servers_data_is_reported() {
    let server = RedisServer::start().await;
    let client = connected(builder(&server.url()).watchdog_lease(LEASE * 3)).await;
    let guard = client.lock("a").lock().await.unwrap();
    server.restart(Data::Lost).await;
    let lost = timeout(SAFETY, guard.lost()).await.unwrap();
    assert!(!guard.is_valid());
    assert_eq!(lost.reason(), LostReason::NotOurs);
}

#[tokio::test]
async fn a_lock_acquired_after_a_data_loss_is_renewed() {
    let server = RedisServer::start().await;
    let client = connect(&server.url()).await;
    let lock = client.lock("a");
    let guard = lock.lock().await.unwrap();
    server.restart(Data::Lost).await;
    sleep(OUTLAST).await;
    let unlocked = guard.unlock().await;
    assert!(matches!(unlocked, Err(Error::Lost(_))), "{unlocked:?}");

    let guard = lock.lock().await.unwrap();
    let redis = server.redis().await;
    redis.reset_stats().await;
    sleep(OUTLAST).await;
    assert!(scripts_run(&redis).await > 0, "nothing renewed it");
    assert!(guard.is_valid());
    assert!(redis.exists("a").await);
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    redis.assert_clean().await;
}
