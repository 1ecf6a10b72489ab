//! The events of a lock of many instances, for observers.

use std::time::Duration;

use lockdog_quorum::MemberOutcome;

use super::deferred::Deferred;
use super::quorum_hold::QuorumHold;
use crate::error::{Error, LostReason, Result};
use crate::observe::{ClientEvent, End};
use crate::session::Unlocked;

impl QuorumHold {
    /// Reports to the observers a loss, or that extensions fail or succeed again. Called without the mutex of the
    /// state.
    pub(super) fn tell(&self, deferred: &Deferred) {
        let observers = self.lock.observers();
        let lock = self.lock.shown(self.owner);
        match &deferred.jeopardy {
            Some(Some(_)) => {
                let remaining = self.see(|state, now| state.quorum.deadline().since(now));
                observers.tell(|| ClientEvent::Jeopardy { lock, remaining });
            }
            Some(None) => observers.tell(|| ClientEvent::Recovered { lock }),
            None => {}
        }
        match &deferred.lost {
            Some(loss) if loss.is_expiry => self.tell_released(End::Expired, true),
            Some(loss) => {
                let (held, since_renewal) = self.see(|state, _| self.ages(state));
                self.tell_lost(loss.reason, held, since_renewal);
            }
            None => {}
        }
    }

    fn tell_lost(&self, reason: LostReason, held: Duration, since_renewal: Duration) {
        if reason != LostReason::ShutDown {
            self.lock.home_instance().core().totals.count_loss();
        }
        self.lock.observers().tell(|| ClientEvent::Lost {
            lock: self.lock.shown(self.owner),
            reason,
            held,
            since_renewal,
        });
    }

    /// Reports a round of acquiring to the observers.
    pub(super) fn tell_round(&self, won: bool) {
        let observers = self.lock.observers();
        if observers.is_none() {
            return;
        }
        let members = self.lock.instances().len();
        let (answered, margin) = self.see(|state, now| {
            let outcomes = (0..members).map(|member| state.quorum.outcome(member));
            let answered = outcomes.filter(|outcome| {
                !matches!(
                    outcome,
                    MemberOutcome::Untried | MemberOutcome::Unreachable | MemberOutcome::Late
                )
            });
            (answered.count(), state.quorum.margin(now))
        });
        observers.tell(|| ClientEvent::Round {
            lock: self.lock.shown(self.owner),
            won,
            answered: answered as u32,
            margin: if won { margin as u32 } else { 0 },
        });
    }

    /// Reports to the observers that it ended by its owner's will.
    pub(super) fn tell_released(&self, how: End, confirmed: bool) {
        self.lock.observers().tell(|| ClientEvent::Released {
            lock: self.lock.shown(self.owner),
            held: self.clock.now().since(self.acquired),
            how,
            confirmed,
        });
    }
}

/// Reports to the observers how an unlock ended. If it is dropped before the end, the background releases the
/// instances, and the observers get an unconfirmed release.
pub(super) struct TellsEnd<'a>(Option<&'a QuorumHold>);

impl<'a> TellsEnd<'a> {
    pub(super) fn new(hold: &'a QuorumHold) -> Self {
        Self(Some(hold))
    }

    pub(super) fn tell(mut self, outcome: &Result<Unlocked>) {
        let Some(hold) = self.0.take() else { return };
        match outcome {
            Err(Error::Lost(lost)) => {
                hold.tell_lost(lost.reason(), lost.held_for(), lost.since_renewal());
            }
            outcome => hold.tell_released(End::Unlocked, outcome.is_ok()),
        }
    }
}

impl Drop for TellsEnd<'_> {
    fn drop(&mut self) {
        if let Some(hold) = self.0 {
            hold.tell_released(End::Unlocked, false);
        }
    }
}
