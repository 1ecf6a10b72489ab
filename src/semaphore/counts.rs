//! How many permits a semaphore has, and who has them.

use std::time::Duration;

use uuid::Uuid;

use super::{PermitHolder, Semaphore, check};
use crate::error::{Error, Result};
use crate::lease;
use crate::permits::add_permits;
use crate::script::semaphore::{self, Beginning};

impl Semaphore {
    /// How many permits are free. Below zero after [`add_permits`](Self::add_permits) of a negative number.
    /// Corresponds to Redisson's `availablePermits()`.
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
        let call = self.inner.call(async |core, key, time, sent| {
            semaphore::state(&core.server, key, 0, time, sent).await
        });
        Ok(call.await?.0.free)
    }

    /// The requests of lockdog that have permits, of all clients, up to 10,000. What Redisson acquired is not
    /// among them. Redisson has no such call.
    ///
    /// # Errors
    ///
    /// As [`available`](Self::available).
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub async fn holders(&self) -> Result<Vec<PermitHolder>> {
        let call = self.inner.call(async |core, key, time, sent| {
            semaphore::state(&core.server, key, MOST_HOLDERS, time, sent).await
        });
        let core = self.inner.core();
        let found = call.await?.0.holders.into_iter();
        let holder = |(field, permits): (String, u32)| {
            let is_ours = core.number_of(&field).is_some();
            PermitHolder::new(field, permits, is_ours)
        };
        Ok(found.map(holder).collect())
    }

    /// Releases all permits of this semaphore that another client has, and returns their number. Use it for a
    /// client whose process crashed: [`PermitHolder::client_id`] names it. Redisson has no such call.
    ///
    /// If that client is still running, it keeps its [`Permit`](crate::Permit) values. Their release returns
    /// [`Error::Lost`], and adds nothing.
    ///
    /// # Errors
    ///
    /// As [`available`](Self::available), and [`Error::Invalid`] for this client itself. After a
    /// [`Error::Timeout`] or [`Error::Unavailable`] the permits may be released; call it again.
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled, the permits may or may not be released.
    pub async fn reclaim(&self, client: Uuid) -> Result<u32> {
        if client == self.inner.core().id {
            let why = "it is this client; release or drop its permits instead".to_owned();
            return Err(Error::invalid("client", why));
        }
        let prefix = format!("{client}:");
        let call = self.inner.call(async |core, key, time, sent| {
            semaphore::reclaim(&core.server, key, &prefix, time, sent).await
        });
        Ok(call.await?.0)
    }

    /// Creates the semaphore with this many free permits, if it does not exist. Returns whether it was created;
    /// false also if the name is in use for something else.
    /// Corresponds to Redisson's `trySetPermits(permits)`.
    ///
    /// The server remembers the call for a while, so that a command that arrives twice returns what it
    /// returned at first.
    ///
    /// # Errors
    ///
    /// As [`available`](Self::available). After a [`Error::Timeout`] or [`Error::Unavailable`] the semaphore
    /// may exist: a second call then returns false. [`Error::Invalid`] for more than 2^31 - 1 permits.
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled, the semaphore may or may not exist.
    pub async fn try_set_permits(&self, permits: u32) -> Result<bool> {
        self.try_set(permits, None).await
    }

    /// As [`try_set_permits`](Self::try_set_permits), and the semaphore ends after this time: from 10 ms, in
    /// whole milliseconds. Corresponds to Redisson's `trySetPermits(permits, timeToLive)`.
    ///
    /// A release of permits of a semaphore that has ended does not create it again.
    ///
    /// # Errors
    ///
    /// As [`try_set_permits`](Self::try_set_permits), and [`Error::Invalid`] for a time that is too short or
    /// longer than 584 years.
    ///
    /// # Cancel safety
    ///
    /// As [`try_set_permits`](Self::try_set_permits).
    pub async fn try_set_permits_for(&self, permits: u32, ttl: Duration) -> Result<bool> {
        lease::check("time to live", ttl, lease::LONGEST)?;
        self.try_set(permits, Some(ttl)).await
    }

    async fn try_set(&self, permits: u32, ttl: Option<Duration>) -> Result<bool> {
        check(permits)?;
        let call = self.inner.call(async |core, key, time, sent| {
            let beginning = Beginning {
                permits,
                ttl,
                call: core.once(),
            };
            semaphore::try_set(&core.server, key, &beginning, time, sent).await
        });
        Ok(call.await?.0)
    }

    /// Adds permits to the semaphore, or takes free ones away if the number is below zero. A semaphore that
    /// does not exist has zero permits before. Corresponds to Redisson's `addPermits(permits)`.
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

const MOST_HOLDERS: u32 = 10_000;
