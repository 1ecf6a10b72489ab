//! Counts a re-entry locally instead of in Redis.
//!
//! The count of a hold in Redis changes only under its command lock, or is settled afterwards (design:
//! invariant 3). A claim that is counted locally never changes it, so it waits for no command.

use std::sync::Arc;
use std::time::Duration;

use super::acquire::PendingAcquire;
use super::{Claim, Session, Unlocked};
use crate::clock::Moment;
use crate::hold::{ClaimFlags, Terms};
use crate::key::LockKey;
use crate::owner::Owner;
use crate::server::Failure;

/// Where an owner's further acquires of a lock that it holds are counted.
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
/// inner.unlock().await?; // sends nothing either
/// outer.unlock().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum Reentry {
    /// In Redis, as with Redisson: an acquire and an unlock send one command each.
    #[default]
    Counted,
    /// In this client, if the hold is valid and needs no longer lease. That is so if the watchdog
    /// renews the hold and the acquire has no lease, or if the acquire has a lease that ends before the
    /// hold does. Then acquire and unlock send nothing.
    ///
    /// Redis still counts all other acquires: the first one, one that would extend the hold, and one
    /// with a `max_hold`. Guards may end in any order; Redis keeps the lock until the last one ends.
    ///
    /// The cost: other clients, [`Lock::hold_count`] and Redisson's `getHoldCount()` see only the outer
    /// hold. [`Guard::hold_count`] counts all acquires. The re-entry does not ask Redis, so it does not
    /// detect that the lock is gone (its key was deleted, or another client freed it by force). The client
    /// detects that at the next renewal, at the unlock of the last guard, or at the deadline, as without
    /// the re-entry.
    ///
    /// [`Lock::hold_count`]: crate::Lock::hold_count
    /// [`Guard::hold_count`]: crate::Guard::hold_count
    Local,
}

impl Claim {
    /// Adds a claim to the hold of `owner`. Returns `None` if Redis has to count it.
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
        // Changed without `Holds::change`, because the schedule of the watchdog stays as it is.
        let is_counted = hold.state().count_locally(terms, now);
        let flags = ClaimFlags {
            watched: terms.watched,
            local: true,
            part: false,
            weight: 1,
        };
        is_counted.then(|| Self::new(session.clone(), hold, flags).reentering(true))
    }

    /// Ends the claim if the caller need not wait for a command.
    pub(super) fn end_locally(&mut self) -> Option<Unlocked> {
        let hold = &self.hold;
        let core = self.session.core();
        let (flags, now) = (self.flags, core.clock.now());
        {
            // The usual case is decided without the mutex of all holds.
            let state = hold.state();
            if state.local == 0 && state.left == 0 {
                return None;
            }
        }
        let left = core
            .holds
            .change(hold, |state| state.drop_locally(flags, now));
        // The last guard ended, and an earlier one left the lock in Redis to its lease.
        if left.is_some() && hold.state().is_left() {
            core.forget(hold, true);
        }
        self.ended = left.is_some();
        left.map(|count| Unlocked::StillHeld { count })
    }
}

impl PendingAcquire {
    /// Refuses a re-entry that extends its hold, if for a whole lease no other server confirmed that
    /// the server is the master: a new master may not know the longer lease.
    pub(super) fn verify_master(&self, lease: Duration, now: Moment) -> Result<(), Failure> {
        if self.first || self.hold.remaining(now) >= lease {
            return Ok(());
        }
        let server = &self.session.core().server;
        server.verify(self.hold.key().key(), now, lease)
    }
}
