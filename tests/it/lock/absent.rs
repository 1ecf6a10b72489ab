//! Futures that are polled a few times and then kept without being polled.

use lockdog::{Client, Owner};
use tokio::task::JoinSet;

use super::{Fixture, LONG, SOON, ms, poll_once, waiter};
use crate::support::eventually;

/// Invariant 9, for a lock that another owner holds and frees.
#[tokio::test]
async fn a_waiter_that_is_not_polled_does_not_block_the_others() {
    let test = Fixture::start().await;
    let client = quick(&test).await;
    test.warm_up(&client).await;
    let lock = client.lock("l");
    for polls in 1..=8 {
        let held = test.held_elsewhere("l").await;
        let mut left = lock.lock().owner(&Owner::new()).into_future();
        for _ in 0..polls {
            assert!(poll_once(&mut left).await.is_none());
            tokio::time::sleep(ms(10)).await;
        }
        // The first of them that detects it takes the turn over.
        let mut others = JoinSet::new();
        for _ in 0..2 {
            let request = lock.lock().owner(&Owner::new());
            others.spawn(async move { request.await.unwrap().unlock().await.unwrap() });
        }
        tokio::time::sleep(ms(50)).await;
        held.unlock().await.unwrap();
        let others = tokio::time::timeout(SOON, others.join_all()).await;
        assert!(others.is_ok(), "blocked after {polls} polls");
        // When it is polled again, it gets the lock, too.
        let late = tokio::time::timeout(SOON, left).await.unwrap().unwrap();
        late.unlock().await.unwrap();
        test.redis.assert_clean().await;
        assert!(test.redis.keys().await.is_empty());
    }
}

/// Invariant 9, for a free lock: Redis grants it to a future that is not polled for the answer.
#[tokio::test]
async fn a_grant_that_no_waiter_takes_passes_on() {
    let test = Fixture::start().await;
    let client = quick(&test).await;
    test.warm_up(&client).await;
    let lock = client.lock("l");
    let mut left = lock.lock().lease(LONG).owner(&Owner::new()).into_future();
    assert!(poll_once(&mut left).await.is_none());
    let granted = async || test.redis.exists("l").await;
    eventually(SOON, "Redis granted the lock", granted).await;
    let before = test.redis.hash("l").await;
    // The lease is five minutes, so this waiter gets the lock only if the grant is undone.
    let other = tokio::time::timeout(SOON, waiter(&lock)).await;
    let other = other.expect("the grant was not undone").unwrap();
    assert_ne!(test.redis.hash("l").await, before);
    assert!(other.is_valid());
    // The unpolled future cannot get the lock now, but later.
    assert!(poll_once(&mut left).await.is_none());
    other.unlock().await.unwrap();
    let late = tokio::time::timeout(SOON, left).await.unwrap().unwrap();
    assert!(late.is_valid());
    late.unlock().await.unwrap();
    test.redis.assert_clean().await;
    assert!(test.redis.keys().await.is_empty());
}

#[tokio::test]
async fn an_abandoned_waiter_leaves_nothing_when_it_is_dropped() {
    let test = Fixture::start().await;
    let client = quick(&test).await;
    let lock = client.lock("l");
    for polls in 1..=3 {
        let mut left = lock.lock().lease(LONG).owner(&Owner::new()).into_future();
        for _ in 0..polls {
            if poll_once(&mut left).await.is_some() {
                break;
            }
        }
        let other = waiter(&lock);
        tokio::time::sleep(ms(20)).await;
        drop(left);
        let other = tokio::time::timeout(SOON, other).await.unwrap().unwrap();
        other.unlock().await.unwrap();
        test.redis.assert_clean().await;
        assert!(test.redis.keys().await.is_empty());
        assert!(client.holds().is_empty());
    }
}

async fn quick(test: &Fixture) -> Client {
    Client::builder()
        .url(test.server.url())
        .poll_cap(ms(100))
        .build()
        .await
        .unwrap()
}
