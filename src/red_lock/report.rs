//! Reports about a quorum hold.

use std::sync::Arc;
use std::time::Duration;

use lockdog_quorum::{MemberOutcome, Phase};

use super::quorum_hold::{QuorumHold, QuorumHoldState};
use crate::error::{Error, Instance, InstanceState, Lost, LostFacts, LostReason};

impl QuorumHold {
    /// How it was lost; `None` while it may be used. A reported loss stays final.
    pub(super) fn loss(self: &Arc<Self>) -> Option<Lost> {
        let mut state = self.state();
        let requests = self.collect_work(&mut state);
        let lost = self.loss_in(&state);
        drop(state);
        self.delegate(requests);
        lost
    }

    /// As [`QuorumHold::loss`], with the state already locked and after a step.
    pub(super) fn loss_in(&self, state: &QuorumHoldState) -> Option<Lost> {
        let reason = match state.quorum.phase() {
            Phase::Lost(loss) => state.reason(loss),
            Phase::Failed | Phase::Ended => LostReason::Released,
            Phase::Acquiring | Phase::Marking | Phase::Held | Phase::Jeopardy => return None,
        };
        Some(self.lost_as(reason, state, self.members(state)))
    }

    /// The loss for this reason, with the outcome of each instance. `members` are sorted.
    pub(super) fn lost_as(
        &self,
        reason: LostReason,
        state: &QuorumHoldState,
        members: Vec<Instance>,
    ) -> Lost {
        let (held_for, renewed) = self.ages(state);
        Lost::new(LostFacts {
            reason,
            lock: self.lock.name().to_owned(),
            owner: self.owner.to_string(),
            held_for,
            renewed,
            instances: self.in_caller_order(members),
        })
    }

    /// How long ago it was acquired, and how long ago the last successful round began.
    pub(super) fn ages(&self, state: &QuorumHoldState) -> (Duration, Duration) {
        let now = self.clock.now();
        let renewed = state.quorum.renewed();
        (now.since(self.acquired), now.since(renewed))
    }

    /// The error of an unlock that too few instances confirmed within this time.
    pub(super) fn unlock_failed(&self, waited: Duration, refused: Vec<(usize, Error)>) -> Error {
        let state = self.state();
        let mut members = self.members(&state);
        let mut is_unsure = false;
        for (member, error) in refused {
            let cause = match error {
                Error::Lost(_) => None,
                Error::UnlockUnconfirmed(unlock) => {
                    is_unsure = true;
                    unlock.cause().cloned()
                }
                error => {
                    is_unsure = true;
                    Some(error)
                }
            };
            members[member].state = match cause {
                Some(cause) => InstanceState::Unreachable { cause },
                None => InstanceState::Lost,
            };
        }
        if is_unsure {
            let members = self.in_caller_order(members);
            return Error::unconfirmed(self.lock.name(), waited, members);
        }
        // Every refusal was "not ours", so it was lost before the unlock.
        self.lost_as(LostReason::NotOurs, &state, members).into()
    }

    /// The outcome of each instance, in the order in which the caller gave them.
    pub(super) fn instances(&self) -> Vec<Instance> {
        self.in_caller_order(self.members(&self.state()))
    }

    /// Reorders sorted members into the order in which the caller gave them.
    fn in_caller_order(&self, members: Vec<Instance>) -> Vec<Instance> {
        let given = self.lock.given.iter();
        given.map(|member| members[*member].clone()).collect()
    }

    /// The outcome of each instance, in sorted order.
    pub(super) fn members(&self, state: &QuorumHoldState) -> Vec<Instance> {
        let now = self.clock.now();
        let is_over = matches!(state.quorum.phase(), Phase::Lost(_) | Phase::Ended);
        let instances = self.lock.instances().iter().enumerate();
        instances
            .map(|(member, instance)| {
                let cause = state.causes[member].clone();
                instance.report(match state.quorum.outcome(member) {
                    MemberOutcome::Untried => InstanceState::Unanswered,
                    MemberOutcome::Held if is_over => InstanceState::GivenBack,
                    MemberOutcome::Held => InstanceState::Acquired,
                    MemberOutcome::Busy(until) => InstanceState::HeldByAnother {
                        ttl: until.map(|until| until.since(now)),
                    },
                    MemberOutcome::Unreachable => InstanceState::Unreachable {
                        cause: cause.unwrap_or(Error::Closed),
                    },
                    MemberOutcome::Quarantined(until) => InstanceState::Quarantined {
                        left: until.since(now),
                    },
                    MemberOutcome::Forgetful => InstanceState::Forgetful,
                    MemberOutcome::Late => InstanceState::Late,
                    MemberOutcome::Gone => InstanceState::Lost,
                })
            })
            .collect()
    }
}
