//! `shutdown()`: everything is released, every owner is notified, no key is left.

use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use lockdog::error::LostReason;
use lockdog::{Client, Error, Owner};
use tokio::time::{sleep, timeout};

use super::{LEASE, SAFETY, builder, connect, connected, hold_many, is_acquire};
use crate::support::child::is_alone;
use crate::support::{Action, Gate, Proxy, Redis, RedisServer, eventually};

#[tokio::test]
async fn a_shutdown_releases_a_thousand_locks_and_reports_the_number() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let client = builder(&server.url()).watchdog_lease(SAFETY);
    let client = connected(client.command_timeout(SAFETY)).await;
    let guards = hold_many(&client, "a", 1000).await;
    assert_eq!(redis.keys().await.len(), 1000);
    let report = client.shutdown().await;
    assert_eq!((report.released, report.unconfirmed), (1000, 0));
    assert!(redis.keys().await.is_empty(), "it waited for the releases");
    assert!(client.holds().is_empty());
    for guard in guards {
        assert!(!guard.is_valid());
        assert_eq!(guard.lost().await.reason(), LostReason::ShutDown);
    }
    redis.assert_clean().await;
}

#[tokio::test]
async fn a_shutdown_ends_waiters_and_later_calls_with_closed() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let holder = connect(&server.url()).await;
    let guard = holder.lock("a").lock().await.unwrap();
    let client = connect(&server.url()).await;
    let lock = client.lock("a");
    let waiters: Vec<_> = (0..5)
        .map(|i| {
            let request = lock.lock().owner(&Owner::from_id(i));
            tokio::spawn(request.into_future())
        })
        .collect();
    let patient = tokio::spawn(lock.try_lock().wait(SAFETY * 3).into_future());
    eventually(SAFETY, "they wait", async || {
        !redis.channels().await.is_empty()
    })
    .await;
    client.shutdown().await;
    for waiter in waiters {
        let outcome = timeout(SAFETY, waiter).await.unwrap().unwrap();
        assert!(matches!(outcome, Err(Error::Closed)), "{outcome:?}");
    }
    let outcome = timeout(SAFETY, patient).await.unwrap().unwrap();
    assert!(matches!(outcome, Err(Error::Closed)), "{outcome:?}");
    assert!(matches!(lock.lock().await, Err(Error::Closed)));
    assert!(matches!(lock.try_lock().await, Err(Error::Closed)));
    assert!(matches!(lock.unlock().await, Err(Error::Closed)));
    assert!(matches!(lock.force_unlock().await, Err(Error::Closed)));
    assert!(matches!(lock.is_locked().await, Err(Error::Closed)));
    assert!(matches!(lock.hold_count().await, Err(Error::Closed)));
    assert!(matches!(lock.remaining_ttl().await, Err(Error::Closed)));
    let out = lock.with(|_| async {}).await;
    assert!(matches!(out, Err(Error::Closed)));
    assert!(guard.is_valid(), "the other client keeps its lock");
    guard.unlock().await.unwrap();
    redis.assert_clean().await;
}

#[tokio::test]
async fn a_shutdown_leaves_no_thread_and_no_connection() {
    if !is_alone("watchdog::clean_end::a_shutdown_leaves_no_thread_and_no_connection") {
        return;
    }
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let client = connected(builder(&server.url()).client_name("dog")).await;
    let (guard, waiter) = use_every_connection(&client, &redis).await;
    assert_eq!(threads(), 1);
    client.shutdown().await;
    // After its last log line the thread only exits.
    eventually(SAFETY, "the thread ended", async || threads() == 0).await;
    let outcome = timeout(SAFETY, waiter).await.unwrap().unwrap();
    assert!(matches!(outcome, Err(Error::Closed)));
    // The handles still exist, so the shutdown must close the connections.
    no_connection_is_left(&redis).await;
    drop((client, guard));
    redis.assert_clean().await;
}

#[tokio::test]
async fn a_second_shutdown_returns_at_once() {
    let server = RedisServer::start().await;
    let client = connect(&server.url()).await;
    let guard = client.lock("a").lock().await.unwrap();
    let clone = client.clone();
    assert_eq!(client.shutdown().await.released, 1);
    let report = timeout(SAFETY, clone.shutdown()).await.unwrap();
    assert_eq!((report.released, report.unconfirmed), (0, 0));
    drop(guard);
    server.redis().await.assert_clean().await;
}

#[tokio::test]
async fn two_concurrent_shutdowns_both_end() {
    let server = RedisServer::start().await;
    let client = connect(&server.url()).await;
    let guards = hold_many(&client, "a", 50).await;
    let both = async { tokio::join!(client.shutdown(), client.shutdown()) };
    let (first, second) = timeout(SAFETY, both).await.unwrap();
    assert_eq!(first.released + second.released, 50);
    assert!(server.redis().await.keys().await.is_empty());
    drop(guards);
}

#[tokio::test]
async fn a_shutdown_with_a_frozen_server_ends_and_reports_unconfirmed_releases() {
    let server = RedisServer::start().await;
    let limit = Duration::from_secs(2);
    let patient = builder(&server.url()).watchdog_lease(SAFETY);
    let client = connected(patient.command_timeout(limit)).await;
    let guards = hold_many(&client, "a", 10).await;
    server.pause();
    let began = Instant::now();
    let report = timeout(SAFETY, client.shutdown()).await.expect("it ends");
    println!("ended after {:?}", began.elapsed());
    assert_eq!((report.released, report.unconfirmed), (0, 10));
    assert!(guards.iter().all(|guard| !guard.is_valid()));
    drop(guards);
    server.resume();
    server.redis().await.assert_clean().await;
}

#[tokio::test]
async fn a_shutdown_with_a_frozen_server_counts_the_release_of_a_dropped_guard() {
    let server = RedisServer::start().await;
    let limit = Duration::from_secs(2);
    let patient = builder(&server.url()).watchdog_lease(SAFETY);
    let client = connected(patient.command_timeout(limit)).await;
    let held = client.lock("held").lock().await.unwrap();
    let dropped = client.lock("dropped").lock().await.unwrap();
    server.pause();
    drop(dropped);
    let report = timeout(SAFETY, client.shutdown()).await.expect("it ends");
    assert_eq!((report.released, report.unconfirmed), (0, 2));
    assert!(!held.is_valid());
    server.resume();
    server.redis().await.assert_clean().await;
}

#[tokio::test]
async fn a_cancelled_shutdown_can_be_called_again() {
    let server = RedisServer::start().await;
    let client = connected(builder(&server.url()).watchdog_lease(SAFETY)).await;
    let guards = hold_many(&client, "a", 100).await;
    server.pause();
    let cancelled = timeout(LEASE / 4, client.shutdown()).await;
    assert!(cancelled.is_err(), "it waits for the server");
    assert!(matches!(client.lock("b").lock().await, Err(Error::Closed)));
    server.resume();
    timeout(SAFETY, client.shutdown()).await.expect("it ends");
    let redis = server.redis().await;
    assert!(redis.keys().await.is_empty());
    assert!(guards.iter().all(|guard| !guard.is_valid()));
    redis.assert_clean().await;
}

#[tokio::test]
async fn an_acquire_answered_after_the_shutdown_returns_no_unwatched_guard() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let proxy = Proxy::start(&server).await;
    // Only a release frees the lock in time.
    let client = connected(builder(proxy.url()).watchdog_lease(SAFETY * 3)).await;
    // The server knows the script, so that the answer held back is a grant.
    client.lock("warm").try_lock().await.unwrap();
    let gate = Gate::new();
    proxy.on(is_acquire, Action::HoldReply(gate.clone()));
    let call = tokio::spawn(client.lock("a").try_lock().into_future());
    gate.wait_reached().await;
    eventually(SAFETY, "it was granted", async || redis.exists("a").await).await;
    timeout(SAFETY, client.shutdown()).await.expect("it ends");
    gate.open();
    let outcome = timeout(SAFETY, call).await.unwrap().unwrap();
    assert!(!matches!(&outcome, Ok(Some(guard)) if guard.is_valid()));
    drop(outcome);
    eventually(SAFETY, "it is free", async || !redis.exists("a").await).await;
}

/// Invariant 6: after the shutdown no task could undo a further command.
#[tokio::test]
async fn calls_abandoned_while_connecting_send_nothing_after_the_shutdown() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let client = connected(builder(&server.url()).client_name("left")).await;
    let others = connect(&server.url()).await;
    let _held = others.lock("held").lock().await.unwrap();
    let (free, held) = (client.lock("free"), client.lock("held"));
    let holder = held.holder().await.unwrap().expect("it is held");
    assert!(redis.kill_named("left").await > 0);
    // The ends of these connections are visible here, too.
    sleep(Duration::from_millis(300)).await;
    let mut acquire = pin!(free.try_lock().lease(SAFETY).into_future());
    let mut force = pin!(held.force_unlock().expecting(&holder).into_future());
    let mut question = pin!(held.is_locked());
    assert!(acquire.as_mut().now_or_never().is_none());
    assert!(force.as_mut().now_or_never().is_none());
    assert!(question.as_mut().now_or_never().is_none());
    client.shutdown().await;
    let acquired = timeout(SAFETY, acquire).await.expect("it ends");
    assert!(matches!(acquired, Err(Error::Closed)), "{acquired:?}");
    let freed = timeout(SAFETY, force).await.expect("it ends");
    assert!(matches!(freed, Err(Error::Closed)), "{freed:?}");
    let answered = timeout(SAFETY, question).await.expect("it ends");
    assert!(matches!(answered, Err(Error::Closed)), "{answered:?}");
    assert_eq!(redis.keys().await, ["held"]);
    eventually(SAFETY, "its connections end", async || {
        let clients = redis.clients().await;
        !clients.iter().any(|client| client.name == "left")
    })
    .await;
}

/// A held lock, and a waiter for another one, so that every kind of connection is open.
async fn use_every_connection(
    client: &Client,
    redis: &Redis,
) -> (
    lockdog::Guard,
    tokio::task::JoinHandle<lockdog::Result<lockdog::Guard>>,
) {
    redis.cmd(&["HSET", "b", "somebody:1", "1"]).await;
    redis.cmd(&["PEXPIRE", "b", "30000"]).await;
    let guard = client.lock("a").lock().await.unwrap();
    let waiter = tokio::spawn(client.lock("b").lock().into_future());
    eventually(SAFETY, "it waits", async || {
        !redis.channels().await.is_empty()
    })
    .await;
    // The connections of the callers, for messages, and of the watchdog.
    eventually(SAFETY, "every connection is open", async || {
        connections(redis).await >= 3
    })
    .await;
    (guard, waiter)
}

/// How many threads of this process are lockdog's.
pub(super) fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    tasks
        .filter_map(name)
        .filter(|name| name.trim_end() == "lockdog")
        .count()
}

/// How many connections the server has beside the observer's.
pub(super) async fn connections(redis: &Redis) -> usize {
    redis.clients().await.len() - 1
}

pub(super) async fn no_connection_is_left(redis: &Redis) {
    eventually(SAFETY, "every connection is closed", async || {
        connections(redis).await == 0
    })
    .await;
}
