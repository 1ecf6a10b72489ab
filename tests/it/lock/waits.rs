//! Waits that end with a time limit, and how waiters learn that a lock is free.

use std::time::{Duration, Instant};

use lockdog::config::{Backoff, Wake};
use lockdog::{Client, Owner};

use super::{Fixture, Kind, SOON, each_kind, ms, waiter};
use crate::support::{eventually, until_ok};

each_kind! {
    every: {
        a_wait_that_times_out_returns_none_and_not_early
        a_wait_beyond_the_range_of_clocks_works
        a_waiter_that_is_dropped_gets_nothing_and_leaves_nothing
        polling_finds_a_lock_that_was_freed_without_a_message
        polling_waiters_do_not_subscribe
        a_handle_with_its_own_backoff_does_not_subscribe
    }
    published: {
        a_message_of_another_clients_unlock_wakes_the_waiter
    }
    whole_key: {
        a_foreign_key_without_a_ttl_does_not_block_its_waiters_forever
    }
}

async fn a_wait_that_times_out_returns_none_and_not_early(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let held = test.held_elsewhere("l").await;
    let ours = test.lock("ours");
    let busy = ours.lock().owner(&Owner::new()).await.unwrap();
    for lock in [test.lock("l"), ours] {
        for wait in [1, 50, 1_000].map(ms) {
            let start = Instant::now();
            let ask = async || lock.try_lock().wait(wait).owner(&Owner::new()).await;
            if wait == ms(1_000) {
                assert!(until_ok(SOON, ask).await.is_none());
            } else {
                match ask().await {
                    Ok(guard) => assert!(guard.is_none()),
                    // On a busy machine an answer, or a connection after a late answer, may take longer.
                    Err(error) => assert!(error.is_retriable(), "{error}"),
                }
            }
            assert!(start.elapsed() >= wait, "{:?} of {wait:?}", start.elapsed());
        }
    }
    assert!(held.is_valid());
    // A failed wait does not affect the next one.
    held.unlock().await.unwrap();
    let next = test.lock("l").try_lock().await.unwrap();
    next.expect("it is free").unlock().await.unwrap();
    drop(busy);
    test.redis.assert_clean().await;
}

async fn a_waiter_that_is_dropped_gets_nothing_and_leaves_nothing(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let held = test.held_elsewhere("l").await;
    let client = test.another().await;
    test.redis.reset_stats().await;
    let waiting = waiter(&kind.lock(&client, "l"));
    eventually(SOON, "it has asked twice", async || {
        test.calls(["evalsha"]).await[0] >= 2
    })
    .await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    held.unlock().await.unwrap();
    let next = test.lock("l").try_lock().wait(SOON).await.unwrap();
    let next = next.expect("no other owner waits");
    eventually(SOON, "nothing is left of the waiter", async || {
        client.holds().is_empty()
    })
    .await;
    assert!(next.is_valid());
    next.unlock().await.unwrap();
    test.redis.eventually_empty().await;
    test.redis.assert_clean().await;
}

async fn a_wait_beyond_the_range_of_clocks_works(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let lock = test.lock("l");
    let free = lock.try_lock().wait(Duration::MAX).await.unwrap();
    let held = free.expect("it is free");
    let request = lock.try_lock().wait(Duration::MAX).owner(&Owner::new());
    let waiting = tokio::spawn(request.into_future());
    tokio::time::sleep(ms(50)).await;
    assert!(!waiting.is_finished());
    held.unlock().await.unwrap();
    let next = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
    next.unwrap().expect("it was freed").unlock().await.unwrap();
    test.redis.assert_clean().await;
}

async fn a_message_of_another_clients_unlock_wakes_the_waiter(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let client = test.without_polling().await;
    let held = test.held_elsewhere("l").await;
    let waiting = waiter(&kind.lock(&client, "l"));
    let listens = async || test.redis.channels().await == ["redisson_lock__channel:{l}"];
    eventually(SOON, "the waiter listens", listens).await;
    held.unlock().await.unwrap();
    let next = tokio::time::timeout(SOON, waiting).await;
    let next = next
        .expect("neither TTL nor poll cap can wake it in time")
        .unwrap();
    next.unlock().await.unwrap();
    test.redis.assert_clean().await;
}

async fn polling_finds_a_lock_that_was_freed_without_a_message(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let client = Client::builder()
        .url(test.server.url())
        .poll_cap(ms(100))
        .build()
        .await
        .unwrap();
    let _gone = test.held_elsewhere("l").await;
    test.redis.reset_stats().await;
    let waiting = waiter(&kind.lock(&client, "l"));
    let polls = async || test.calls(["evalsha"]).await[0] >= 3;
    eventually(SOON, "it found the lock busy and asks again", polls).await;
    test.redis.cmd(&["DEL", "l"]).await;
    let next = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
    next.unlock().await.unwrap();
    test.redis.assert_clean().await;
}

async fn polling_waiters_do_not_subscribe(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let client = Client::builder()
        .url(test.server.url())
        .wake(Wake::Poll(Backoff::constant(ms(10))))
        .build()
        .await
        .unwrap();
    let held = test.held_elsewhere("l").await;
    test.redis.reset_stats().await;
    let waiting = waiter(&kind.lock(&client, "l"));
    let polls = async || test.calls(["evalsha"]).await[0] >= 5;
    eventually(SOON, "it polls", polls).await;
    held.unlock().await.unwrap();
    let next = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
    assert_eq!(test.calls(["subscribe"]).await, [0]);
    next.unlock().await.unwrap();
    test.redis.assert_clean().await;
}

async fn a_handle_with_its_own_backoff_does_not_subscribe(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let held = test.held_elsewhere("l").await;
    test.redis.reset_stats().await;
    let waiting = waiter(&test.lock("l").backoff(Backoff::constant(ms(10))));
    let polls = async || test.calls(["evalsha"]).await[0] >= 5;
    eventually(SOON, "it polls", polls).await;
    held.unlock().await.unwrap();
    let next = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
    assert_eq!(test.calls(["subscribe"]).await, [0]);
    next.unlock().await.unwrap();
    test.redis.assert_clean().await;
}

/// A key without a TTL: its end notifies no client.
async fn a_foreign_key_without_a_ttl_does_not_block_its_waiters_forever(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    test.redis.cmd(&["HSET", "l", "somebody:1", "1"]).await;
    let lock = test.lock("l");
    assert!(lock.try_lock().await.unwrap().is_none());
    assert!(
        until_ok(SOON, async || lock.try_lock().wait(ms(1_000)).await)
            .await
            .is_none()
    );
    assert_eq!(
        lock.remaining_ttl().await.unwrap(),
        Some(lockdog::report::Ttl::Persistent)
    );
    let waiting = waiter(&lock);
    tokio::time::sleep(ms(100)).await;
    assert!(!waiting.is_finished());
    test.redis.cmd(&["DEL", "l"]).await;
    let next = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
    next.unlock().await.unwrap();
    test.redis.assert_clean().await;
}
