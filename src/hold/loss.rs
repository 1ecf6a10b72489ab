//! How a hold is lost.

use super::unreported_loss::UnreportedLoss;
use super::{HoldPhase, HoldState};
use crate::clock::Moment;
use crate::error::LostReason;
use crate::lease;

impl HoldState {
    /// Ends the hold against its owner's will. Returns false if there was nothing to lose. A caller that gets
    /// true has to report the loss.
    pub(crate) fn lose(&mut self, reason: LostReason) -> bool {
        let living = self.is_living();
        if living {
            let ends_by_lease = reason == LostReason::Deadline && self.watched == 0;
            let is_part = self.is_part();
            self.unreported = Some(UnreportedLoss {
                reason,
                is_part,
                is_expiry: ends_by_lease && self.is_only_forgotten(),
                // Its owner ended all other claims. So the observers are notified of a release, when the composite
                // lock ends its claim.
                owes_end: !is_part && std::mem::take(&mut self.owes_end),
            });
            self.phase = HoldPhase::Lost(reason);
        }
        living
    }

    /// All its claims belong to composite locks, which report what happens to it themselves.
    pub(crate) fn is_part(&self) -> bool {
        self.parts > 0 && self.parts == self.count
    }

    /// Loses the hold if its deadline is over.
    pub(crate) fn expire(&mut self, now: Moment) -> bool {
        now >= self.deadline && self.lose(self.deadline_reason())
    }

    /// The reason of the loss at the deadline.
    pub(crate) fn deadline_reason(&self) -> LostReason {
        if self.is_as_far_as_allowed(self.renewed) {
            LostReason::MaxHold
        } else {
            LostReason::Deadline
        }
    }

    /// Because of `max_hold`, a renewal sent at `sent` could not move the deadline by more than the
    /// clock drift.
    pub(super) fn is_as_far_as_allowed(&self, sent: Moment) -> bool {
        let allowed = lease::whole(self.max_until.since(sent));
        lease::deadline(sent, allowed) <= self.deadline + lease::drift(allowed)
    }
}
