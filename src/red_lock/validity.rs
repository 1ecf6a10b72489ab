//! Whether a hold on many instances may be used: one place decides for all callers.

use std::sync::Arc;

use lockdog_quorum::{Actions, Answer, Event, LossCause, Phase};

use super::query::Request;
use super::quorum_hold::{QuorumHold, QuorumHoldState};
use crate::clock::Moment;
use crate::error::LostReason;
use crate::hold::HoldPhase;
use crate::session::Claim;

impl QuorumHold {
    /// Reports to the quorum's core each instance that the core counts as held, but that is lost according
    /// to its client.
    pub(super) fn report_lost_instances(
        &self,
        state: &mut QuorumHoldState,
        now: Moment,
        actions: &mut Actions,
    ) {
        for member in 0..state.claims.len() {
            let Some(claim) = state.claims[member].as_ref() else {
                continue;
            };
            let Some(reason) = lost_because(claim, now) else {
                continue;
            };
            if !state.quorum.has(member) {
                continue;
            }
            let event = Event::Answered {
                member,
                round: state.quorum.round(),
                answer: Answer::NotOurs,
            };
            let was_living = state.quorum.is_living();
            actions.append(&state.quorum.step(event, now));
            if was_living && state.quorum.phase() == Phase::Lost(LossCause::NotOurs) {
                state.part_lost_because = Some(reason);
            }
        }
    }

    /// Whether it may be used now. False from the moment at which it is lost, and never before.
    pub(super) fn is_valid(self: &Arc<Self>) -> bool {
        let mut state = self.state();
        let now = self.clock.now();
        if state.is_intact(now) {
            return true;
        }
        let requests = self.collect_work(&mut state);
        let is_valid = state.quorum.is_valid(now);
        drop(state);
        self.delegate(requests);
        is_valid
    }

    /// Ends the hold if its deadline is over, or if its clients know that too many instances are lost. Returns the
    /// requests that follow. Every call that reads the state begins with this, so that all their answers agree.
    pub(super) fn collect_work(self: &Arc<Self>, state: &mut QuorumHoldState) -> Vec<Request> {
        state.part_lost |= state.has_lost_part(self.clock.now());
        self.step_locked(state, Event::Look)
    }
}

impl QuorumHoldState {
    /// The reason of a loss, as its owner sees it.
    pub(super) fn reason(&self, loss: LossCause) -> LostReason {
        match loss {
            LossCause::Deadline => LostReason::Deadline,
            LossCause::MaxHold => LostReason::MaxHold,
            LossCause::NotOurs => self.part_lost_because.unwrap_or(LostReason::NotOurs),
            // The driver ends a hold only if every client was shut down.
            LossCause::Driver => LostReason::ShutDown,
        }
    }

    /// It is still being acquired and has no claim yet.
    pub(super) fn is_undecided(&self) -> bool {
        let is_over = matches!(
            self.quorum.phase(),
            Phase::Failed | Phase::Lost(_) | Phase::Ended
        );
        self.count == 0 && !is_over
    }

    /// Extensions fail, and a claim needs them. A hold with a fixed lease is not extended, so it is never in jeopardy.
    pub(super) fn is_in_jeopardy(&self) -> bool {
        self.watched > 0 && self.quorum.phase() == Phase::Jeopardy
    }

    /// Whether it has not ended, and nothing is known that would end it.
    fn is_intact(&self, now: Moment) -> bool {
        let is_living = self.quorum.is_living() && now < self.quorum.notified_at();
        is_living && !self.part_lost && !self.has_lost_part(now)
    }

    /// Whether a client knows of a lost instance that the quorum's core still counts.
    fn has_lost_part(&self, now: Moment) -> bool {
        let mut claims = self.claims.iter().enumerate();
        claims.any(|(member, claim)| {
            let claim = claim.as_ref().filter(|_| self.quorum.has(member));
            claim.is_some_and(|claim| lost_because(claim, now).is_some())
        })
    }
}

/// Why a client lost its part; `None` if it still holds it.
fn lost_because(claim: &Claim, now: Moment) -> Option<LostReason> {
    let state = claim.hold().state();
    match state.phase {
        HoldPhase::Lost(reason) => Some(reason),
        HoldPhase::Ended => Some(LostReason::NotOurs),
        HoldPhase::Held | HoldPhase::Jeopardy if now >= state.deadline => {
            Some(state.deadline_reason())
        }
        HoldPhase::Pending | HoldPhase::Held | HoldPhase::Jeopardy => None,
    }
}
