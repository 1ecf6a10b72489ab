//! Claims whose guards were forgotten: a later unlock ends them.

use super::{ClaimFlags, Dropped, HoldPhase, HoldState};
use crate::clock::Moment;
use crate::error::LostReason;
use crate::lease;

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
        // An unanswered renewal may have extended its lease, and so may an acquire of a longer lease that its
        // caller gave up. A fixed lease ends by itself otherwise.
        let longest = lease::deadline(self.renewed, self.longest_lease());
        let is_extended = self.watched > 0 || longest > self.deadline;
        let may_be_left = is_extended && now < self.remains_until && self.left == 0;
        let gone = matches!(reason, LostReason::NotOurs | LostReason::Forced);
        self.end();
        Some(if may_be_left && !gone {
            Dropped::Settle
        } else {
            Dropped::Forget
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::hold::Terms;

    const LEASE: Duration = Duration::from_secs(30);

    /// What remains to do for a hold with a fixed lease whose only guard was forgotten, and for whose owner
    /// the client sent these leases afterwards, when it is lost.
    fn after_the_loss(sent_later: &[Duration]) -> Option<Dropped> {
        let start = Moment(1_000_000_000);
        let mut state = HoldState::pending(start);
        let terms = Terms::new(LEASE, false);
        state.sending(start, LEASE);
        assert!(state.grant(start, &terms, start));
        state.forget_claim(state.flags_of_acquire(false), start);
        for lease in sent_later {
            state.sending(start, *lease);
        }
        let now = start + LEASE;
        assert!(state.expire(now));
        state.end_forgotten(now)
    }

    #[test]
    fn a_lost_hold_is_settled_only_if_an_acquire_without_an_answer_may_have_extended_its_lease() {
        assert_eq!(after_the_loss(&[]), Some(Dropped::Forget));
        assert_eq!(after_the_loss(&[LEASE / 2]), Some(Dropped::Forget));
        assert_eq!(after_the_loss(&[2 * LEASE]), Some(Dropped::Settle));
    }
}
