//! Waiting for a condition, and measuring how long something took.

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// Repeats the check until it is true. Fails the test with `what` after `timeout`.
pub(crate) async fn eventually(timeout: Duration, what: &str, holds: impl AsyncFnMut() -> bool) {
    if !becomes_true(timeout, holds).await {
        panic!("within {timeout:?} it did not come true that {what}");
    }
}

/// Repeats the check until it is true or `timeout` is over.
pub(crate) async fn becomes_true(timeout: Duration, mut holds: impl AsyncFnMut() -> bool) -> bool {
    let poll = async {
        let mut pause = SHORTEST_PAUSE;
        while !holds().await {
            tokio::time::sleep(pause).await;
            // Checks of slow conditions must not use the processor time of other tests.
            pause = (pause * 3 / 2).min(LONGEST_PAUSE);
        }
    };
    tokio::time::timeout(timeout, poll).await.is_ok()
}

/// Repeats the attempt until it succeeds, for steps with time limits that a busy machine may exceed.
pub(crate) async fn until_ok<T, E: Debug>(
    timeout: Duration,
    mut attempt: impl AsyncFnMut() -> Result<T, E>,
) -> T {
    let until = Instant::now() + timeout;
    loop {
        match attempt().await {
            Ok(value) => return value,
            Err(error) => assert!(Instant::now() < until, "within {timeout:?}: {error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) async fn timed<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let start = Instant::now();
    let output = work.await;
    (output, start.elapsed())
}

const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
