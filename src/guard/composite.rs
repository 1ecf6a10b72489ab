//! What a guard needs from a lock of several parts: a multi lock or a quorum.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Verdict;
use crate::error::{Instance, Lost, Result};
use crate::owner::Owner;
use crate::session::Unlocked;

/// A held lock of several parts, for one guard or for all guards of its owner.
///
/// Each guard calls exactly one of `unlock`, `drop_claim`, `forget` and `leave`, and calls it once.
pub(crate) trait CompositeHold: Send + Sync + 'static {
    /// The owner that holds it.
    fn owner(&self) -> Owner;

    /// The name of the whole lock.
    fn name(&self) -> &str;

    /// See [`Guard::is_valid`](super::Guard::is_valid).
    fn is_valid(&self) -> bool;

    /// See [`Guard::remaining`](super::Guard::remaining).
    fn remaining(&self) -> Duration;

    /// See [`Guard::verdict`](super::Guard::verdict).
    fn verdict(&self) -> Verdict;

    /// See [`Guard::hold_count`](super::Guard::hold_count).
    fn hold_count(&self) -> u32;

    /// How it was lost; `None` while it is valid. A loss by deadline is reported `early` before the
    /// deadline. A reported loss stays final.
    fn loss(&self, early: Duration) -> Option<Lost>;

    /// How it will be lost within `margin` if no renewal succeeds meanwhile. Asking changes nothing.
    fn loss_within(&self, margin: Duration) -> Option<Lost>;

    /// See [`Clock::outruns_timers`](crate::clock::Clock::outruns_timers), for the clock of the
    /// deadline.
    fn outruns_timers(&self) -> bool;

    /// Cancelled when the lock is lost, and not before [`CompositeHold::loss`] reports the loss.
    fn lost_token(&self) -> CancellationToken;

    /// See [`Guard::token`](super::Guard::token).
    fn token(&self) -> Option<u64>;

    /// See [`Guard::instances`](super::Guard::instances).
    fn instances(&self) -> Vec<Instance>;

    /// See [`Guard::margin`](super::Guard::margin).
    fn margin(&self) -> u32;

    /// Ends one guard's claim. If the future is dropped, the claim is ended in the background.
    fn unlock(self: Arc<Self>) -> Pin<Box<dyn Future<Output = Result<Unlocked>> + Send>>;

    /// Ends one guard's claim without waiting. The background releases it.
    fn drop_claim(&self);

    /// Leaves one guard's claim for a later `lock.unlock()`.
    fn forget(&self);

    /// Ends one guard's claim without a release. See [`Guard::leave_to_lease`](super::Guard::leave_to_lease).
    fn leave(&self);

    /// See [`Guard::extend`](super::Guard::extend).
    fn extend(self: Arc<Self>, lease: Duration)
    -> Pin<Box<dyn Future<Output = Result<()>> + Send>>;
}

/// One guard's claim on a lock of several parts. Dropping it releases it.
pub(super) struct CompositeClaim {
    lock: Arc<dyn CompositeHold>,
    ended: bool,
}

impl CompositeClaim {
    pub(super) fn new(lock: Arc<dyn CompositeHold>) -> Self {
        Self { lock, ended: false }
    }

    pub(super) fn lock(&self) -> &Arc<dyn CompositeHold> {
        &self.lock
    }

    /// # Cancel safety
    ///
    /// The claim is ended in the background.
    pub(super) async fn unlock(mut self) -> Result<Unlocked> {
        // From here on the future ends the claim.
        let unlocking = self.lock.clone().unlock();
        self.ended = true;
        unlocking.await
    }

    pub(super) fn forget(mut self) {
        self.ended = true;
        self.lock.forget();
    }

    pub(super) fn leave(mut self) {
        self.ended = true;
        self.lock.leave();
    }
}

impl Drop for CompositeClaim {
    fn drop(&mut self) {
        if !self.ended {
            self.lock.drop_claim();
        }
    }
}
