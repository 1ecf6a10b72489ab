//! Accepting a grant, and the time limit for that.

use super::{HoldPhase, HoldState, Terms};
use crate::clock::Moment;
use crate::lease;

impl HoldState {
    /// The caller has to accept a grant before `until`.
    pub(crate) fn require_acceptance(&mut self, until: Moment) {
        if self.phase == HoldPhase::Pending {
            self.awaited = true;
            self.deadline = until;
        }
    }

    /// The deadline is the time limit for accepting a grant.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited && self.phase == HoldPhase::Pending
    }

    /// The time limit is over: its caller did not accept the grant, if there was one.
    pub(crate) fn is_untaken(&self, now: Moment) -> bool {
        self.is_awaited() && now >= self.deadline
    }

    /// Accepts a grant: the answer to an acquire that was first sent at `sent`. Returns false if the
    /// grant does not count: it came after its own deadline, or the hold ended meanwhile (design:
    /// invariant 2).
    pub(crate) fn grant(&mut self, sent: Moment, terms: &Terms, now: Moment) -> bool {
        let deadline = lease::deadline(sent, terms.lease);
        let first = match self.phase {
            HoldPhase::Pending => true,
            HoldPhase::Held | HoldPhase::Jeopardy => false,
            HoldPhase::Lost(_) | HoldPhase::Ended => return false,
        };
        let deadline = if first {
            deadline
        } else {
            deadline.max(self.deadline)
        };
        if now >= deadline {
            return false;
        }
        if let Some(max_hold) = terms.max_hold {
            self.max_until = self.max_until.min(sent + max_hold);
        }
        if first {
            self.acquired = sent;
            self.granted = true;
            self.owes_end = true;
            self.phase = HoldPhase::Held;
            // The answer is here, so the server executed the command before `now`.
            self.remains_until = now + terms.lease;
        }
        self.count += self.weight;
        self.known = self.count;
        // A nested acquire may be answered long after it was first sent, and after a later renewal.
        self.renewed = if first { sent } else { self.renewed.max(sent) };
        if terms.watched {
            self.watched += 1;
            self.renew_at = self.renew_at.min(sent + terms.lease / 3);
        }
        self.deadline = deadline.min(self.max_until);
        true
    }

    /// Ends a hold whose grant was not accepted. Returns false if it was accepted, or the hold ended
    /// before.
    pub(crate) fn end_pending(&mut self) -> bool {
        let pending = self.phase == HoldPhase::Pending;
        if pending {
            self.end();
        }
        pending
    }
}
