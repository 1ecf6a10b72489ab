//! Holders in separate processes that are stopped or killed while they hold the lock.

use std::fs;
use std::time::{Duration, Instant};

use lockdog::Owner;
use tokio::time::timeout;

use super::{LEASE, SAFETY, connect};
use crate::support::child::{Copy, argument, await_go_ahead, send};
use crate::support::{RedisServer, until_ok};

#[tokio::test]
async fn a_holder_stopped_beyond_its_lease_sees_the_loss_at_its_first_check() {
    let Some(argument) = argument() else {
        for lease in ["fixed", "watched"] {
            stopped_with_the_lock(lease).await;
        }
        return;
    };
    let mut words = argument.split(' ');
    let (Some(url), Some(path), Some(kind)) = (words.next(), words.next(), words.next()) else {
        panic!("{argument}");
    };
    let client = connect(url).await;
    let request = client.lock("a").lock();
    let guard = match kind {
        "fixed" => request.lease(LEASE).await.unwrap(),
        _ => request.await.unwrap(),
    };
    let write_if_valid = |text: &str| {
        let valid = guard.is_valid();
        if valid {
            fs::write(path, text).unwrap();
        }
        valid
    };
    assert!(write_if_valid("holding"));
    send("holding");
    // No task of this runtime runs after this line.
    await_go_ahead();
    send(if write_if_valid("too late") {
        "still valid"
    } else {
        "lost"
    });
    await_go_ahead();
}

async fn stopped_with_the_lock(lease: &str) {
    let server = RedisServer::start().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cell");
    let test =
        "watchdog::frozen::a_holder_stopped_beyond_its_lease_sees_the_loss_at_its_first_check";
    let argument = format!("{} {} {lease}", server.url(), path.display());
    let mut holder = Copy::run(test, &argument);
    assert_eq!(holder.receive(), "holding");
    holder.pause();
    let client = connect(&server.url()).await;
    let next = client.lock("a").try_lock().wait(SAFETY).await.unwrap();
    let next = next.expect("the stopped holder's lease ends");
    assert_eq!(fs::read_to_string(&path).unwrap(), "holding");
    fs::write(&path, "the next one").unwrap();
    holder.go_ahead();
    holder.resume();
    assert_eq!(holder.receive(), "lost");
    assert_eq!(fs::read_to_string(&path).unwrap(), "the next one");
    assert!(next.is_valid());
    holder.kill();
    next.unlock().await.unwrap();
    server.redis().await.assert_clean().await;
}

#[tokio::test]
async fn a_lock_whose_process_died_is_free_within_a_lease() {
    if let Some(url) = argument() {
        let client = connect(&url).await;
        let _guard = client.lock("a").lock().await.unwrap();
        send("holding");
        // Past the first renewals.
        tokio::time::sleep(LEASE).await;
        send("renewed");
        return std::future::pending().await;
    }
    let server = RedisServer::start().await;
    let test = "watchdog::frozen::a_lock_whose_process_died_is_free_within_a_lease";
    let mut holder = Copy::run(test, &server.url());
    assert_eq!(holder.receive(), "holding");
    assert_eq!(holder.receive(), "renewed");
    let client = connect(&server.url()).await;
    let lock = client.lock("a");
    assert!(lock.try_lock().await.unwrap().is_none(), "it is renewed");
    let redis = server.redis().await;
    holder.kill();
    let left = redis.pttl("a").await;
    // On a busy machine the key may be gone by now.
    let in_time = left == -2 || (1..=LEASE.as_millis() as i64).contains(&left);
    assert!(in_time, "{left} ms");
    let killed = Instant::now();
    let guard = lock.try_lock().wait(SAFETY).await.unwrap();
    println!("free {:?} after the end of its holder", killed.elapsed());
    guard.expect("the lease ends").unlock().await.unwrap();
    redis.assert_clean().await;
}

/// A lock without a release is free after its lease, and another round later as well.
#[tokio::test]
async fn a_lock_left_to_its_lease_can_be_acquired_again_and_again() {
    let server = RedisServer::start().await;
    let client = connect(&server.url()).await;
    let lease = Duration::from_millis(1_000);
    for _ in 0..3 {
        let first = client.lock("a").lock().owner(&Owner::new()).lease(lease);
        let held = until_ok(SAFETY, async || first.clone().await).await;
        held.forget();
        let next = timeout(SAFETY, client.lock("a").lock()).await.unwrap();
        next.unwrap().unlock().await.unwrap();
    }
    assert!(client.holds().is_empty());
    server.redis().await.assert_clean().await;
}
