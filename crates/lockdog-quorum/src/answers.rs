//! What an answer says of the instance that gave it.

use super::member::{MemberOutcome, MemberState};
use super::round::RoundKind;
use super::{Action, Actions, Answer, Phase, Quorum};
use crate::Moment;

impl Quorum {
    /// Takes in what an instance answered to what it was asked in `round`.
    pub(crate) fn answered(
        &mut self,
        index: usize,
        round: u32,
        answer: Answer,
        now: Moment,
        actions: &mut Actions,
    ) {
        let (current, until) = (self.round.number, self.round.deadline);
        let living = !matches!(self.phase, Phase::Failed | Phase::Lost(_) | Phase::Ended);
        let member = &mut self.members[index];
        if round < member.taken_in {
            // Said of an earlier acquisition of this instance.
            return;
        }
        if round == current {
            member.answered_in = round;
        }
        match answer {
            Answer::Taken(register) => {
                if member.stand == MemberState::Held {
                    return;
                }
                let is_wanted = living && member.stand == MemberState::Asked;
                if !is_wanted || now >= member.until {
                    member.is_now(MemberState::Nothing);
                    if !mutant!("quorum_releases_acquired_only") {
                        actions.push(Action::Release { member: index });
                    }
                    return;
                }
                member.is_now(MemberState::Held);
                member.outcome = MemberOutcome::Held;
                member.register = register;
                if round == current || mutant!("quorum_mixes_rounds") {
                    member.acked_in = current;
                }
                let is_behind = round < current && self.round.kind == RoundKind::Extend;
                if self.phase == Phase::Marking {
                    self.mark(index, actions);
                } else if is_behind {
                    // Granted for as long as the last round asked, and this one asks for more.
                    member.asked_in = current;
                    let round = current;
                    actions.push(Action::Extend {
                        member: index,
                        round,
                    });
                }
            }
            // A `Take` that is executed twice is answered twice, perhaps in the other order.
            Answer::Busy(..) | Answer::Quarantined(_) if member.stand != MemberState::Asked => {}
            Answer::Busy(ttl, register) => {
                member.is_now(MemberState::Nothing);
                member.outcome = MemberOutcome::Busy(ttl.map(|ttl| now + ttl));
                member.register = register;
            }
            Answer::Quarantined(left) => {
                member.is_now(MemberState::Nothing);
                member.outcome = MemberOutcome::Quarantined(now + left);
            }
            Answer::Extended | Answer::Marked => {
                if member.stand != MemberState::Held {
                    return;
                }
                member.outcome = MemberOutcome::Held;
                if round == current {
                    member.acked_in = round;
                    member.until = until;
                } else if mutant!("quorum_mixes_rounds") {
                    member.acked_in = current;
                }
            }
            Answer::Conflict(value) => {
                member.outcome = MemberOutcome::Held;
                self.round.conflict = self.round.conflict.max(value);
            }
            Answer::NotOurs => {
                if member.stand == MemberState::Held {
                    member.is_now(MemberState::Gone);
                    member.outcome = MemberOutcome::Gone;
                    actions.push(Action::Release { member: index });
                }
            }
            Answer::Failed => {
                if member.stand == MemberState::Asked {
                    member.is_now(MemberState::Nothing);
                }
                member.outcome = MemberOutcome::Unreachable;
            }
        }
    }
}
