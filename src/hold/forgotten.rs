//! Claims whose guards were forgotten: a later unlock ends them.

use super::{ClaimFlags, Dropped, HoldPhase, HoldState};
use crate::clock::Moment;
use crate::error::LostReason;

impl HoldState {
    /// Every claim is a forgotten one, or was left to the lease.
    pub(crate) fn is_only_forgotten(&self) -> bool {
        let forgotten: u32 = self.forgotten.iter().map(|flags| flags.weight).sum();
        self.count == forgotten + self.left
    }

    /// Leaves a claim to a later unlock by its owner. The owner of a lost hold has nothing to unlock
    /// later, so a claim on a lost hold ends here.
    pub(crate) fn forget_claim(&mut self, flags: ClaimFlags, now: Moment) -> Dropped {
        if matches!(self.phase, HoldPhase::Lost(_)) {
            return self.drop_claim(flags, now);
        }
        self.forgotten.push(flags);
        Dropped::Nothing
    }

    /// Takes up to this number of forgotten permits.
    pub(crate) fn take_forgotten(&mut self, most: u32) -> Option<ClaimFlags> {
        let mut flags = self.forgotten.pop()?;
        if flags.weight > most {
            let rest = flags.weight - most;
            self.forgotten.push(ClaimFlags {
                weight: rest,
                ..flags
            });
            flags.weight = most;
        }
        Some(flags)
    }

    /// Ends a lost hold that has only forgotten claims. Returns `None` if it has others.
    pub(crate) fn end_forgotten(&mut self, now: Moment) -> Option<Dropped> {
        let HoldPhase::Lost(reason) = self.phase else {
            return None;
        };
        if !self.is_only_forgotten() {
            return None;
        }
        // An unanswered renewal may have extended its lease. A fixed lease ends by itself.
        let may_be_left = self.watched > 0 && now < self.remains_until && self.left == 0;
        let gone = matches!(reason, LostReason::NotOurs | LostReason::Forced);
        self.end();
        Some(if may_be_left && !gone {
            Dropped::Settle
        } else {
            Dropped::Forget
        })
    }
}
