//! The locked state of a quorum hold, and the notifications sent after it is unlocked.

use std::ops::{Deref, DerefMut};

use parking_lot::MutexGuard;

use super::deferred::{Deferred, DeferredLoss};
use super::quorum_hold::{QuorumHold, QuorumHoldState};
use crate::clock::Moment;
use crate::error::LostReason;
use crate::panics;

/// The locked state of a hold. On drop it is unlocked first; then its deferred notifications are sent.
pub(super) struct StateGuard<'a> {
    // Fields are dropped in this order: first unlock, then notify.
    state: MutexGuard<'a, QuorumHoldState>,
    deferred_run: DeferredRun<'a>,
}

struct DeferredRun<'a> {
    hold: &'a QuorumHold,
    deferred: Deferred,
}

impl<'a> StateGuard<'a> {
    pub(super) fn new(hold: &'a QuorumHold, state: MutexGuard<'a, QuorumHoldState>) -> Self {
        let deferred = Deferred::default();
        let deferred_run = DeferredRun { hold, deferred };
        Self {
            state,
            deferred_run,
        }
    }
}

impl QuorumHold {
    /// Reads the state, without a step of the quorum's core.
    pub(super) fn see<T>(&self, read: impl FnOnce(&mut QuorumHoldState, Moment) -> T) -> T {
        let now = self.clock.now();
        read(&mut self.state(), now)
    }

    pub(super) fn state(&self) -> StateGuard<'_> {
        StateGuard::new(self, self.state.lock())
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
        self.deferred_run.deferred = std::mem::take(&mut self.state.deferred);
    }
}

impl Drop for DeferredRun<'_> {
    fn drop(&mut self) {
        let Self { hold, deferred } = self;
        // The releases come before any notification: an owner that is notified of the loss may acquire
        // the lock again immediately, and these old claims must not block it.
        deferred.given_back.clear();
        if deferred.is_any {
            hold.changed.notify_waiters();
        }
        // Notify holders before logging.
        if deferred.lost.is_some() {
            hold.lost.cancel();
        }
        if deferred.lost.is_none() && deferred.jeopardy.is_none() {
            return;
        }
        // A state is unlocked also while its thread unwinds: a log subscriber that panics must not end the process,
        // nor the call or the timer that unlocks it.
        panics::catch(|| hold.report(deferred));
    }
}

impl QuorumHold {
    /// Notifies the observers of a loss or a jeopardy, and logs it.
    fn report(&self, deferred: &mut Deferred) {
        self.notify(deferred);
        let (key, owner) = (self.lock.home_instance().key(), self.owner);
        let (lock, hash) = (key.logged_name(), key.fingerprint());
        match deferred.jeopardy.take() {
            Some(Some((instances, margin))) => {
                tracing::warn!(
                    target: "lockdog::quorum",
                    { lock, lock.hash = %hash, %owner, instances, margin }, "quorum in jeopardy"
                );
            }
            Some(None) => tracing::debug!(
                target: "lockdog::quorum",
                { lock, lock.hash = %hash, %owner }, "quorum extended again"
            ),
            None => {}
        }
        if let Some(loss) = deferred.lost.take() {
            let DeferredLoss {
                reason, instances, ..
            } = loss;
            let held_ms = self.clock.now().since(self.acquired).as_millis() as u64;
            // The user asked for the shutdown, so it is not a warning.
            if reason == LostReason::ShutDown {
                tracing::debug!(
                    target: "lockdog::quorum",
                    { lock, lock.hash = %hash, %owner, reason = reason.as_str(), held_ms, instances }, "quorum lost"
                );
            } else {
                tracing::warn!(
                    target: "lockdog::quorum",
                    { lock, lock.hash = %hash, %owner, reason = reason.as_str(), held_ms, instances }, "quorum lost"
                );
            }
        }
    }
}
