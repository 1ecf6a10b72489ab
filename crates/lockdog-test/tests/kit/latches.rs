//! Count-down latches on the test server, whose clock is tokio's.

use std::time::Duration;

use lockdog::Error;
use lockdog_test::Server;
use tokio::time::{Instant, sleep};

const LONG: Duration = Duration::from_secs(3 * 3600);

#[tokio::test(start_paused = true)]
async fn a_wait_ends_after_hours_without_a_message() {
    let server = Server::new();
    let (client, other) = (server.client().await, server.client().await);
    let start = client.count_down_latch("start");
    assert!(start.try_set_count(1).await.unwrap());
    let began = Instant::now();
    assert!(!start.wait_zero_within(LONG).await.unwrap());
    assert!(began.elapsed() >= LONG);
    let waiting = tokio::spawn(async move { start.wait_zero().await });
    sleep(LONG).await;
    assert!(!waiting.is_finished());
    server.lose_messages(true);
    let zero = Instant::now();
    other.count_down_latch("start").count_down().await.unwrap();
    waiting.await.unwrap().unwrap();
    // A poll cap, and no more.
    assert!(
        zero.elapsed() < Duration::from_secs(2),
        "{:?}",
        zero.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn waiters_of_latches_count_for_the_maximum_of_the_client() {
    let server = Server::new();
    let client = server.builder().max_waiters(2).build().await.unwrap();
    let latches = ["a", "b", "c"].map(|name| client.count_down_latch(name));
    for latch in &latches {
        assert!(latch.try_set_count(1).await.unwrap());
    }
    let wait = |latch: usize| {
        let latch = latches[latch].clone();
        tokio::spawn(async move { latch.wait_zero().await })
    };
    let waiting = [wait(0), wait(1)];
    sleep(Duration::from_secs(1)).await;
    let is_refused = |error| matches!(error, Error::TooManyWaiters { limit: 2, .. });
    // Another one of the same latch counts as well.
    for latch in [&latches[0], &latches[2]] {
        let refused = latch.wait_zero_within(Duration::from_secs(1)).await;
        assert!(is_refused(refused.unwrap_err()));
    }
    let error = client.lock("l").try_lock().wait(Duration::from_secs(1));
    let _holder = server.steal("l");
    assert!(is_refused(error.await.unwrap_err()));
    latches[0].count_down().await.unwrap();
    for (waiting, ends) in waiting.into_iter().zip([true, false]) {
        if ends {
            waiting.await.unwrap().unwrap();
        } else {
            waiting.abort();
            assert!(waiting.await.unwrap_err().is_cancelled());
        }
    }
    // Ended waiters do not count.
    for _ in 0..3 {
        assert!(
            !latches[2]
                .wait_zero_within(Duration::from_secs(1))
                .await
                .unwrap()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_of_the_longest_time_retries_after_failed_queries() {
    let server = Server::new();
    let (client, other) = (server.client().await, server.client().await);
    let start = client.count_down_latch("start");
    assert!(start.try_set_count(1).await.unwrap());
    let endless = start.clone();
    let endless = tokio::spawn(async move { endless.wait_zero().await });
    let patient = tokio::spawn(async move { start.wait_zero_within(Duration::MAX).await });
    sleep(Duration::from_secs(2)).await;
    server.freeze();
    sleep(Duration::from_secs(60)).await;
    server.thaw();
    // The queries failed, and a wait without a time ends then.
    endless.await.unwrap().unwrap_err();
    other.count_down_latch("start").count_down().await.unwrap();
    assert!(patient.await.unwrap().unwrap());
}
