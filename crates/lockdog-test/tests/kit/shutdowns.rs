//! A shutdown with a budget.

use std::time::Duration;

use lockdog_test::Server;
use tokio::time::{Instant, sleep};

const BUDGET: Duration = Duration::from_millis(500);

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_within_its_budget_and_the_background_goes_on() {
    let server = Server::new();
    let client = server.client().await;
    let guard = client.lock("orders").lock().await.unwrap();
    server.freeze();
    let began = Instant::now();
    let report = client.shutdown_within(BUDGET).await;
    let took = began.elapsed();
    // Without the budget it is four command timeouts: 12 s.
    assert!((BUDGET..BUDGET + BUDGET / 5).contains(&took), "{took:?}");
    assert_eq!((report.released, report.unconfirmed), (0, 1));
    assert!(!guard.is_valid());
    server.thaw();
    sleep(Duration::from_secs(2)).await;
    assert_eq!(server.holder("orders"), None);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_is_done_does_not_wait_for_its_budget() {
    let server = Server::new();
    let client = server.client().await;
    let guard = client.lock("orders").lock().await.unwrap();
    let began = Instant::now();
    let report = client.shutdown_within(Duration::MAX).await;
    assert_eq!((report.released, report.unconfirmed), (1, 0));
    assert!(began.elapsed() < BUDGET);
    drop(guard);
    server.assert_clean().await;
}
