//! Counting a re-entry here instead of in Redis.
//!
//! What Redis should show of a hold changes under its command lock, or is settled afterwards
//! (design: invariant 3). A claim that is counted here never changes it, so it waits for no command.

use std::sync::Arc;
use std::time::Duration;

use super::acquire::PendingAcquire;
use super::{Claim, Session};
use crate::clock::Moment;
use crate::hold::{ClaimFlags, Terms};
use crate::key::LockKey;
use crate::owner::Owner;
use crate::server::Failure;

/// Who counts an owner's further acquires of a lock that it holds.
///
/// # Examples
///
/// ```no_run
/// use lockdog::config::Reentry;
///
/// # async fn example(client: lockdog::Client) -> lockdog::Result<()> {
/// let lock = client.lock("orders:42");
/// let outer = lock.lock().await?;
/// let inner = lock.lock().reentry(Reentry::Local).await?; // nothing is sent
/// assert_eq!((inner.hold_count(), lock.hold_count().await?), (2, 1));
/// inner.unlock().await?; // nor here
/// outer.unlock().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Reentry {
    /// Redis, as for Redisson: an acquire and an unlock are a command each.
    #[default]
    Counted,
    /// This client, where the hold is as good without a command: it is valid, and either it is
    /// renewed already and the acquire has no lease, or the acquire has a lease that ends before the
    /// hold does. Acquire and unlock send nothing then.
    ///
    /// Everything else is counted by Redis all the same: the first acquire, one that would make the
    /// hold last longer, and one with a `max_hold`. Guards end in any order; Redis keeps the lock
    /// until the last one does.
    ///
    /// The price: others see the outer hold only, and so do [`Lock::hold_count`] and Redisson's
    /// `getHoldCount()`; [`Guard::hold_count`] counts all. And as Redis is not asked, that the lock is
    /// gone (its key deleted, or freed by force elsewhere) is not noticed here, but as without a
    /// re-entry: at the next renewal, at the unlock of the last guard or at the deadline.
    ///
    /// [`Lock::hold_count`]: crate::Lock::hold_count
    /// [`Guard::hold_count`]: crate::Guard::hold_count
    Local,
}

impl Claim {
    /// One more claim on what `owner` holds. `None` where Redis has to count it.
    pub(crate) fn again(
        session: &Arc<Session>,
        key: &LockKey,
        owner: Owner,
        terms: &Terms,
    ) -> Option<Self> {
        let core = session.core();
        if !terms.local || !key.kind().reentrant || core.ensure_open().is_err() {
            return None;
        }
        let hold = core.holds.of_owner(key, owner)?;
        let now = core.clock.now();
        // The watchdog has nothing else to do for it.
        let is_counted = hold.state().count_locally(terms, now);
        let flags = ClaimFlags {
            watched: terms.watched,
            local: true,
            part: false,
        };
        is_counted.then(|| Self::new(session.clone(), hold, flags))
    }

    /// Ends the claim if Redis need not be told: how many are left then.
    pub(super) fn end_locally(&mut self) -> Option<u32> {
        let hold = self.hold();
        if hold.state().local == 0 {
            return None;
        }
        let core = self.session().core();
        let (flags, now) = (self.flags, core.clock.now());
        let left = core
            .holds
            .change(hold, |state| state.drop_locally(flags, now));
        self.ended = left.is_some();
        left
    }
}

impl PendingAcquire {
    /// Refuses a re-entry that lengthens its hold at a server that others have not named as the master
    /// for a lease: the master in its place may not know the longer lease.
    pub(super) fn is_vouched_for(&self, lease: Duration, now: Moment) -> Result<(), Failure> {
        if self.first || self.hold.remaining(now) >= lease {
            return Ok(());
        }
        let server = &self.session.core().server;
        server.vouch(self.hold.key().key(), now, lease)
    }
}
