//! Which waits end, when, and with how many commands.

use std::time::{Duration, Instant};

use lockdog::config::{Backoff, Wake};
use lockdog::{Client, CountDownLatch, Error};
use tokio::task::JoinHandle;

use super::{CHANNEL, Fixture, LONG, NAME, SOON, ms, poll_once};
use crate::support::{eventually, until_ok};
use crate::turn::answered;

fn waiter(latch: &CountDownLatch) -> JoinHandle<lockdog::Result<()>> {
    let latch = latch.clone();
    tokio::spawn(async move { latch.wait_zero().await })
}

async fn within_soon(waiter: JoinHandle<lockdog::Result<()>>) {
    let ended = tokio::time::timeout(SOON, waiter).await;
    ended.expect("it is let go").unwrap().unwrap();
}

/// CL2: by a message.
#[tokio::test]
async fn a_message_ends_the_waits_of_other_clients() {
    for deleted in [false, true] {
        let test = Fixture::with_count(Some(2)).await;
        let waiting = waiter(&test.another().await);
        test.somebody_waits().await;
        test.start.count_down().await.unwrap();
        tokio::time::sleep(ms(200)).await;
        assert!(!waiting.is_finished());
        match deleted {
            true => assert!(test.start.delete().await.unwrap()),
            false => test.start.count_down().await.unwrap(),
        }
        within_soon(waiting).await;
    }
}

/// One query serves all waiters of a client.
#[tokio::test]
async fn a_hundred_waiters_of_one_client_ask_a_few_times() {
    let test = Fixture::with_count(Some(1)).await;
    let another = test.another().await;
    test.redis.reset_stats().await;
    let waiting: Vec<_> = (0..100).map(|_| waiter(&another)).collect();
    test.somebody_waits().await;
    let more: Vec<_> = (0..100).map(|_| waiter(&another)).collect();
    tokio::time::sleep(ms(200)).await;
    // The other client sends a query, too.
    test.redis.cmd(&["DEL", NAME]).await;
    test.redis.cmd(&["PUBLISH", CHANNEL, "0"]).await;
    for waiter in waiting.into_iter().chain(more) {
        within_soon(waiter).await;
    }
    let stats = test.redis.commandstats().await;
    // Waiters that join during a query need one more.
    assert!((2..20).contains(&stats["get"]), "{stats:?}");
    eventually(SOON, "no client listens", async || {
        test.redis.channels().await.is_empty()
    })
    .await;
}

/// CL2 and CL3: without a message the timer ends the wait.
#[tokio::test]
async fn a_lost_message_costs_a_poll_cap() {
    let test = Fixture::with_count(Some(1)).await;
    let waiting = waiter(&test.with(|client| client.poll_cap(ms(200))).await);
    test.somebody_waits().await;
    test.redis.cmd(&["DEL", NAME]).await;
    within_soon(waiting).await;
}

/// CL2: a new count does not keep a waiter that received the message of the zero.
#[tokio::test]
async fn a_zero_that_is_over_when_its_message_comes_counts() {
    let test = Fixture::with_count(Some(1)).await;
    let another = test.another().await;
    let waiting = waiter(&another);
    test.somebody_waits().await;
    // In one script, so that no query finds the zero.
    let script = "redis.call('set', KEYS[1], '7') redis.call('publish', ARGV[1], '0')";
    test.redis.cmd(&["EVAL", script, "1", NAME, CHANNEL]).await;
    within_soon(waiting).await;
    // Later waiters wait for the new count. On a busy machine it may be unknown when the wait is over.
    let waited = async || another.wait_zero_within(ms(300)).await;
    assert!(!until_ok(SOON, waited).await);
    // Another message does not end the wait.
    let waiting = waiter(&another);
    test.somebody_waits().await;
    test.redis.cmd(&["PUBLISH", CHANNEL, "1"]).await;
    tokio::time::sleep(ms(200)).await;
    assert!(!waiting.is_finished());
    waiting.abort();
}

/// CL2: another waiter of the client has queried before, and nothing notifies the client of the zero.
#[tokio::test]
async fn a_short_wait_beside_another_waiter_asks_for_itself() {
    for wake in [Wake::Poll(Backoff::default()), Wake::PubSub] {
        let test = Fixture::with_count(Some(2)).await;
        let client = Client::builder().url(test.server.url()).wake(wake);
        let client = client.poll_cap(LONG).build().await.unwrap();
        let another = client.count_down_latch(NAME);
        test.redis.reset_stats().await;
        let waiting = waiter(&another);
        eventually(SOON, "it has asked", async || {
            test.redis.commandstats().await.contains_key("get")
        })
        .await;
        for is_open in [false, true] {
            // Without a message, like Redisson's `delete`.
            test.redis.cmd(&["DECR", NAME]).await;
            let answer = answered(async || another.wait_zero_within(Duration::ZERO).await);
            assert_eq!(answer.await, is_open);
        }
        within_soon(waiting).await;
    }
}

/// testAwaitTimeout, testAwaitTimeoutFail.
#[tokio::test]
async fn a_wait_ends_with_its_time() {
    let test = Fixture::with_count(Some(1)).await;
    let another = test.another().await;
    let began = Instant::now();
    let waited = async || another.wait_zero_within(ms(300)).await;
    assert!(!until_ok(SOON, waited).await);
    assert!(began.elapsed() >= ms(300));
    let start = another.clone();
    let waiting = tokio::spawn(async move { start.wait_zero_within(LONG).await });
    test.somebody_waits().await;
    test.start.count_down().await.unwrap();
    let ended = tokio::time::timeout(SOON, waiting)
        .await
        .expect("it is let go");
    assert!(ended.unwrap().unwrap());
}

/// CL3: a waiter that is dropped or not polled delays no other waiter, and the last one ends the query.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_waiters_delay_no_other_waiter() {
    let test = Fixture::with_count(Some(1)).await;
    let another = test.another().await;
    let mut left = Box::pin(another.wait_zero());
    assert!(poll_once(&mut left).await.is_none());
    assert!(poll_once(another.wait_zero()).await.is_none());
    let waiting = waiter(&another);
    test.somebody_waits().await;
    test.start.count_down().await.unwrap();
    within_soon(waiting).await;
    left.await.unwrap();
    assert!(test.start.try_set_count(1).await.unwrap());
    let dropped = waiter(&another);
    test.somebody_waits().await;
    dropped.abort();
    eventually(SOON, "no client listens", async || {
        test.redis.channels().await.is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_shutdown_ends_the_wait() {
    let test = Fixture::with_count(Some(1)).await;
    let client = Client::connect(test.server.url()).await.unwrap();
    let latch = client.count_down_latch(NAME);
    let (waiting, start) = (waiter(&latch), latch.clone());
    let patient = tokio::spawn(async move { start.wait_zero_within(LONG).await });
    test.somebody_waits().await;
    client.shutdown().await;
    for ended in [
        tokio::time::timeout(SOON, waiting)
            .await
            .unwrap()
            .unwrap()
            .map(|()| true),
        tokio::time::timeout(SOON, patient).await.unwrap().unwrap(),
        latch.count_down().await.map(|()| true),
        latch.wait_zero_within(SOON).await,
    ] {
        assert!(matches!(ended, Err(Error::Closed)), "{ended:?}");
    }
}
