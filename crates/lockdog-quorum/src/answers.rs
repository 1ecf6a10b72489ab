//! Processes the answers of the instances.

use super::member::{MemberOutcome, MemberState};
use super::round::RoundKind;
use super::{Action, Actions, Answer, Phase, Quorum};
use crate::Moment;

impl Quorum {
    /// Processes the answer of an instance to the query of `round`.
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
            // The answer is about an earlier `Take`, which was given up. It says nothing about the
            // current one.
            return;
        }
        if round == current {
            // Only answers of the current round are counted as answered. Others do not decide this
            // round.
            member.answered_in = round;
        }
        match answer {
            Answer::Taken(register) => {
                if member.state == MemberState::Held {
                    // A duplicate of a grant that was already processed.
                    return;
                }
                let is_wanted = living && member.state == MemberState::Asked;
                if !is_wanted || now >= member.until {
                    // The grant comes too late: the acquisition is over, this `Take` was given up, or
                    // the granted lease has ended on this instance. The instance may still hold the
                    // lock, so release it.
                    member.is_now(MemberState::Nothing);
                    actions.push(Action::Release { member: index });
                    return;
                }
                member.is_now(MemberState::Held);
                member.outcome = MemberOutcome::Held;
                member.register = register;
                // A grant counts as a vote only in the round that asked for it, because the deadline is
                // that of the round.
                if round == current {
                    member.acked_in = current;
                }
                let is_behind = round < current && self.round.kind == RoundKind::Extend;
                if self.phase == Phase::Marking {
                    // Other instances get the token now, so this one must get it too; without it, it
                    // would be no vote.
                    self.mark(index, actions);
                } else if is_behind {
                    // The earlier round's lease may end too early for this round. Ask for an extension,
                    // so that the instance can vote.
                    member.asked_in = current;
                    let round = current;
                    actions.push(Action::Extend {
                        member: index,
                        round,
                    });
                }
            }
            // A `Take` that is executed twice is answered twice, perhaps in reverse order. If the first
            // answer was processed, ignore this one.
            Answer::Busy(..) | Answer::Quarantined(_) if member.state != MemberState::Asked => {}
            Answer::Busy(ttl, register) => {
                // Another owner holds it. The register still counts as read, for the fencing token.
                member.is_now(MemberState::Nothing);
                member.outcome = MemberOutcome::Busy(ttl.map(|ttl| now + ttl));
                member.register = register;
            }
            Answer::Quarantined(left) => {
                member.is_now(MemberState::Nothing);
                member.outcome = MemberOutcome::Quarantined(now + left);
            }
            Answer::Extended | Answer::Marked => {
                if member.state != MemberState::Held {
                    // It was lost meanwhile. A late acknowledgement must not revive it.
                    return;
                }
                member.outcome = MemberOutcome::Held;
                // Only a vote of the current round moves the instance's deadline: that round began
                // later.
                if round == current {
                    member.acked_in = round;
                    member.until = until;
                }
            }
            Answer::Conflict(value) => {
                // The instance holds the lock, but its register is larger. A failed round is repeated
                // with a larger token.
                member.outcome = MemberOutcome::Held;
                self.round.conflict = self.round.conflict.max(value);
            }
            Answer::NotOurs => {
                // Ignored if the instance did not count any more. `Gone` makes the next round ask it
                // again; the release ends the claim that the driver has there.
                if member.state == MemberState::Held {
                    member.is_now(MemberState::Gone);
                    member.outcome = MemberOutcome::Gone;
                    actions.push(Action::Release { member: index });
                }
            }
            Answer::Failed => {
                // Without an answer it is unknown whether a `Take` was executed; the driver undoes it.
                // An instance that holds the lock keeps it until its lease ends.
                if member.state == MemberState::Asked {
                    member.is_now(MemberState::Nothing);
                }
                member.outcome = MemberOutcome::Unreachable;
            }
        }
    }
}
