//! Polls a future a limited number of times.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::sync::Notify;

/// A future that the test polls.
pub(super) struct Steps<T> {
    future: Pin<Box<dyn Future<Output = T> + Send>>,
    woken: Arc<Woken>,
}

struct Woken(Notify);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

impl<T> Steps<T> {
    pub(super) fn new(future: Pin<Box<dyn Future<Output = T> + Send>>) -> Self {
        let woken = Arc::new(Woken(Notify::new()));
        Self { future, woken }
    }

    /// Polls it this many times, each time after it was woken. Returns the number of pending polls, and its
    /// output if it ended. A future that is not woken for long is not polled again.
    pub(super) async fn poll(&mut self, times: usize) -> (usize, Option<T>) {
        for polled in 0..times {
            if polled > 0 {
                let woken = self.woken.0.notified();
                if tokio::time::timeout(WOKEN_WITHIN, woken).await.is_err() {
                    return (polled, None);
                }
            }
            let waker = Waker::from(self.woken.clone());
            let step = self.future.as_mut().poll(&mut Context::from_waker(&waker));
            if let Poll::Ready(output) = step {
                return (polled, Some(output));
            }
        }
        (times, None)
    }

    /// Polls it to its end.
    pub(super) async fn finish(self) -> T {
        self.future.await
    }
}

/// Longer than any pause of the client between two queries.
const WOKEN_WITHIN: Duration = Duration::from_secs(1);
