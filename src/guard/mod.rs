//! What a caller holds.

mod held;

use std::fmt;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::error::{Lost, Result};
use crate::owner::Owner;
use crate::session::{Claim, Unlocked};

pub use held::Held;

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
    claim: Claim,
}

impl Guard {
    pub(crate) fn new(claim: Claim) -> Self {
        Self { claim }
    }

    /// The same facts, for work that must not unlock.
    pub(crate) fn held(&self) -> Held {
        Held::new(self.claim.session().clone(), self.claim.hold().clone())
    }

    /// What stands in Redis for it.
    #[cfg(test)]
    pub(crate) fn field(&self) -> String {
        self.claim.session().core().field(self.claim.hold())
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

    /// How many acquires of this owner are not unlocked yet. Without asking Redis; `Lock::hold_count`
    /// asks, as Redisson's `getHoldCount()` does.
    pub fn hold_count(&self) -> u32 {
        self.held().hold_count()
    }

    /// Who holds the lock.
    pub fn owner(&self) -> Owner {
        self.claim.hold().owner()
    }

    /// The lock's name, as it was asked for.
    pub fn lock_name(&self) -> &str {
        self.claim.hold().key().name()
    }

    /// Gives the lock back. Corresponds to Redisson's `unlock()`.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`](crate::Error::Lost) if it was lost before. Somebody else may have held it
    /// since.
    /// [`Error::UnlockUnconfirmed`](crate::Error::UnlockUnconfirmed) if Redis did not confirm within
    /// the command timeout, or refused; the client goes on trying in the background. Where an earlier
    /// command for the same hold is without an answer too, that is waited for before: three command
    /// timeouts in all.
    ///
    /// # Cancel safety
    ///
    /// Cancelled at any point, the lock is given back in the background, as by a drop.
    pub async fn unlock(self) -> Result<Unlocked> {
        self.claim.unlock().await
    }

    /// Leaves the hold to a later `lock.unlock()` by its owner, as code ported from Java does.
    ///
    /// A hold without a lease is renewed until then, or until the client ends. One with a lease is
    /// forgotten for good when that runs out.
    pub fn forget(self) {
        self.claim.forget();
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("lock", &self.lock_name())
            .field("owner", &self.owner())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
