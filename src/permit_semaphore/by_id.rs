//! Operations on permits by their ids, without a [`LeasedPermit`](super::LeasedPermit).

use std::collections::HashSet;
use std::time::Duration;

use super::PermitSemaphore;
use super::request::MOST_PERMITS;
use crate::error::{Error, Result};
use crate::key::PermitId;
use crate::lease;
use crate::lock::Ttl;
use crate::script::permit::{self, GivenBack, PermitLease};

impl PermitSemaphore {
    /// Releases permits by their ids, 1 to 1000: all of them, or none. Use it for ids from
    /// [`LeasedPermit::into_ids`](crate::LeasedPermit::into_ids), from another process, or from Redisson.
    /// Corresponds to Redisson's `release(permitId)` and `release(permitsIds)`.
    ///
    /// If another client holds such a permit, its next renewal notifies the holder of the loss.
    ///
    /// If the client had to send the command again, because the first sending was not answered, success says
    /// that none of the permits is in use any more: they were released, or their leases ended.
    ///
    /// # Errors
    ///
    /// - [`Error::PermitNotInUse`] if one of the permits is not in use: it was released before, its lease
    ///   ended, or it is of another semaphore. None was released.
    /// - [`Error::Invalid`] without an id, for more than 1000, for an id that is given twice, for a permit
    ///   that a [`LeasedPermit`](crate::LeasedPermit) of this client has, for an invalid name, and outside a
    ///   tokio runtime. The client sends nothing.
    /// - [`Error::Timeout`] or [`Error::Unavailable`] if the server did not answer within the command
    ///   timeout. The permits may be released. [`Error::Refused`] if the server does not permit the
    ///   command. [`Error::Closed`] after a shutdown.
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled, the permits may or may not be released.
    pub async fn release(&self, ids: &[PermitId]) -> Result<()> {
        match self.try_release(ids).await? {
            true => Ok(()),
            false => Err(Error::PermitNotInUse {
                semaphore: self.name().to_owned(),
            }),
        }
    }

    /// As [`release`](Self::release), but returns false if one of the permits is not in use. Corresponds to
    /// Redisson's `tryRelease(permitId)` and `tryRelease(permitsIds)`.
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release), without [`Error::PermitNotInUse`].
    ///
    /// # Cancel safety
    ///
    /// As [`release`](Self::release).
    pub async fn try_release(&self, ids: &[PermitId]) -> Result<bool> {
        self.check(ids)?;
        let call = self.inner.call(async |core, key, time, sent| {
            permit::give_back(&core.server, key, ids, time, sent).await
        });
        let (given_back, sent) = call.await?;
        Ok(match given_back {
            GivenBack::All => true,
            // If an earlier sending was not answered, that one may have given them back.
            GivenBack::NoneInUse => sent.repeated,
            // An earlier sending would have released all of them.
            GivenBack::SomeInUse => false,
        })
    }

    /// Sets the lease of a permit, so that it ends `lease` from now, sooner or later than before. From 10 ms
    /// up to the client's `max_lease`. Returns false if the permit is not in use. Corresponds to Redisson's
    /// `updateLeaseTime(permitId, lease, unit)`.
    ///
    /// # Errors
    ///
    /// As [`try_release`](Self::try_release); [`Error::Invalid`] also if the lease is out of bounds.
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled, the permit may or may not have the new lease.
    pub async fn update_lease(&self, id: &PermitId, lease: Duration) -> Result<bool> {
        lease::check_lease("lease", lease, self.inner.core().settings.max_lease)?;
        self.set_lease(id, Some(lease)).await
    }

    /// Makes a permit endless: it is in use until it is released. Returns false if it is not in use.
    /// Corresponds to Redisson's `updateLeaseTime(permitId, -1, unit)`.
    ///
    /// # Errors
    ///
    /// As [`update_lease`](Self::update_lease).
    ///
    /// # Cancel safety
    ///
    /// As [`update_lease`](Self::update_lease).
    pub async fn remove_lease(&self, id: &PermitId) -> Result<bool> {
        self.set_lease(id, None).await
    }

    async fn set_lease(&self, id: &PermitId, lease: Option<Duration>) -> Result<bool> {
        let ids = [*id];
        self.check(&ids)?;
        let call = self.inner.call(async |core, key, time, sent| {
            permit::update(&core.server, key, &ids, lease, time, sent).await
        });
        Ok(call.await?.0)
    }

    /// How long a permit is in use: `None` if it is not. Corresponds to Redisson's
    /// `getLeaseTime(permitId)`, with [`Ttl::Persistent`] for -1.
    ///
    /// # Errors
    ///
    /// As [`available`](Self::available).
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub async fn lease_of(&self, id: &PermitId) -> Result<Option<Ttl>> {
        let call = self.inner.call(async |core, key, time, sent| {
            permit::state(&core.server, key, Some(id), time, sent).await
        });
        Ok(match call.await?.0.lease {
            PermitLease::Ends(left) => Some(Ttl::Expires(left)),
            PermitLease::Never => Some(Ttl::Persistent),
            PermitLease::Missing => None,
        })
    }

    /// Checks ids before anything is sent.
    fn check(&self, ids: &[PermitId]) -> Result<()> {
        let invalid = |why: String| Err(Error::invalid("permit ids", why));
        if ids.is_empty() || ids.len() > MOST_PERMITS as usize {
            let found = ids.len();
            return invalid(format!("1 to {MOST_PERMITS} ids are needed, got={found}"));
        }
        let mut seen = HashSet::new();
        if let Some(twice) = ids.iter().find(|id| !seen.insert(**id)) {
            return invalid(format!("an id is given twice, id={twice}"));
        }
        let (core, key) = (self.inner.core(), self.inner.key()?);
        for id in ids {
            let number = id.number(core.id);
            let hold = number.and_then(|number| core.holds.numbered(key, number));
            if hold.is_some_and(|hold| hold.state().is_living()) {
                return invalid(format!(
                    "a LeasedPermit of this client has this permit, use that, id={id}"
                ));
            }
        }
        Ok(())
    }
}
