//! Work under a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lockdog::error::LostReason;
use lockdog::{Error, Owner};

use super::{Fixture, LONG, SOON, ms};
use crate::support::eventually;

#[tokio::test]
async fn with_runs_the_work_under_the_lock_and_returns_its_output() {
    let test = Fixture::start().await;
    let lock = test.client.lock("l");
    let redis = &test.redis;
    let work = async |_| redis.hash("l").await.len();
    assert_eq!(lock.with(work).await.unwrap(), 1);
    assert_eq!(lock.lock().lease(LONG).with(work).await.unwrap(), 1);
    assert_eq!(lock.try_lock().with(work).await.unwrap(), Some(1));
    assert_eq!(
        lock.try_lock().wait(SOON).with(work).await.unwrap(),
        Some(1)
    );
    assert!(test.redis.keys().await.is_empty());
    // The work may return its own error.
    let failed: Result<(), &str> = lock.with(|_| async { Err("no paper") }).await.unwrap();
    assert_eq!(failed, Err("no paper"));
    assert!(test.redis.keys().await.is_empty());
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn with_does_not_start_the_work_if_the_lock_is_busy() {
    let test = Fixture::start().await;
    let lock = test.client.lock("l");
    let held = lock.lock().owner(&Owner::new()).await.unwrap();
    let begun = AtomicBool::new(false);
    let work = |_| async { begun.store(true, Ordering::Relaxed) };
    assert_eq!(lock.try_lock().with(work).await.unwrap(), None);
    assert_eq!(
        lock.try_lock().wait(ms(1_000)).with(work).await.unwrap(),
        None
    );
    assert!(!begun.load(Ordering::Relaxed));
    held.unlock().await.unwrap();
}

#[tokio::test]
async fn nested_work_reenters() {
    let test = Fixture::start().await;
    let lock = test.client.lock("l");
    let count = lock
        .with(|_| async { lock.with(|held| async move { held.hold_count() }).await })
        .await
        .unwrap();
    assert_eq!(count.unwrap(), 2);
    assert!(test.redis.keys().await.is_empty());
}

#[tokio::test]
async fn the_work_is_cancelled_when_the_key_is_deleted() {
    cancelled_when_the_key_is(false).await;
}

#[tokio::test]
async fn the_work_is_cancelled_when_another_owner_has_the_lock() {
    cancelled_when_the_key_is(true).await;
}

#[tokio::test]
async fn the_work_is_cancelled_when_its_lease_ends() {
    let test = Fixture::start().await;
    let lock = test.client.lock("l");
    // On a busy machine the grant may come when the lease is over.
    eventually(LONG, "the work begins", async || {
        let request = lock.lock().lease(ms(1_000));
        let work = request.with(|_| std::future::pending::<()>());
        let ended = tokio::time::timeout(SOON, work).await.unwrap();
        match ended.unwrap_err() {
            Error::Lost(lost) => {
                assert_eq!(lost.reason(), LostReason::Deadline);
                true
            }
            error => {
                assert!(error.is_timeout(), "{error}");
                false
            }
        }
    })
    .await;
}

#[tokio::test]
async fn the_output_of_work_that_outlived_its_lock_is_discarded() {
    let test = Fixture::start().await;
    let lock = test.client.lock("l");
    let redis = &test.redis;
    let output = lock
        .lock()
        .lease(LONG)
        .with(async |_| {
            redis.cmd(&["DEL", "l"]).await;
            "done"
        })
        .await;
    assert!(output.unwrap_err().is_lost());
}

#[tokio::test]
async fn a_panic_in_the_work_releases_the_lock() {
    let test = Fixture::start().await;
    let lock = test.client.lock("l");
    let work = {
        let lock = lock.clone();
        tokio::spawn(async move { lock.with(|_| async { panic!("on purpose") }).await })
    };
    assert!(work.await.unwrap_err().is_panic());
    // Its lease is 30 s, and the task is not polled any more.
    let free = async || !test.redis.exists("l").await;
    eventually(SOON, "the lock was released", free).await;
    let next = lock.try_lock().await.unwrap().expect("it is free");
    next.unlock().await.unwrap();
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn a_cancelled_call_drops_the_work_and_releases_the_lock() {
    let test = Fixture::start().await;
    let lock = test.client.lock("l");
    let alive = Arc::new(());
    let work = {
        let (lock, alive) = (lock.clone(), alive.clone());
        tokio::spawn(async move {
            lock.with(|_| async move {
                let _alive = alive;
                std::future::pending::<()>().await
            })
            .await
        })
    };
    eventually(SOON, "it is held", async || test.redis.exists("l").await).await;
    work.abort();
    assert!(work.await.unwrap_err().is_cancelled());
    assert_eq!(Arc::strong_count(&alive), 1);
    eventually(SOON, "it is free", async || !test.redis.exists("l").await).await;
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn a_request_in_a_scope_belongs_to_the_owner_of_the_scope() {
    let test = Fixture::start().await;
    let lock = test.client.lock("l");
    let owner = Owner::new();
    let guard = owner.scope(lock.lock()).await.unwrap();
    assert_eq!(guard.owner(), owner);
    assert!(lock.is_held_by(&owner).await.unwrap());
    assert!(!lock.is_held().await.unwrap());
    guard.unlock().await.unwrap();
    test.redis.assert_clean().await;
}

/// The watchdog's next renewal detects it.
async fn cancelled_when_the_key_is(taken: bool) {
    let test = Fixture::start().await;
    let client = lockdog::Client::builder()
        .url(test.server.url())
        .watchdog_lease(ms(6_000))
        .build()
        .await
        .unwrap();
    let lock = client.lock("l");
    let alive = Arc::new(());
    let inside = alive.clone();
    let redis = &test.redis;
    let work = lock.with(|held| async move {
        redis.cmd(&["DEL", "l"]).await;
        if taken {
            redis.cmd(&["HSET", "l", "another:1", "1"]).await;
            redis.cmd(&["PEXPIRE", "l", "300000"]).await;
        }
        std::future::pending::<()>().await;
        drop((inside, held));
    });
    let error = tokio::time::timeout(SOON, work).await.unwrap().unwrap_err();
    let Error::Lost(lost) = &error else {
        panic!("{error}")
    };
    assert_eq!(lost.reason(), LostReason::NotOurs);
    assert_eq!(Arc::strong_count(&alive), 1, "the work still runs");
    // The other owner's lock is unchanged.
    assert_eq!(test.redis.exists("l").await, taken);
    test.redis.assert_clean().await;
}
