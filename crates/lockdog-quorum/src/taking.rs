//! Asks instances for the lock, and gives up those that do not answer.

use super::member::{MemberOutcome, MemberState};
use super::{Action, Actions, Moment, Phase, Quorum};

impl Quorum {
    /// Asks every instance that does not hold it and is not being asked.
    pub(crate) fn take_missing(&mut self, actions: &mut Actions) {
        let round = self.round.number;
        for (index, member) in self.members.iter_mut().enumerate() {
            if matches!(member.state, MemberState::Nothing | MemberState::Gone) {
                member.ask(&self.round);
                actions.push(Action::Take {
                    member: index,
                    round,
                });
            }
        }
    }

    /// When the first pending `Take` is given up.
    pub(crate) fn asked_until(&self) -> Moment {
        let asked_until = self.members.iter().map(|member| member.asked_until);
        asked_until.min().unwrap_or(Moment::NEVER)
    }

    /// Gives up each `Take` whose time is over. Its caller may have stopped, so that no answer comes; a
    /// later round asks again.
    pub(crate) fn give_up_late(&mut self, now: Moment, actions: &mut Actions) {
        let is_over = matches!(self.phase, Phase::Failed | Phase::Lost(_) | Phase::Ended);
        if is_over || self.asked_until() > now {
            return;
        }
        for (index, member) in self.members.iter_mut().enumerate() {
            if member.asked_until <= now {
                member.is_now(MemberState::Nothing);
                member.outcome = MemberOutcome::Late;
                actions.push(Action::Release { member: index });
            }
        }
        if self.is_living() && self.rules.renewed && !self.round.is_open() {
            // Earlier than usual, because an instance that could answer does not count until it is
            // asked again.
            self.next = self.next.min(now + self.rules.lease / 10);
        }
    }
}
