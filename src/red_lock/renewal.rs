//! The renewal timer of a hold on many instances: it runs on the thread of one of its clients.

use std::sync::Arc;

use lockdog_quorum::{Event, Phase, Rules};

use super::deferred::DeferredLoss;
use super::quorum_hold::{QuorumHold, QuorumHoldState};
use crate::clock::Moment;
use crate::error::LostReason;
use crate::hold::{Dependant, PartRenewal};
use crate::session::{Timed, TimerKey};

impl QuorumHold {
    /// Does what a step requires besides its requests: timers and notifications.
    pub(super) fn follow(self: &Arc<Self>, state: &mut QuorumHoldState) {
        state.deferred.is_any = true;
        match state.quorum.phase() {
            Phase::Held | Phase::Jeopardy if state.count > 0 => {
                self.report_jeopardy(state);
                let mut at = state.quorum.wake_at();
                if state.quorum.phase() == Phase::Jeopardy {
                    // Jitter, so that clients that failed together do not retry together.
                    let later = self.clock.some_of(state.quorum.rules().lease / 50);
                    at = (at + later).min(state.quorum.notified_at());
                }
                self.schedule(state, at);
            }
            // A caller that is polled ends or claims the attempt before this timer.
            _ if state.is_undecided() => {
                self.schedule(state, state.overdue_at());
            }
            Phase::Lost(loss) => {
                let reason = state.reason(loss);
                self.unschedule(state);
                self.report_lost(state, reason);
                if state.is_only_forgotten() {
                    // No claim is left that must be notified of the loss first.
                    self.unregister();
                }
            }
            _ => self.unschedule(state),
        }
    }

    /// Sets the timer on the thread of one of its clients.
    pub(super) fn schedule(self: &Arc<Self>, state: &mut QuorumHoldState, at: Moment) {
        if state.turn.is_some_and(|(turn, _)| turn == at) {
            return;
        }
        while let Some(instance) = self.lock.instances().get(state.renewer) {
            if instance
                .core()
                .timers
                .set(self.clone(), &mut state.turn, at)
            {
                return;
            }
            state.renewer += 1;
            state.turn = None;
        }
        if !state.quorum.is_living() || state.count == 0 {
            return;
        }
        // Every client was shut down, so nothing renews it any more.
        let now = self.clock.now();
        let given_back = state.quorum.step(Event::Lose, now);
        let given_back = self.requests(state, given_back);
        state.deferred.given_back.extend(given_back);
        self.report_lost(state, LostReason::ShutDown);
    }

    fn unschedule(&self, state: &mut QuorumHoldState) {
        if let Some(instance) = self.lock.instances().get(state.renewer) {
            instance.core().timers.remove(&mut state.turn);
        }
    }

    /// Records, once, that extensions began to fail or succeed again.
    fn report_jeopardy(&self, state: &mut QuorumHoldState) {
        let in_jeopardy = state.is_in_jeopardy();
        if std::mem::replace(&mut state.reported_jeopardy, in_jeopardy) == in_jeopardy {
            return;
        }
        if !in_jeopardy && state.watched == 0 {
            // The last claim that needs extensions has ended. No extension succeeded.
            return;
        }
        let margin = state.quorum.margin(self.clock.now());
        state.deferred.jeopardy = Some(in_jeopardy.then(|| (self.outcomes(state), margin)));
    }

    /// Logs that a round of acquiring reached a quorum.
    pub(super) fn log_round_won(&self) {
        if tracing::enabled!(tracing::Level::DEBUG) {
            let key = self.lock.home_instance().key();
            let (lock, hash) = (key.logged_name(), key.fingerprint());
            let (instances, margin) =
                self.see(|state, now| (self.outcomes(state), state.quorum.margin(now)));
            tracing::debug!(
                target: "lockdog::quorum",
                { lock, lock.hash = %hash, owner = %self.owner, instances, margin }, "round won"
            );
        }
    }

    /// Logs that a round of acquiring did not reach a quorum.
    pub(super) fn log_round_lost(&self) {
        if tracing::enabled!(tracing::Level::DEBUG) {
            let instances = self.outcomes(&self.state());
            let key = self.lock.home_instance().key();
            let (lock, hash) = (key.logged_name(), key.fingerprint());
            tracing::debug!(
                target: "lockdog::quorum",
                { lock, lock.hash = %hash, owner = %self.owner, instances }, "round lost"
            );
        }
    }

    /// The outcome of each instance, without the names of the locks.
    fn outcomes(&self, state: &QuorumHoldState) -> String {
        let instances = self.members(state);
        let outcomes: Vec<String> = instances
            .iter()
            .map(|instance| format!("{}: {}", instance.server, instance.state.unnamed()))
            .collect();
        outcomes.join("; ")
    }

    /// Records the loss, once.
    fn report_lost(&self, state: &mut QuorumHoldState, reason: LostReason) {
        if std::mem::replace(&mut state.reported_lost, true) {
            return;
        }
        state.deferred.lost = Some(DeferredLoss {
            reason,
            instances: self.outcomes(state),
            // Code ported from Redisson acquires a lock for a fixed time in this way and never unlocks
            // it. The end of its lease is no loss.
            is_expiry: reason == LostReason::Deadline
                && state.watched == 0
                && state.count > 0
                && state.is_only_forgotten(),
        });
    }
}

impl Dependant for QuorumHold {
    fn hold_lost(&self) {
        let Some(hold) = self.me.upgrade() else {
            return;
        };
        let mut state = self.state();
        state.part_lost = true;
        if state.quorum.is_living() && state.count > 0 {
            hold.schedule(&mut state, self.clock.now());
        }
    }

    fn renewal(&self) -> Option<PartRenewal> {
        self.see(|state, _| {
            let quorum = &state.quorum;
            let is_renewed = quorum.is_living() && quorum.rules().renewed;
            is_renewed.then(|| PartRenewal {
                in_jeopardy: state.is_in_jeopardy(),
                deadline: (!quorum.is_as_long_as_allowed()).then(|| quorum.deadline()),
            })
        })
    }
}

impl Timed for QuorumHold {
    fn on_due(self: Arc<Self>) -> bool {
        if self.see(|state, now| state.is_undecided() && now >= state.overdue_at()) {
            // The caller does not poll its future any more. The tick records which instances did not answer.
            drop(self.step(Event::Tick));
            self.abandon();
            return true;
        }
        let requests = {
            let mut state = self.state();
            // A nested call asks for renewal before its claim counts. It may not be polled any more.
            state.let_expire_unless_watched();
            self.step_locked(&mut state, Event::Tick)
        };
        let is_any = !requests.is_empty();
        self.delegate(requests);
        is_any
    }

    fn on_stopped(self: Arc<Self>, turn: TimerKey) {
        let mut state = self.state();
        if state.turn != Some(turn) {
            // The hold has set another timer meanwhile.
            return;
        }
        state.renewer += 1;
        state.turn = None;
        self.follow(&mut state);
    }
}

impl QuorumHoldState {
    /// When an attempt that is not decided is abandoned: its caller would have ended it by then.
    fn overdue_at(&self) -> Moment {
        self.quorum.round_ends() + Rules::answer_limit(self.quorum.lease())
    }
}
