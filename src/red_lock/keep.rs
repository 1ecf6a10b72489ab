//! Who looks after a hold on many instances: the thread of one of its clients.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::order::Orders;
use super::whole::{State, Whole};
use crate::clock::Moment;
use crate::error::LostReason;
use crate::quorum::{Event, Outcome, Phase};
use crate::session::Kept;

impl Whole {
    /// Sees to what a step leads to beside its orders.
    pub(super) fn follow(self: &Arc<Self>, state: &mut State) {
        match state.quorum.phase() {
            Phase::Held | Phase::Jeopardy if state.count > 0 => {
                let at = state.quorum.wake_at();
                self.be_kept(state, at);
            }
            Phase::Lost(reason) => {
                self.let_go(state);
                self.tell_lost(state, reason);
            }
            Phase::Ended | Phase::Failed => self.let_go(state),
            _ => {}
        }
    }

    /// Has the thread of one of its clients look after it, from then on.
    pub(super) fn be_kept(self: &Arc<Self>, state: &mut State, at: Moment) {
        if state.turn.is_some_and(|(turn, _)| turn == at) {
            return;
        }
        while let Some(part) = self.lock.parts().get(state.keeper) {
            if part.core().upkeep.set(self.clone(), &mut state.turn, at) {
                return;
            }
            state.keeper += 1;
            state.turn = None;
        }
        // Every client was shut down. Nobody renews it any more.
        let now = self.clock.now();
        let given_back = state.quorum.step(Event::Lose(LostReason::ShutDown), now);
        drop(self.orders(state, given_back));
        self.tell_lost(state, LostReason::ShutDown);
    }

    fn let_go(&self, state: &mut State) {
        if let Some(part) = self.lock.parts().get(state.keeper) {
            part.core().upkeep.remove(&mut state.turn);
        }
    }

    fn tell_lost(&self, state: &mut State, reason: LostReason) {
        if std::mem::replace(&mut state.told_lost, true) {
            return;
        }
        self.lost.cancel();
        let quorum = &state.quorum;
        let parts = 0..self.lock.parts().len();
        let outcomes: Vec<Outcome> = parts.map(|member| quorum.outcome(member)).collect();
        tracing::warn!(
            lock.hash = %self.lock.home().key().fingerprint(),
            owner = %self.owner,
            ?reason,
            held_ms = self.clock.now().since(self.acquired).as_millis() as u64,
            instances = ?outcomes,
            "quorum lost"
        );
    }
}

impl Kept for Whole {
    fn look(self: Arc<Self>) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
        let orders = self.step(Event::Tick);
        if orders.is_empty() {
            return None;
        }
        Some(Box::pin(Orders::new(&self, orders).finish()))
    }

    fn leave(self: Arc<Self>) {
        let mut state = self.state();
        state.keeper += 1;
        state.turn = None;
        if state.quorum.is_living() {
            let at = state.quorum.wake_at();
            self.be_kept(&mut state, at);
        }
    }
}
