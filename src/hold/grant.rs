//! Taking in a grant, and the time that there is for it.

use super::{HoldPhase, HoldState, Terms};
use crate::clock::Moment;
use crate::lease;

impl HoldState {
    /// Whoever is granted it has until then to take it in.
    pub(crate) fn await_taking_in(&mut self, until: Moment) {
        if self.phase == HoldPhase::Pending {
            self.awaited = true;
            self.deadline = until;
        }
    }

    /// The deadline is that of a grant to be taken in.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited && self.phase == HoldPhase::Pending
    }

    /// Its grant, if there is one, is not taken in: whoever asked for it does not go on.
    pub(crate) fn is_untaken(&self, now: Moment) -> bool {
        self.is_awaited() && now >= self.deadline
    }

    /// Takes in a grant: the answer to an acquire first sent at `sent`. False if it is none: it
    /// came after its own deadline, or the hold was given up meanwhile (design: invariant 2).
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
            self.phase = HoldPhase::Held;
            // The answer is here, so the server did it before now.
            self.remains_until = now + terms.lease;
        }
        self.count += 1;
        self.renewed = sent;
        if terms.watched {
            self.watched += 1;
            self.renew_at = self.renew_at.min(sent + terms.lease / 3);
        }
        self.deadline = deadline.min(self.max_until);
        true
    }

    /// Ends a hold whose acquire was not taken in; false if it was, or the hold ended before.
    pub(crate) fn end_pending(&mut self) -> bool {
        let pending = self.phase == HoldPhase::Pending;
        if pending {
            self.end();
        }
        pending
    }
}
