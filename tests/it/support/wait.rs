//! Waiting for a condition, and measuring how long something took.

use std::time::{Duration, Instant};

/// Asks until the answer is yes; fails the test with `what` when that takes longer than `timeout`.
pub(crate) async fn eventually(
    timeout: Duration,
    what: &str,
    mut holds: impl AsyncFnMut() -> bool,
) {
    let poll = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    if tokio::time::timeout(timeout, poll).await.is_err() {
        panic!("within {timeout:?} it did not come true that {what}");
    }
}

pub(crate) async fn timed<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let start = Instant::now();
    let output = work.await;
    (output, start.elapsed())
}
