//! Drops a future after a number of polls.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// Polls a future each time it is woken, at most `n` times, and drops it `linger` later. Returns its output
/// if it was ready by then.
pub(crate) async fn poll_n_times<T>(
    future: impl Future<Output = T>,
    n: usize,
    linger: Duration,
) -> Option<T> {
    let mut future = pin!(future);
    let mut polls = 0;
    let output = poll_fn(|cx| {
        polls += 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if polls >= n => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await;
    if output.is_none() && !linger.is_zero() {
        // The server runs the command, and the answer is not read.
        tokio::time::sleep(linger).await;
    }
    output
}

/// No time, and enough time for a command to be sent, run and answered.
pub(crate) const LINGERS: [Duration; 2] = [Duration::ZERO, Duration::from_millis(30)];
