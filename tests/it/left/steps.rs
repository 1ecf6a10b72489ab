//! Polling a future a number of times, and no further.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::sync::Notify;

/// A future that is polled by hand.
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

    /// Polls it so many times, each time after it was woken. How often it was pending, and its output
    /// if it ended; a future that is not woken for long is polled no further.
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

/// Longer than the client waits anywhere before it looks again.
const WOKEN_WITHIN: Duration = Duration::from_secs(1);
