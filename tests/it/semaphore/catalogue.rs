//! Redisson's own tests of its semaphore, translated.

use std::time::Instant;

use tokio::task::JoinSet;

use super::{Fixture, NAME, SOON, ms};
use crate::fixture::patient;
use crate::support::{Cell, timed};

/// RedissonSemaphoreTest.testZero.
#[tokio::test]
async fn zero_permits_are_acquired_without_a_wait() {
    let test = Fixture::with_permits(0).await;
    test.redis.cmd(&["DEL", NAME]).await;
    let none = test.seats.try_acquire_many(0).wait(SOON * 20);
    let (none, took) = timed(none.into_future()).await;
    none.unwrap().expect("it is granted").forget();
    assert!(took < SOON * 20);
    test.seats.release(0).await.unwrap();
    assert_eq!(test.seats.available().await.unwrap(), 0);
}

/// testAcquireWithoutSetPermits, testReleaseWithoutPermits.
#[tokio::test]
async fn releases_make_a_semaphore() {
    let test = Fixture::with_permits(0).await;
    let seats = test.client.semaphore("new");
    seats.release(1).await.unwrap();
    assert_eq!(seats.available().await.unwrap(), 1);
    seats.release(1).await.unwrap();
    seats.acquire_many(2).await.unwrap().forget();
    assert_eq!(seats.available().await.unwrap(), 0);
}

/// testTrySetPermits.
#[tokio::test]
async fn permits_are_set_once_for_a_time() {
    let test = Fixture::with_permits(10).await;
    assert!(!test.seats.try_set_permits(15).await.unwrap());
    assert_eq!(test.seats.available().await.unwrap(), 10);
    test.redis.cmd(&["DEL", NAME]).await;
    let began = Instant::now();
    assert!(test.seats.try_set_permits_for(1, ms(2_000)).await.unwrap());
    assert!(test.seats.available().await.unwrap() == 1 || began.elapsed() >= ms(2_000));
    test.redis.eventually_gone(NAME).await;
    assert!(began.elapsed() >= ms(2_000));
    assert_eq!(test.seats.available().await.unwrap(), 0);
}

/// testAddPermits, testReducePermits, testReleaseAcquire.
#[tokio::test]
async fn permits_are_added_and_removed_while_all_are_in_use() {
    for (by, added, released, left) in [(4, 4, 14, 9), (-5, -5, 5, 0)] {
        let test = Fixture::with_permits(10).await;
        let available = async || test.seats.available().await.unwrap();
        test.seats.acquire_many(10).await.unwrap().forget();
        assert_eq!(available().await, 0);
        test.seats.add_permits(by).await.unwrap();
        assert_eq!(available().await, added);
        test.seats.release(10).await.unwrap();
        assert_eq!(available().await, released);
        let five = test.seats.acquire_many(5).await.unwrap();
        assert_eq!(available().await, left);
        five.release().await.unwrap();
    }
}

/// testBlockingAcquire.
#[tokio::test]
async fn an_acquire_waits_for_a_release_of_another_task() {
    let test = Fixture::with_permits(1).await;
    let held = test.seats.acquire().await.unwrap();
    let waiting = tokio::spawn(test.seats.acquire().into_future());
    test.somebody_waits().await;
    assert!(!waiting.is_finished());
    tokio::spawn(held.release()).await.unwrap().unwrap();
    let held = tokio::time::timeout(SOON, waiting).await.unwrap();
    assert!(test.seats.try_acquire().await.unwrap().is_none());
    assert_eq!(test.seats.available().await.unwrap(), 0);
    drop(held);
}

/// testBlockingNAcquire.
#[tokio::test]
async fn an_acquire_of_several_waits_for_the_last_release_that_it_needs() {
    let test = Fixture::with_permits(5).await;
    let mut three = test.seats.acquire_many(3).await.unwrap();
    let waiting = tokio::spawn(test.seats.acquire_many(4).into_future());
    test.somebody_waits().await;
    three.split(1).unwrap().release().await.unwrap();
    tokio::time::sleep(ms(300)).await;
    assert!(!waiting.is_finished());
    three.split(1).unwrap().release().await.unwrap();
    let four = tokio::time::timeout(SOON, waiting).await.unwrap();
    assert_eq!(test.seats.available().await.unwrap(), 0);
    drop(four);
}

/// testDrainPermits, testReleaseIfExists.
#[tokio::test]
async fn a_drain_takes_what_is_free_and_a_missing_semaphore_stays_missing() {
    let test = Fixture::with_permits(10).await;
    let missing = test.client.semaphore("missing");
    assert!(missing.drain().await.unwrap().is_none());
    assert!(!missing.release_if_exists(10).await.unwrap());
    assert!(!test.redis.exists("missing").await);
    let three = test.seats.acquire_many(3).await.unwrap();
    let rest = test.seats.drain().await.unwrap().expect("seven are free");
    assert_eq!(rest.count(), 7);
    assert!(test.seats.drain().await.unwrap().is_none());
    drop((three, rest));
    test.eventually_free().await;
}

/// testConcurrency_SingleInstance, testConcurrencyLoop_MultiInstance, testConcurrency_MultiInstance_1_permits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_permit_excludes_tasks_and_clients() {
    let test = Fixture::with_permits(1).await;
    for (clients, rounds) in [(1, 15), (16, 100), (30, 1)] {
        let cell = Cell::new();
        let mut tasks = JoinSet::new();
        for n in 0..clients.max(2) {
            let client = match clients {
                1 => test.client.clone(),
                _ => patient(test.server.url()).build().await.unwrap(),
            };
            let (cell, seats) = (cell.clone(), client.semaphore(NAME));
            tasks.spawn(async move {
                for round in 0..rounds {
                    let permit = seats.acquire().await.unwrap();
                    cell.bump(ms(1)).await;
                    match (n + round) % 2 {
                        0 => {
                            permit.forget();
                            seats.release(1).await.unwrap();
                        }
                        _ => permit.release().await.unwrap(),
                    }
                }
            });
        }
        tasks.join_all().await;
        cell.assert_exclusive(i64::from(clients.max(2) * rounds));
    }
    test.eventually_free().await;
}
