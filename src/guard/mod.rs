//! What a caller holds.

mod composite;
mod held;
mod verdict;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::background::ensure_runtime;
use crate::error::{Instance, Lost, Result};
use crate::owner::Owner;
use crate::session::{Claim, Unlocked};

use composite::CompositeClaim;
pub(crate) use composite::CompositeHold;
pub use held::Held;
pub use verdict::Verdict;

/// A held lock.
///
/// [`Guard::unlock`] gives the lock back and waits until Redis has confirmed it. Dropping the guard
/// gives it back without waiting: the hold ends here and now, and the client's own thread tells
/// Redis. A guard remembers its owner wherever it goes, and it can be dropped anywhere: outside a
/// runtime, in another one, during a panic.
///
/// A lock can be lost: its lease ran out, its key was deleted. [`Guard::lost`],
/// [`Guard::lost_token`] and [`Guard::is_valid`] tell so before anybody else can have it, as long as
/// the server keeps the key until its TTL. Where it does not, they tell so at the next renewal, a third
/// of the lease later at most, or with a fixed lease at its end. Between a look at the guard and the
/// work done on its word time passes, whatever the library does; where that matters, let the resource
/// refuse late writes by a version of its own.
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: lockdog::Client) -> lockdog::Result<()> {
/// let guard = client.lock("orders:42").lock().await?;
/// tokio::select! {
///     lost = guard.lost() => eprintln!("stop: {lost}"),
///     () = work() => { guard.unlock().await?; }
/// }
/// # Ok(())
/// # }
/// # async fn work() {}
/// ```
#[must_use = "a guard that is dropped at once unlocks at once"]
pub struct Guard {
    kind: GuardKind,
}

enum GuardKind {
    One(Claim),
    Several(CompositeClaim),
}

impl Guard {
    pub(crate) fn new(claim: Claim) -> Self {
        let kind = GuardKind::One(claim);
        Self { kind }
    }

    /// A guard of a lock of several parts: one claim on it.
    pub(crate) fn several(lock: Arc<dyn CompositeHold>) -> Self {
        let kind = GuardKind::Several(CompositeClaim::new(lock));
        Self { kind }
    }

    /// The same facts, for work that must not unlock.
    pub(crate) fn held(&self) -> Held {
        match &self.kind {
            GuardKind::One(claim) => Held::one(claim),
            GuardKind::Several(share) => Held::several(share.lock().clone()),
        }
    }

    /// What stands in Redis for it, if it is one thing.
    #[cfg(test)]
    pub(crate) fn field(&self) -> String {
        match &self.kind {
            GuardKind::One(claim) => claim.session().core().field(claim.hold()),
            GuardKind::Several(_) => String::new(),
        }
    }

    /// Waits until the lock is lost and tells how; ends no later than the deadline up to which the
    /// lock may be believed in. While the lock is held it waits. Redisson tells nobody.
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub async fn lost(&self) -> Lost {
        self.held().lost().await
    }

    /// A token that is cancelled when the lock is lost. Cancelling it yourself tells nobody else.
    pub fn lost_token(&self) -> CancellationToken {
        self.held().lost_token()
    }

    /// Whether the lock may be acted on now. Exact at the moment of the call, without asking Redis:
    /// also after the process or the machine was stopped for longer than the lease.
    pub fn is_valid(&self) -> bool {
        self.held().is_valid()
    }

    /// How long the lock may be acted on without a further renewal; zero if it is lost.
    pub fn remaining(&self) -> Duration {
        self.held().remaining()
    }

    /// Whether the lock is held, in jeopardy because its renewals fail, or lost: for a service that
    /// wants to stop early, or to show how it stands. Without asking Redis; a lock with a lease of its
    /// own is not renewed, so it is never in jeopardy. Redisson has nothing like it.
    pub fn verdict(&self) -> Verdict {
        self.held().verdict()
    }

    /// How many acquires of this owner are not unlocked yet. Without asking Redis; `Lock::hold_count`
    /// asks, as Redisson's `getHoldCount()` does.
    pub fn hold_count(&self) -> u32 {
        self.held().hold_count()
    }

    /// Who holds the lock.
    pub fn owner(&self) -> Owner {
        match &self.kind {
            GuardKind::One(claim) => claim.hold().owner(),
            GuardKind::Several(share) => share.lock().owner(),
        }
    }

    /// The lock's name, as it was asked for.
    pub fn name(&self) -> &str {
        match &self.kind {
            GuardKind::One(claim) => claim.hold().key().name(),
            GuardKind::Several(share) => share.lock().name(),
        }
    }

    /// The fencing token of a lock that gives any: larger than that of every earlier holder, the same
    /// for all acquires of one hold. A resource that remembers the largest it has seen, and refuses
    /// smaller ones, is safe from writes that come late. `None` for every other lock.
    pub fn token(&self) -> Option<u64> {
        self.held().token()
    }

    /// What each part of a lock of several is to the whole now, in the order in which they were
    /// given. Empty for a plain lock. Right after an acquire of a [`RedLock`](crate::RedLock) a quorum is
    /// known, and the other answers come in behind.
    pub fn instances(&self) -> Vec<Instance> {
        self.held().instances()
    }

    /// How many of the instances that have the lock may forget it before its time, and still nobody
    /// else gets a quorum. An instance counts until the lease that it granted is over. It says nothing of
    /// how many may be down: the lock is kept as long as a quorum answers, three of five. 0 for a
    /// lock that needs every part, as a plain lock does.
    pub fn margin(&self) -> u32 {
        self.held().margin()
    }

    /// Gives the lock back. Corresponds to Redisson's `unlock()`.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`](crate::Error::Lost) if it was lost before. Somebody else may have held it
    /// since.
    /// [`Error::UnlockUnconfirmed`](crate::Error::UnlockUnconfirmed) if Redis did not confirm within
    /// the command timeout, or refused; the client goes on trying in the background.
    /// [`Error::Invalid`](crate::Error::Invalid) outside a tokio runtime; the lock is given back in
    /// the background.
    /// Where an earlier
    /// command for the same hold is without an answer too, that is waited for before: three command
    /// timeouts in all.
    ///
    /// # Cancel safety
    ///
    /// Cancelled at any point, the lock is given back in the background, as by a drop.
    pub async fn unlock(self) -> Result<Unlocked> {
        // A guard that is dropped outside a runtime is released in the background.
        ensure_runtime()?;
        match self.kind {
            GuardKind::One(claim) => claim.unlock().await,
            GuardKind::Several(share) => share.unlock().await,
        }
    }

    /// Leaves the hold to a later `lock.unlock()` by its owner, as code ported from Java does:
    /// [`Lock::unlock`](crate::Lock::unlock), [`MultiLock::unlock`](crate::MultiLock::unlock),
    /// [`RedLock::unlock`](crate::RedLock::unlock).
    ///
    /// A hold without a lease is renewed until then, or until the client ends. One with a lease is
    /// forgotten for good when that runs out.
    pub fn forget(self) {
        match self.kind {
            GuardKind::One(claim) => claim.forget(),
            GuardKind::Several(share) => share.forget(),
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("lock", &self.name())
            .field("owner", &self.owner())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
