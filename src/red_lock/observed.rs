//! The events of a lock of many instances, for observers.

use std::time::Duration;

use lockdog_quorum::MemberOutcome;

use super::deferred::Deferred;
use super::instance_answer::InstanceAnswer;
use super::quorum_hold::QuorumHold;
use crate::error::{Error, LostReason, Result};
use crate::observe::{ClientEvent, End};
use crate::session::{Core, Unlocked};

impl QuorumHold {
    /// Reports to the observers a loss, or that extensions fail or succeed again. Called without the mutex of the
    /// state.
    pub(super) fn notify(&self, deferred: &Deferred) {
        let observers = self.lock.observers();
        let lock = self.lock.shown(self.owner);
        match &deferred.jeopardy {
            Some(Some(_)) => {
                let remaining = self.see(|state, now| state.quorum.deadline().since(now));
                observers.notify(|| ClientEvent::Jeopardy { lock, remaining });
            }
            Some(None) => observers.notify(|| ClientEvent::Recovered { lock }),
            None => {}
        }
        match &deferred.lost {
            Some(loss) if loss.is_expiry => self.notify_released(End::Expired, true),
            Some(loss) => {
                let (held, since_renewal) = self.see(|state, _| self.ages(state));
                self.notify_lost(loss.reason, held, since_renewal);
            }
            None => {}
        }
    }

    fn notify_lost(&self, reason: LostReason, held: Duration, since_renewal: Duration) {
        if reason != LostReason::ShutDown {
            self.lock.home_instance().core().totals.count_loss();
        }
        self.lock.observers().notify(|| ClientEvent::Lost {
            lock: self.lock.shown(self.owner),
            reason,
            held,
            since_renewal,
        });
    }

    /// Reports a round of acquiring to the observers.
    pub(super) fn notify_round(&self, won: bool) {
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
        observers.notify(|| ClientEvent::Round {
            lock: self.lock.shown(self.owner),
            won,
            answered: answered as u32,
            margin: if won { margin as u32 } else { 0 },
        });
    }

    /// Counts an extension of one instance that failed, and reports it to the observers of that instance's client. A
    /// hold with a fixed lease is not renewed, and no renewal of a client that is shut down is missing.
    pub(super) fn notify_extended(&self, core: &Core, answer: &InstanceAnswer) {
        let Some(error) = &answer.cause else { return };
        if core.ensure_open().is_err() || self.see(|state, _| state.watched == 0) {
            return;
        }
        core.totals.count_failed_renewals(1);
        core.observers()
            .notify(|| ClientEvent::RenewalFailed { holds: 1, error });
    }

    /// Reports to the observers that it ended by its owner's will.
    pub(super) fn notify_released(&self, how: End, confirmed: bool) {
        self.lock.observers().notify(|| ClientEvent::Released {
            lock: self.lock.shown(self.owner),
            held: self.clock.now().since(self.acquired),
            how,
            confirmed,
        });
    }
}

/// Reports to the observers how an unlock ended. If it is dropped before the end, the background releases the
/// instances, and the observers get an unconfirmed release.
pub(super) struct EndNotifier<'a>(Option<&'a QuorumHold>);

impl<'a> EndNotifier<'a> {
    pub(super) fn new(hold: &'a QuorumHold) -> Self {
        Self(Some(hold))
    }

    pub(super) fn notify(mut self, outcome: &Result<Unlocked>) {
        let Some(hold) = self.0.take() else { return };
        match outcome {
            Err(Error::Lost(lost)) => {
                hold.notify_lost(lost.reason(), lost.held_for(), lost.since_renewal());
            }
            outcome => hold.notify_released(End::Unlocked, outcome.is_ok()),
        }
    }
}

impl Drop for EndNotifier<'_> {
    fn drop(&mut self) {
        if let Some(hold) = self.0 {
            hold.notify_released(End::Unlocked, false);
        }
    }
}
