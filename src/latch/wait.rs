//! The wait for a latch.

use std::time::Duration;

use super::CountDownLatch;
use crate::background::ensure_runtime;
use crate::clock::Moment;
use crate::error::Result;

impl CountDownLatch {
    /// Waits until the count is zero, or until the latch is deleted. Returns at once if there is no count.
    /// Corresponds to Redisson's `await()`.
    ///
    /// The waiters of one client share one question to the server for each message and each poll cap.
    ///
    /// # Errors
    ///
    /// - [`Error::Timeout`](crate::Error::Timeout), [`Error::Unavailable`](crate::Error::Unavailable) or
    ///   [`Error::Refused`](crate::Error::Refused) if the server gave no usable answer for the whole command
    ///   timeout.
    /// - [`Error::Invalid`](crate::Error::Invalid) for an invalid name, on a cluster for a name with a brace,
    ///   and outside a tokio runtime.
    /// - [`Error::Closed`](crate::Error::Closed) if the client is shut down.
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub async fn wait_zero(&self) -> Result<()> {
        self.wait(Moment::NEVER).await.map(|_| ())
    }

    /// As [`wait_zero`](Self::wait_zero), for at most this time. Returns whether the latch opened.
    /// Corresponds to Redisson's `await(time, unit)`.
    ///
    /// # Errors
    ///
    /// As [`wait_zero`](Self::wait_zero), but it waits through failures: it returns an error if the last
    /// question before the end of the time had no usable answer.
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub async fn wait_zero_within(&self, wait: Duration) -> Result<bool> {
        let until = self.inner.core().clock.now() + wait;
        self.wait(until).await
    }

    async fn wait(&self, until: Moment) -> Result<bool> {
        ensure_runtime()?;
        let key = self.inner.key()?;
        let core = self.inner.core();
        core.ensure_open()?;
        let gate = core.gate(key)?;
        let is_patient = until != Moment::NEVER;
        tokio::select! {
            biased;
            opened = gate.opened(is_patient) => opened.map(|()| true),
            () = core.clock.sleep_until(until), if is_patient => {
                gate.failure().map_or(Ok(false), Err)
            }
        }
    }
}
