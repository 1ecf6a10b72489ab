//! How many permits a semaphore has.

use super::PermitSemaphore;
use crate::error::{Error, Result};
use crate::permits::add_permits;
use crate::script::permit::{self, PermitState};

impl PermitSemaphore {
    /// How many permits are free. Below zero if more are in use than the semaphore has: after
    /// [`set_permits`](Self::set_permits) to a smaller number. Corresponds to Redisson's
    /// `availablePermits()`.
    ///
    /// # Errors
    ///
    /// - [`Error::Timeout`] or [`Error::Unavailable`] if the server did not answer within the command timeout.
    /// - [`Error::Refused`] if the server does not permit the command, or if the name is in use for something
    ///   else (`WRONGTYPE`).
    /// - [`Error::Invalid`] for an invalid name, and outside a tokio runtime.
    /// - [`Error::Closed`] after a shutdown.
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub async fn available(&self) -> Result<i64> {
        Ok(self.counted().await?.free)
    }

    /// How many permits are in use, by all clients. Corresponds to Redisson's `acquiredPermits()`.
    ///
    /// # Errors
    ///
    /// As [`available`](Self::available).
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub async fn acquired(&self) -> Result<u32> {
        let in_use = self.counted().await?.in_use;
        Ok(u32::try_from(in_use).unwrap_or(u32::MAX))
    }

    /// How many permits the semaphore has, free and in use together. Corresponds to Redisson's
    /// `getPermits()`.
    ///
    /// # Errors
    ///
    /// As [`available`](Self::available).
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub async fn permits(&self) -> Result<i64> {
        let PermitState { free, in_use, .. } = self.counted().await?;
        Ok(free.saturating_add_unsigned(in_use))
    }

    async fn counted(&self) -> Result<PermitState> {
        let call = self.inner.call(async |core, key, time, sent| {
            permit::state(&core.server, key, None, time, sent).await
        });
        Ok(call.await?.0)
    }

    /// Sets how many permits the semaphore has, free and in use together. If more are in use, they stay in
    /// use, and no permit is free until enough were released. Corresponds to Redisson's `setPermits(n)`.
    ///
    /// The server remembers the call for a while, so that a command that arrives late does not undo a later
    /// change of the number.
    ///
    /// # Errors
    ///
    /// As [`available`](Self::available). After a [`Error::Timeout`] or [`Error::Unavailable`] the number
    /// may be set; a second call of [`try_set_permits`](Self::try_set_permits) then returns false.
    /// [`Error::Invalid`] for more than 2^31 - 1 permits.
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled, the number may or may not be set.
    pub async fn set_permits(&self, permits: u32) -> Result<()> {
        self.set(permits, false).await.map(|_| ())
    }

    /// Sets how many permits the semaphore has if the semaphore does not exist yet. Returns whether it was
    /// set. Corresponds to Redisson's `trySetPermits(n)`.
    ///
    /// The server remembers the call for a while, so that a command that arrives twice returns what it
    /// returned at first.
    ///
    /// # Errors
    ///
    /// As [`set_permits`](Self::set_permits).
    ///
    /// # Cancel safety
    ///
    /// As [`set_permits`](Self::set_permits).
    pub async fn try_set_permits(&self, permits: u32) -> Result<bool> {
        self.set(permits, true).await
    }

    async fn set(&self, permits: u32, only_if_missing: bool) -> Result<bool> {
        if i32::try_from(permits).is_err() {
            let why = format!("it must be at most {}, got={permits}", i32::MAX);
            return Err(Error::invalid("number of permits", why));
        }
        let call = self.inner.call(async |core, key, time, sent| {
            let once = core.once();
            permit::set(
                &core.server,
                key,
                permits,
                only_if_missing,
                once,
                time,
                sent,
            )
            .await
        });
        Ok(call.await?.0)
    }

    /// Adds permits to the semaphore, or takes free ones away if the number is below zero. A semaphore that
    /// does not exist has zero permits before. Corresponds to Redisson's `addPermits(n)`.
    ///
    /// The server remembers the call for a while. So it adds once, however often its command arrives.
    /// The call takes at most two command timeouts.
    ///
    /// # Errors
    ///
    /// - [`Error::Unconfirmed`] if the server did not answer within the command timeout, or refused the
    ///   command for a while (`LOADING`, `READONLY`, `TRYAGAIN`, ...). The client continues in the background,
    ///   for 50 s after the first sending: the permits are added later, or were added. Do not repeat the
    ///   call: the second one would add too.
    /// - [`Error::TooManyWaiters`] if too many such calls of this client have no answer
    ///   ([`ClientBuilder::max_waiters`](crate::ClientBuilder::max_waiters)). The client sent nothing.
    /// - [`Error::Refused`], [`Error::Invalid`] and [`Error::Closed`] as [`available`](Self::available). The
    ///   call added nothing.
    ///
    /// # Cancel safety
    ///
    /// After its first poll the client adds the permits, even if the call is cancelled.
    pub async fn add_permits(&self, by: i32) -> Result<()> {
        add_permits(&self.inner, by).await
    }
}
