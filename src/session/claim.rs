//! A claim on a hold; each acquire has one.

use std::sync::Arc;

use super::Session;
use crate::clock::Moment;
use crate::hold::{ClaimFlags, Dropped, Hold, HoldState, Terms};
use crate::key::LockKey;
use crate::observe::How;
use crate::owner::Owner;
use crate::panics;

/// One acquire's claim on a hold. Dropping it lowers the hold's count immediately; only the command for
/// it goes to the background (design: invariant 6).
pub(crate) struct Claim {
    pub(super) session: Arc<Session>,
    pub(super) hold: Arc<Hold>,
    pub(super) flags: ClaimFlags,
    pub(super) ended: bool,
    /// The hold did not begin with its acquire.
    is_reentry: bool,
    /// The warning about a release by another owner was logged.
    warned: bool,
}

impl Claim {
    pub(crate) fn new(session: Arc<Session>, hold: Arc<Hold>, flags: ClaimFlags) -> Self {
        Self {
            session,
            hold,
            flags,
            ended: false,
            is_reentry: false,
            warned: false,
        }
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    /// Whether its owner had the hold already when it was acquired.
    pub(super) fn reentering(mut self, is_reentry: bool) -> Self {
        self.is_reentry = is_reentry;
        self
    }

    /// In which way its owner acquired it.
    pub(crate) fn how(&self) -> How {
        if self.is_reentry {
            return How::Reentered;
        }
        match self.hold.state().handed_over {
            true => How::HandedOver,
            false => How::First,
        }
    }

    /// What it adds to the count of its hold: 1, and for a semaphore the number of its permits.
    pub(crate) fn weight(&self) -> u32 {
        self.flags.weight
    }

    /// Takes this many of its permits, fewer than it has, into a claim of their own.
    pub(crate) fn split_off(&mut self, permits: u32) -> Self {
        let mut flags = self.flags;
        flags.weight = permits;
        self.flags.weight -= permits;
        Self::new(self.session.clone(), self.hold.clone(), flags)
    }

    /// Whether the watchdog renews the hold for this claim.
    pub(crate) fn is_watched(&self) -> bool {
        self.flags.watched
    }

    /// Makes it a part of a composite lock, which reports its loss itself.
    pub(crate) fn into_part(mut self) -> Self {
        self.flags.part = true;
        let mut state = self.hold.state();
        state.parts += 1;
        if state.parts == state.count {
            // The composite lock notifies the observers of its end.
            state.owes_end = false;
        }
        drop(state);
        self
    }

    /// Completes a claim that was acquired without a watchdog or a bound, on these terms.
    pub(crate) fn confirm(&mut self, terms: &Terms, bound: Moment) {
        if self.flags.local {
            // A local claim was complete from the start.
            return;
        }
        self.flags.watched = terms.watched;
        let confirm = |state: &mut HoldState| state.confirm(terms, bound);
        self.session.core().holds.change(&self.hold, confirm);
    }

    /// Ends the claim on behalf of its owner, in any task, without a warning.
    pub(crate) fn give_back(mut self) {
        self.warned = true;
    }

    /// Leaves the claim to a later unlock by its owner.
    pub(crate) fn forget(mut self) {
        self.end(HoldState::forget_claim);
    }

    /// Ends the claim, and leaves the lock in Redis to its lease.
    pub(crate) fn leave(mut self) {
        self.end_as(HoldState::leave_claim);
    }

    /// Ends the claim in its hold in this way. If the deadline of the hold is over, the hold is lost, although
    /// no other party has noticed that yet.
    fn end(&mut self, way: impl FnOnce(&mut HoldState, ClaimFlags, Moment) -> Dropped) {
        let is_lost = self.session.core().expire(&self.hold);
        self.end_as(way);
        if is_lost {
            // Several claims may be dropped at the same time, also while their thread unwinds: a log subscriber that
            // panics must not end the process.
            panics::catch(|| self.session.core().report_lost(&self.hold));
        }
    }

    /// Ends the claim in its hold in this way, and does what follows from that.
    fn end_as(&mut self, way: impl FnOnce(&mut HoldState, ClaimFlags, Moment) -> Dropped) {
        self.warn_elsewhere();
        self.ended = true;
        let core = self.session.core();
        let (flags, now) = (self.flags, core.clock.now());
        let in_parts = self.hold.key().kind().is_freed_in_parts();
        let dropped = core.holds.change(&self.hold, |state| {
            let dropped = way(state, flags, now);
            // The server still counts the part that was dropped.
            state.is_lowering |= in_parts && dropped == Dropped::Settle && state.is_living();
            dropped
        });
        core.after_drop(&self.hold, dropped);
    }

    /// Warns if the claim ends in a different task than it began. The first task still counts as the
    /// owner, and would re-enter the lock with its next acquire.
    pub(super) fn warn_elsewhere(&mut self) {
        let owner = self.hold.owner();
        // A composite lock may end its parts in any task.
        if !self.flags.part && owner.is_left_behind() && !std::mem::replace(&mut self.warned, true)
        {
            warn_elsewhere(self.hold.key(), owner);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        self.end(HoldState::drop_claim);
    }
}

/// Logs that a different owner releases a guard of this owner. If the user's log subscriber panics, the claim ends all
/// the same.
pub(crate) fn warn_elsewhere(key: &LockKey, owner: Owner) {
    panics::catch(|| {
        tracing::warn!(
            target: "lockdog::lock",
            {
                lock = key.logged_name(),
                lock.hash = %key.fingerprint(),
                %owner,
                here = %Owner::current(),
            },
            "guard released by a different task than the one that acquired it; pass an explicit owner: \
             .owner(&Owner::new())"
        );
    });
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::clock::Clock;
    use crate::hold::HoldPhase;
    use crate::key::kind;
    use crate::session::disconnected;
    use crate::user_code::{OnEvent, break_subscriber};

    /// The user's log subscriber panics at the warning that another task drops the guard, and at the report that the
    /// deadline was over before.
    #[tokio::test]
    async fn a_claim_ends_although_the_log_subscriber_panics() {
        for is_over in [false, true] {
            let core = disconnected(&Clock::default());
            let key = LockKey::new(&kind::PLAIN, "l", None).unwrap();
            let owner = tokio::spawn(async { Owner::current() }).await.unwrap();
            let hold = core.holds.enter(&Arc::new(key), owner);
            let now = core.clock.now();
            core.holds.change(&hold, |state| {
                assert!(state.grant(now, &TERMS, now));
                if is_over {
                    state.deadline = now;
                }
            });
            let flags = hold.state().flags_of_acquire(TERMS.watched);
            let session = Arc::new(Session::new(core.clone()));
            let claim = Claim::new(session.clone(), hold.clone(), flags);
            let events = Arc::new(AtomicU32::new(0));
            let counted = events.clone();
            let failing = OnEvent(move || {
                counted.fetch_add(1, Ordering::Relaxed);
                break_subscriber();
            });
            let ending = tokio::spawn(async move { failing.during(|| drop(claim)) });
            ending.await.expect("it panics nowhere else");
            assert_eq!(events.load(Ordering::Relaxed), 1 + u32::from(is_over));
            assert_eq!(core.totals.lost(), u64::from(is_over));
            assert_eq!(hold.state().phase, HoldPhase::Ended);
        }
    }

    const TERMS: Terms = Terms::new(Duration::from_secs(30), true);
}
