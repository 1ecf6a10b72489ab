//! What is told of a hold on many instances when its state is not locked any more.

use std::ops::{Deref, DerefMut};

use parking_lot::MutexGuard;

use super::dispatch::Request;
use super::quorum_hold::{QuorumHold, QuorumHoldState};
use crate::error::LostReason;

/// What a change of the state leads to in code that is not ours: wakers of those who wait, and the
/// subscriber of the log. Either may look at this very hold.
#[derive(Default)]
pub(super) struct Deferred {
    /// Something was done.
    pub(super) is_any: bool,
    /// Why it was lost, and what became of each instance.
    pub(super) lost: Option<(LostReason, String)>,
    /// Extensions began to fail: what each instance is, and the margin; or they succeed again.
    pub(super) jeopardy: Option<Option<(String, usize)>>,
    /// Dropped, it is given back in the background.
    pub(super) given_back: Vec<Request>,
}

/// The state of a hold, locked. Dropped, it is unlocked first, and its news told then.
pub(super) struct StateGuard<'a> {
    // Dropped in this order.
    state: MutexGuard<'a, QuorumHoldState>,
    telling: DeferredRun<'a>,
}

struct DeferredRun<'a> {
    hold: &'a QuorumHold,
    deferred: Deferred,
}

impl<'a> StateGuard<'a> {
    pub(super) fn new(hold: &'a QuorumHold, state: MutexGuard<'a, QuorumHoldState>) -> Self {
        let deferred = Deferred::default();
        let telling = DeferredRun { hold, deferred };
        Self { state, telling }
    }
}

impl Deref for StateGuard<'_> {
    type Target = QuorumHoldState;

    fn deref(&self) -> &QuorumHoldState {
        &self.state
    }
}

impl DerefMut for StateGuard<'_> {
    fn deref_mut(&mut self) -> &mut QuorumHoldState {
        &mut self.state
    }
}

impl Drop for StateGuard<'_> {
    fn drop(&mut self) {
        self.telling.deferred = std::mem::take(&mut self.state.deferred);
    }
}

impl Drop for DeferredRun<'_> {
    fn drop(&mut self) {
        let Self { hold, deferred } = self;
        // Before anybody is told: who is told that it is lost may ask for the lock anew at once, and
        // must not find these in the way.
        deferred.given_back.clear();
        if deferred.is_any {
            hold.changed.notify_waiters();
        }
        // Holders before the log.
        if deferred.lost.is_some() {
            hold.lost.cancel();
        }
        if deferred.lost.is_none() && deferred.jeopardy.is_none() {
            return;
        }
        let (hash, owner) = (hold.lock.home_instance().key().fingerprint(), hold.owner);
        match deferred.jeopardy.take() {
            Some(Some((instances, margin))) => {
                tracing::warn!(
                    target: "lockdog::quorum",
                    { lock.hash = %hash, %owner, instances, margin }, "quorum in jeopardy"
                );
            }
            Some(None) => tracing::debug!(
                target: "lockdog::quorum",
                { lock.hash = %hash, %owner }, "quorum extended again"
            ),
            None => {}
        }
        if let Some((reason, instances)) = deferred.lost.take() {
            let held_ms = hold.clock.now().since(hold.acquired).as_millis() as u64;
            // A shutdown is what its user asked for.
            if reason == LostReason::ShutDown {
                tracing::debug!(
                    target: "lockdog::quorum",
                    { lock.hash = %hash, %owner, ?reason, held_ms, instances }, "quorum lost"
                );
            } else {
                tracing::warn!(
                    target: "lockdog::quorum",
                    { lock.hash = %hash, %owner, ?reason, held_ms, instances }, "quorum lost"
                );
            }
        }
    }
}
