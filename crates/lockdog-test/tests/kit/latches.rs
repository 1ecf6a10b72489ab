//! Count-down latches on the test server, whose clock is tokio's.

use std::time::Duration;

use lockdog_test::Server;
use tokio::time::{Instant, sleep};

const LONG: Duration = Duration::from_secs(3 * 3600);

#[tokio::test(start_paused = true)]
async fn a_waiter_is_let_go_after_hours_without_a_message() {
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
