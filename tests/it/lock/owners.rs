//! Calls of the same owner and of different owners, and guards that move to another task.

use std::sync::atomic::{AtomicU64, Ordering};

use lockdog::{Lock, Owner, Unlocked};
use tokio::sync::Barrier;
use tracing::Level;

use super::{Fixture, SOON, ms};
use crate::support::{Cell, Logs};

#[tokio::test]
async fn two_branches_of_one_task_are_one_owner() {
    let test = Fixture::start().await;
    let lock = test.client.lock("l");
    let (value, both_have_read) = (AtomicU64::new(0), Barrier::new(2));
    let branch = || async {
        let guard = lock.lock().await.unwrap();
        let read = value.load(Ordering::SeqCst);
        // If one branch were refused, the other would wait for it forever.
        both_have_read.wait().await;
        value.store(read + 1, Ordering::SeqCst);
        guard.unlock().await.unwrap();
    };
    let both = async { tokio::join!(branch(), branch()) };
    let both = tokio::time::timeout(SOON, both).await;
    both.expect("both are inside at the same time");
    // The documentation warns of this: an update was lost.
    assert_eq!(value.load(Ordering::SeqCst), 1);
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn two_branches_with_their_own_scopes_exclude_each_other() {
    let test = Fixture::start().await;
    let lock = test.client.lock("l");
    let cell = Cell::new();
    let branch = || async {
        for _ in 0..5 {
            let guard = lock.lock().await.unwrap();
            cell.bump(ms(5)).await;
            guard.unlock().await.unwrap();
        }
    };
    let (a, b) = (Owner::new(), Owner::new());
    tokio::join!(a.scope(branch()), b.scope(branch()));
    cell.assert_exclusive(10);
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn a_guard_moved_to_another_task_unlocks_under_its_own_owner() {
    let test = Fixture::start().await;
    let lock = test.client.lock("l");
    let owner = Owner::new();
    let guard = lock.lock().owner(&owner).await.unwrap();
    let unlocked = tokio::spawn(async move {
        assert_ne!(Owner::current(), owner);
        assert_eq!(guard.owner(), owner);
        guard.unlock().await.unwrap()
    });
    assert_eq!(unlocked.await.unwrap(), Unlocked::Released);
    assert!(test.redis.keys().await.is_empty());
}

#[tokio::test]
async fn a_guard_that_ends_in_another_task_is_named_in_the_log() {
    let test = Fixture::start().await;
    let (logs, _recording) = Logs::of_this_thread();
    let lock = test.client.lock("l");
    let guard = taken_in_a_task(&lock, None).await;
    let owner = guard.owner();
    tokio::spawn(async move { guard.unlock().await.unwrap() })
        .await
        .unwrap();
    let warnings = logs.at_least(Level::WARN);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let text = &warnings[0].text;
    assert!(text.contains("released by a different task"), "{text}");
    assert!(text.contains(&format!("owner={owner}")), "{text}");
    assert!(text.contains(".owner(&Owner::new())"), "{text}");

    // A dropped guard counts, too.
    let guard = taken_in_a_task(&lock, None).await;
    tokio::spawn(async move { drop(guard) }).await.unwrap();
    assert_eq!(logs.at_least(Level::WARN).len(), 2);
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn a_guard_with_an_explicit_owner_may_move_anywhere() {
    let test = Fixture::start().await;
    let (logs, _recording) = Logs::of_this_thread();
    let lock = test.client.lock("l");
    let guard = taken_in_a_task(&lock, Some(Owner::new())).await;
    tokio::spawn(async move { guard.unlock().await.unwrap() })
        .await
        .unwrap();
    let guard = taken_in_a_task(&lock, Some(Owner::new())).await;
    tokio::spawn(async move { drop(guard) }).await.unwrap();
    assert!(logs.at_least(Level::INFO).is_empty(), "{:?}", logs.lines());
    assert!(!logs.lines().is_empty(), "nothing is recorded at all");
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn a_guard_that_ends_in_its_task_or_outside_any_task_logs_no_warning() {
    let test = Fixture::start().await;
    let (logs, _recording) = Logs::of_this_thread();
    let lock = test.client.lock("l");
    let own = lock.clone();
    let task = tokio::spawn(async move {
        drop(own.lock().await.unwrap());
        own.lock().await.unwrap().unlock().await.unwrap();
    });
    task.await.unwrap();
    drop(lock.lock().await.unwrap());
    assert!(logs.at_least(Level::WARN).is_empty(), "{:?}", logs.lines());
    test.redis.assert_clean().await;
}

async fn taken_in_a_task(lock: &Lock, owner: Option<Owner>) -> lockdog::Guard {
    let request = match owner {
        Some(owner) => lock.lock().owner(&owner),
        None => lock.lock(),
    };
    tokio::spawn(async move { request.await.unwrap() })
        .await
        .unwrap()
}
