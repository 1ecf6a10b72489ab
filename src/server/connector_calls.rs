//! Calls of a user's connector on extra threads. A call that never returns occupies its thread
//! forever.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::failure::Failure;

/// The calls for one purpose that have not returned. Each purpose has its own limit, so that no
/// purpose can use up the threads of another.
pub(super) struct ConnectorCalls {
    /// How many calls may be pending at the same time.
    at_once: usize,
    /// How long a call counts as pending, multiplied by the number of calls that have not returned.
    /// After that time new calls may begin although it has not returned, so calls that never return do not
    /// block the purpose forever. The more of them there are, the more slowly their number grows.
    timeout: Duration,
    /// When each of them began.
    began: Mutex<Vec<Instant>>,
}

/// A call that has not returned. It is dropped when the call returns.
pub(super) struct ConnectorCall {
    calls: Arc<ConnectorCalls>,
    began: Instant,
}

impl ConnectorCalls {
    pub(super) fn new(at_once: usize, timeout: Duration) -> Arc<Self> {
        Arc::new(Self {
            at_once,
            timeout,
            began: Mutex::default(),
        })
    }

    /// The same limits, for other calls.
    pub(super) fn separate(&self) -> Arc<Self> {
        Self::new(self.at_once, self.timeout)
    }

    /// Begins one more call, unless too many are pending.
    pub(super) fn begin(self: &Arc<Self>) -> Result<ConnectorCall, Failure> {
        let now = Instant::now();
        let mut began = self.began.lock();
        let timeout = self.timeout.saturating_mul(began.len() as u32);
        let ages = || began.iter().map(|began| now - *began);
        let awaited = ages().filter(|age| *age < timeout).count();
        if awaited >= self.at_once || began.len() >= MOST {
            let longest = ages().max().unwrap_or_default();
            let cause = format!(
                "a call of the connector has not returned for {longest:.1?}; with {} such calls no \
                 other is made for now",
                began.len()
            );
            return Err(Failure::Unsent(cause.into()));
        }
        began.push(now);
        let calls = self.clone();
        Ok(ConnectorCall { calls, began: now })
    }
}

impl Drop for ConnectorCall {
    fn drop(&mut self) {
        let mut began = self.calls.began.lock();
        // Calls that began at the same moment are interchangeable.
        if let Some(at) = began.iter().position(|began| *began == self.began) {
            began.swap_remove(at);
        }
    }
}

/// All purposes together stay below the 512 threads that a runtime has for blocking work, because
/// DNS lookups need these threads too.
const MOST: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn calls_for_one_server_do_not_use_up_the_limit_of_another() {
        let calls = ConnectorCalls::new(1, A_SECOND);
        let _hangs = calls.begin().map_err(|_| ()).expect("it is the first");
        // Its age has to be that of a call.
        assert!(calls.begin().is_err());
        calls.separate().begin().map(drop).expect("it is the first");
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_connector_calls_are_spaced_out_and_bounded() {
        let calls = ConnectorCalls::new(1, A_SECOND);
        let began = Instant::now();
        let mut hanging = Vec::new();
        let mut at = Vec::new();
        while hanging.len() < MOST {
            if let Ok(call) = calls.begin() {
                hanging.push(call);
                at.push(began.elapsed().as_secs());
            }
            tokio::time::sleep(A_SECOND).await;
        }
        assert_eq!(at[..6], [0, 1, 3, 6, 10, 15]);
        tokio::time::sleep(A_SECOND * 1_000_000).await;
        let refused = calls.begin().err().expect("there are too many");
        assert!(refused.words().contains("has not returned for"));
        // One of them returns late.
        hanging.pop();
        calls.begin().map(drop).expect("there is room for it");
    }

    #[tokio::test(start_paused = true)]
    async fn connector_calls_that_return_are_limited_only_in_concurrency() {
        let calls = ConnectorCalls::new(2, A_SECOND);
        for _ in 0..MOST * 2 {
            let two = [calls.begin(), calls.begin()];
            assert!(two.iter().all(Result::is_ok));
            let refused = calls.begin().err().expect("two are under way");
            let words = refused.words();
            assert!(
                words.contains("has not returned for 0.0ns; with 2"),
                "{words}"
            );
        }
    }

    const A_SECOND: Duration = Duration::from_secs(1);
}
