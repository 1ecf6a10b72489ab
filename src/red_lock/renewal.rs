//! Who looks after a hold on many instances: the thread of one of its clients.

use std::sync::Arc;

use lockdog_quorum::{Event, Phase};

use super::quorum_hold::{QuorumHold, QuorumHoldState};
use crate::clock::Moment;
use crate::error::LostReason;
use crate::hold::Dependant;
use crate::session::{Timed, TimerKey};

impl QuorumHold {
    /// Sees to what a step leads to beside its orders.
    pub(super) fn follow(self: &Arc<Self>, state: &mut QuorumHoldState) {
        state.deferred.is_any = true;
        match state.quorum.phase() {
            Phase::Held | Phase::Jeopardy if state.count > 0 => {
                self.tell_jeopardy(state);
                let mut at = state.quorum.wake_at();
                if state.quorum.phase() == Phase::Jeopardy {
                    // Those that failed together shall not all come again together.
                    let later = self.clock.some_of(state.quorum.rules().lease / 50);
                    at = (at + later).min(state.quorum.notified_at());
                }
                let overdue_at = state.overdue_at();
                self.schedule(state, at.min(overdue_at));
            }
            Phase::Lost(loss) => {
                let reason = state.reason(loss);
                self.schedule_last_look(state);
                self.tell_lost(state, reason);
                if state.is_only_forgotten() {
                    // Nobody is left who has to be told first.
                    self.unregister();
                }
            }
            _ => self.schedule_last_look(state),
        }
    }

    /// Has the thread of one of its clients look after it, from then on.
    pub(super) fn schedule(self: &Arc<Self>, state: &mut QuorumHoldState, at: Moment) {
        if state.turn.is_some_and(|(turn, _)| turn == at) {
            return;
        }
        while let Some(instance) = self.lock.instances().get(state.keeper) {
            if instance
                .core()
                .upkeep
                .set(self.clone(), &mut state.turn, at)
            {
                return;
            }
            state.keeper += 1;
            state.turn = None;
        }
        if !state.quorum.is_living() || state.count == 0 {
            return;
        }
        // Every client was shut down. Nobody renews it any more.
        let now = self.clock.now();
        let given_back = state.quorum.step(Event::Lose, now);
        let given_back = self.requests(state, given_back);
        state.deferred.given_back.extend(given_back);
        self.tell_lost(state, LostReason::ShutDown);
    }

    /// Has the background look at what callers have under way, where nothing else is to be looked at.
    fn schedule_last_look(self: &Arc<Self>, state: &mut QuorumHoldState) {
        match state.overdue_at() {
            Moment::NEVER => self.unschedule(state),
            at => self.schedule(state, at),
        }
    }

    fn unschedule(&self, state: &mut QuorumHoldState) {
        if let Some(instance) = self.lock.instances().get(state.keeper) {
            instance.core().upkeep.remove(&mut state.turn);
        }
    }

    /// Says so once when extensions begin to fail, and when they succeed again.
    fn tell_jeopardy(&self, state: &mut QuorumHoldState) {
        let in_jeopardy = state.quorum.phase() == Phase::Jeopardy;
        if std::mem::replace(&mut state.told_jeopardy, in_jeopardy) == in_jeopardy {
            return;
        }
        let margin = state.quorum.margin(self.clock.now());
        state.deferred.jeopardy = Some(in_jeopardy.then(|| (self.outcomes(state), margin)));
    }

    /// Says that a round of acquiring it reached a quorum.
    pub(super) fn tell_round_won(&self) {
        if tracing::enabled!(tracing::Level::DEBUG) {
            let hash = self.lock.home_instance().key().fingerprint();
            let (instances, margin) =
                self.see(|state, now| (self.outcomes(state), state.quorum.margin(now)));
            tracing::debug!(
                target: "lockdog::quorum",
                { lock.hash = %hash, owner = %self.owner, instances, margin }, "round won"
            );
        }
    }

    /// Says that a round of acquiring it reached no quorum.
    pub(super) fn tell_round_lost(&self) {
        if tracing::enabled!(tracing::Level::DEBUG) {
            let instances = self.outcomes(&self.state());
            let hash = self.lock.home_instance().key().fingerprint();
            tracing::debug!(
                target: "lockdog::quorum",
                { lock.hash = %hash, owner = %self.owner, instances }, "round lost"
            );
        }
    }

    /// What became of each instance, without the locks' names.
    fn outcomes(&self, state: &QuorumHoldState) -> String {
        let instances = self.members(state);
        let said: Vec<String> = instances
            .iter()
            .map(|instance| format!("{}: {}", instance.server, instance.state.unnamed()))
            .collect();
        said.join("; ")
    }

    /// Says so once when it is lost.
    fn tell_lost(&self, state: &mut QuorumHoldState, reason: LostReason) {
        if std::mem::replace(&mut state.told_lost, true) {
            return;
        }
        state.deferred.lost = Some((reason, self.outcomes(state)));
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

    fn renews(&self) -> bool {
        self.see(|state, _| state.quorum.is_living() && state.quorum.rules().renewed)
    }
}

impl Timed for QuorumHold {
    fn look(self: Arc<Self>) -> bool {
        // Before it asks again for what callers have left: the round may be over.
        let mut requests = self.step(Event::Tick);
        let is_taken_over = self.take_over();
        if is_taken_over {
            // It is to be looked at again at another time.
            requests.extend(self.step(Event::Tick));
        }
        let is_any = is_taken_over || !requests.is_empty();
        self.delegate(requests);
        is_any
    }

    fn leave(self: Arc<Self>, turn: TimerKey) {
        let mut state = self.state();
        if state.turn != Some(turn) {
            // Another looks after it already.
            return;
        }
        state.keeper += 1;
        state.turn = None;
        // A caller may have left what is under way, whether it is held or still being acquired.
        let mut at = state.overdue_at();
        if state.quorum.is_living() {
            at = at.min(state.quorum.wake_at());
        }
        if at != Moment::NEVER {
            self.schedule(&mut state, at);
        }
    }
}
