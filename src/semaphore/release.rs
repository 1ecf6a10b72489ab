//! Releases by number, for ported code that has no [`Permit`](super::Permit) for what it releases.

use super::{Semaphore, check, permit};
use crate::error::Result;
use crate::key::LockKey;
use crate::permits::{ADDED_FOR, Adding};
use crate::script::Remembered;
use crate::script::permit::Addition;
use crate::session::{Claim, Core};

impl Semaphore {
    /// Releases this many permits: first those that this client acquired and forgot
    /// ([`Permit::forget`](crate::Permit::forget)). If there are fewer of these, the call adds the rest as new
    /// permits, and creates the semaphore if it does not exist. Corresponds to Redisson's `release(permits)`.
    ///
    /// If you have a `Permit`, use [`Permit::release`](crate::Permit::release) instead.
    ///
    /// # Errors
    ///
    /// - [`Error::Unconfirmed`](crate::Error::Unconfirmed), for permits that no request has: the server did
    ///   not answer within the command timeout, or refused the command for a while (`LOADING`, `READONLY`,
    ///   `TRYAGAIN`, ...). The client continues in the background, for 50 s after the first sending. Do not
    ///   repeat the call: the second one would release as many permits again.
    /// - As [`Permit::release`](crate::Permit::release), for forgotten permits. Do not repeat the call then
    ///   either.
    /// - [`Error::TooManyWaiters`](crate::Error::TooManyWaiters) if too many such calls of this client have no
    ///   answer ([`ClientBuilder::max_waiters`](crate::ClientBuilder::max_waiters)). The call released
    ///   nothing.
    /// - [`Error::Refused`](crate::Error::Refused) and [`Error::Closed`](crate::Error::Closed) as
    ///   [`available`](Self::available), and [`Error::Invalid`](crate::Error::Invalid) for more than
    ///   2^31 - 1 permits.
    ///
    /// # Cancel safety
    ///
    /// After its first poll the client releases the permits, even if the call is cancelled.
    pub async fn release(&self, permits: u32) -> Result<()> {
        self.give(permits, false).await.map(|_| ())
    }

    /// As [`release`](Self::release), but does not create a semaphore that does not exist. Returns whether it
    /// exists. Corresponds to Redisson's `releaseIfExists(permits)`.
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release).
    ///
    /// # Cancel safety
    ///
    /// As [`release`](Self::release).
    pub async fn release_if_exists(&self, permits: u32) -> Result<bool> {
        self.give(permits, true).await
    }

    async fn give(&self, permits: u32, only_if_exists: bool) -> Result<bool> {
        check(permits)?;
        let key = self.inner.key()?;
        let core = self.inner.core();
        // Reserved first: after an error the caller repeats the call, so no permits may be released before it.
        let reserved = self.inner.reserve()?;
        let forgotten = self.take_forgotten(core, key, permits);
        let given: u32 = forgotten.iter().map(Claim::weight).sum();
        // At most 2^31 - 1 permits, by the check above.
        let rest = i32::try_from(permits - given).unwrap_or(i32::MAX);
        if rest == 0 && !only_if_exists {
            drop(reserved);
            permit::release(forgotten).await?;
            return Ok(true);
        }
        let addition = Addition {
            by: rest,
            only_if_exists,
            call: Remembered::new(ADDED_FOR, core.server.command_timeout()),
        };
        let adding = Adding(addition);
        let adding = self.inner.complete(reserved, "release", ADDED_FOR, adding);
        let (released, exists) = tokio::join!(permit::release(forgotten), adding);
        released?;
        exists
    }

    /// Takes forgotten claims that have at most this number of permits together.
    fn take_forgotten(&self, core: &Core, key: &LockKey, permits: u32) -> Vec<Claim> {
        let mut taken = Vec::new();
        let mut missing = permits;
        while missing > 0
            && let Some(hold) = core.holds.with_forgotten(key)
        {
            // Another call may have taken them meanwhile.
            if let Some(claim) = core.take_forgotten(self.inner.session(), &hold, missing) {
                missing -= claim.weight();
                taken.push(claim);
            }
        }
        taken
    }
}
