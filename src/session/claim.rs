//! A claim on a hold: what each acquire has of it.

use std::sync::Arc;

use super::Session;
use super::settle::Job;
use crate::clock::Moment;
use crate::hold::{ClaimFlags, Hold, HoldState, Terms};
use crate::key::LockKey;
use crate::owner::Owner;

/// One acquire's share in a hold. Dropping it gives it back: the hold's count falls here and now,
/// only the command for it goes to the background (design: invariant 6).
pub(crate) struct Claim {
    pub(super) session: Arc<Session>,
    pub(super) hold: Arc<Hold>,
    pub(super) flags: ClaimFlags,
    pub(super) ended: bool,
    /// That it ends elsewhere was said.
    warned: bool,
}

impl Claim {
    pub(crate) fn new(session: Arc<Session>, hold: Arc<Hold>, flags: ClaimFlags) -> Self {
        Self {
            session,
            hold,
            flags,
            ended: false,
            warned: false,
        }
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    /// Makes it a part of a lock of many parts, which tells of its loss itself.
    pub(crate) fn into_part(mut self) -> Self {
        self.flags.part = true;
        self.hold.state().parts += 1;
        self
    }

    /// Makes it a claim for good, on these terms, that was taken without a watchdog or a bound.
    pub(crate) fn confirm(&mut self, terms: &Terms, bound: Moment) {
        if self.flags.local {
            // Nothing was left out for it.
            return;
        }
        self.flags.watched = terms.watched;
        let confirm = |state: &mut HoldState| state.confirm(terms, bound);
        self.session.core().holds.change(&self.hold, confirm);
    }

    /// Gives the claim back on behalf of its owner, wherever this is called.
    pub(crate) fn give_back(mut self) {
        self.warned = true;
    }

    /// Leaves the claim to a later unlock by its owner.
    pub(crate) fn forget(mut self) {
        self.warn_elsewhere();
        self.ended = true;
        let core = self.session.core();
        let (flags, now) = (self.flags, core.clock.now());
        let dropped = core
            .holds
            .change(&self.hold, |state| state.forget_claim(flags, now));
        core.after_drop(&self.hold, dropped);
    }

    /// Ends the claim, and leaves what stands in Redis to its lease.
    pub(crate) fn leave(mut self) {
        self.warn_elsewhere();
        self.ended = true;
        let core = self.session.core();
        let (flags, now) = (self.flags, core.clock.now());
        let dropped = core
            .holds
            .change(&self.hold, |state| state.leave_claim(flags, now));
        core.after_drop(&self.hold, dropped);
    }

    /// A claim that ends in another task than it began has left its owner behind there: whatever
    /// that task does next would re-enter the lock.
    pub(super) fn warn_elsewhere(&mut self) {
        let owner = self.hold.owner();
        // Parts are ended wherever it suits the whole.
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
        self.warn_elsewhere();
        let core = self.session.core();
        if mutant!("late_drop") && self.hold.state().count == 1 {
            self.hold.state().count = 0;
            return core.settle_in_background(Job::new(self.hold.clone()));
        }
        let now = core.clock.now();
        let flags = self.flags;
        let dropped = core
            .holds
            .change(&self.hold, |state| state.drop_claim(flags, now));
        core.after_drop(&self.hold, dropped);
    }
}

/// Says that a guard of this owner is ended by another.
pub(crate) fn warn_elsewhere(key: &LockKey, owner: Owner) {
    tracing::warn!(
        target: "lockdog::lock",
        {
            lock.hash = %key.fingerprint(),
            %owner,
            here = %Owner::current(),
        },
        "a guard is ended in another task than it was taken in; take it with an owner of its own: \
         .owner(&Owner::new())"
    );
}
