//! The cookbook's recipe for a job that runs once per period of hours.

use std::time::Duration;

use lockdog::Client;
use lockdog_test::Server;
use tokio::time::sleep;

/// As in `docs/cookbook.md`, with a job that takes this long.
async fn tick(node: &Client, job: Duration) -> lockdog::Result<bool> {
    let lock = node.lock("report").try_lock().hold_at_least(PERIOD);
    let done = lock.with(|_held| sleep(job)).await?;
    Ok(done.is_some())
}

const PERIOD: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(50);

#[tokio::test(start_paused = true)]
async fn a_job_starts_once_in_each_period() {
    let server = Server::new();
    let (one, two) = (server.client().await, server.client().await);
    assert!(tick(&one, SHORT).await.unwrap());
    assert!(!tick(&two, SHORT).await.unwrap(), "its clock is late");
    assert!(!tick(&one, SHORT).await.unwrap());
    one.shutdown().await;
    sleep(PERIOD - Duration::from_secs(60)).await;
    assert!(!tick(&two, SHORT).await.unwrap(), "the first node is gone");
    sleep(Duration::from_secs(61)).await;
    assert!(tick(&two, SHORT).await.unwrap());
    two.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_longer_than_its_period_does_not_overlap() {
    let server = Server::new();
    let (one, two) = (server.client().await, server.client().await);
    let long = tokio::spawn(async move { tick(&one, 3 * PERIOD).await });
    for _ in 0..5 {
        sleep(PERIOD / 2).await;
        assert!(
            !tick(&two, SHORT).await.unwrap(),
            "the first run still holds the lock"
        );
    }
    assert!(long.await.unwrap().unwrap());
    assert!(tick(&two, SHORT).await.unwrap());
    two.shutdown().await;
}
