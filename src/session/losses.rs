//! Losses of holds: each is reported once, with its reason, whichever party notices it.

use std::sync::Arc;
use std::time::Duration;

use super::{Core, Job};
use crate::clock::Moment;
use crate::error::LostReason;
use crate::hold::{Hold, HoldPhase, OwnerState};
use crate::key::LockKey;
use crate::observe::{ClientEvent, LockRef};
use crate::owner::Owner;

impl Core {
    /// The relation of `owner` to the lock. If the owner has lost it, that is reported.
    pub(crate) fn owner_state(&self, key: &LockKey, owner: Owner) -> OwnerState {
        loop {
            let state = self.holds.owner_state(key, owner);
            let OwnerState::Lost(hold, _) = &state else {
                return state;
            };
            self.report_lost(hold);
            // If no guard is left, the report ended the hold. Then a new acquire begins a new hold.
            if hold.state().phase != HoldPhase::Ended {
                return state;
            }
        }
    }

    /// Ends a hold against its owner's will, notifies its guards and logs the loss.
    pub(crate) fn lose(&self, hold: &Arc<Hold>, reason: LostReason) {
        if self.lose_without_log(hold, reason) {
            self.report_lost(hold);
        }
    }

    /// Loses a hold whose deadline is over, as the watchdog will soon do. A caller that gets true has to report the
    /// loss.
    pub(crate) fn expire(&self, hold: &Arc<Hold>) -> bool {
        let now = self.clock.now();
        // The usual case is decided without the mutex of all holds.
        let is_over = {
            let state = hold.state();
            state.is_living() && !state.is_valid(now)
        };
        is_over && self.holds.change(hold, |state| state.expire(now))
    }

    /// Notes that this client force-unlocked a hold. A grant whose answer is still unread does not
    /// count.
    pub(crate) fn forced(&self, hold: &Arc<Hold>) {
        if self.end_pending(hold) {
            // The future of the acquire may never be polled again, and waiters wait for the end of this
            // hold.
            let (job, _) = Job::if_listed(hold.clone());
            self.settle_in_background(job);
        }
        self.lose(hold, LostReason::Forced);
    }

    /// Ends a hold against its owner's will and notifies its guards, without a log message. Returns
    /// false if it was not held. A caller that gets true has to report the loss.
    pub(crate) fn lose_without_log(&self, hold: &Arc<Hold>, reason: LostReason) -> bool {
        self.holds.change(hold, |state| state.lose(reason))
    }

    /// Ends a hold for a shutdown and notifies its guards. The caller notifies the observers of its release.
    /// Returns false if it was not held.
    pub(crate) fn lose_in_shutdown(&self, hold: &Arc<Hold>) -> bool {
        self.holds.change(hold, |state| {
            let was_held = state.lose(LostReason::ShutDown);
            if was_held && let Some(loss) = state.unreported.take() {
                // The user asked for it, so there is no loss to report.
                state.owes_end |= loss.owes_end;
            }
            was_held
        })
    }

    /// Records a successful renewal that was sent at `sent`. Reports that the hold is in jeopardy no longer, or that it
    /// is lost because its deadline is over.
    pub(crate) fn note_renewed(&self, hold: &Arc<Hold>, sent: Moment, lease: Duration) {
        let (has_recovered, is_lost) = self.holds.change(hold, |state| {
            let was = state.phase;
            // The clock is read for each hold: the deadline may be over after the answers for other holds were
            // processed, and then the hold is lost.
            let is_lost = state.renew(sent, lease, self.clock.now());
            let has_recovered = was == HoldPhase::Jeopardy && state.phase == HoldPhase::Held;
            (has_recovered && !state.is_part(), is_lost)
        });
        if has_recovered {
            let lock = LockRef::of(hold.key(), hold.owner());
            self.observers().notify(|| ClientEvent::Recovered { lock });
            tracing::debug!(
                target: "lockdog::renewal",
                { lock = hold.key().logged_name(), lock.hash = %hold.key().fingerprint() },
                "renewed again"
            );
        }
        if is_lost {
            self.report_lost(hold);
        }
    }

    /// Reports the loss of a hold, unless another party did, and ends the hold if only forgotten claims are
    /// left.
    pub(crate) fn report_lost(&self, hold: &Arc<Hold>) {
        let now = self.clock.now();
        // Done also if the user's log subscriber panics below.
        let _does_the_rest = AfterReport {
            core: self,
            hold,
            now,
        };
        let unreported = hold.state().unreported.take();
        match unreported {
            // The lock that it is a part of may still be held.
            Some(loss) if loss.is_part => tracing::debug!(
                target: "lockdog::quorum",
                { lock = hold.key().logged_name(), lock.hash = %hold.key().fingerprint() },
                "one instance of a RedLock was lost"
            ),
            Some(loss) => {
                let lost = hold.lost_as(loss.reason, now);
                if loss.owes_end {
                    self.notify_lost(hold, &lost, loss.is_expiry);
                }
                tracing::warn!(
                    target: "lockdog::lock",
                    {
                        lock = hold.key().logged_name(),
                        lock.hash = %hold.key().fingerprint(),
                        owner = lost.owner(),
                        reason = lost.reason().as_str(),
                        held_ms = lost.held_for().as_millis() as u64,
                        since_renewal_ms = lost.since_renewal().as_millis() as u64,
                        server = self.server.address_of(hold.key().key()),
                    },
                    "lock lost"
                );
            }
            None => {}
        }
    }
}

/// Does what follows from the loss of a hold, when its report has ended in any way.
struct AfterReport<'a> {
    core: &'a Core,
    hold: &'a Arc<Hold>,
    now: Moment,
}

impl Drop for AfterReport<'_> {
    fn drop(&mut self) {
        let (core, hold, now) = (self.core, self.hold, self.now);
        let forgotten = core.holds.change(hold, |state| state.end_forgotten(now));
        match forgotten {
            Some(dropped) => core.after_drop(hold, dropped),
            None => core.waiters.wake(hold.key()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::hold::Terms;
    use crate::key::kind;
    use crate::panics;
    use crate::session::disconnected;
    use crate::user_code::{OnEvent, break_subscriber};

    /// The user's log subscriber panics when the loss is logged.
    #[tokio::test]
    async fn a_lost_hold_without_guards_ends_although_its_report_panics() {
        let core = disconnected(&Clock::default());
        let key = LockKey::new(&kind::PLAIN, "l", None).unwrap();
        let hold = core.holds.enter(&Arc::new(key), Owner::new());
        let now = core.clock.now();
        let terms = Terms::new(Duration::from_secs(30), true);
        let flags = hold.state().flags_of_acquire(terms.watched);
        core.holds.change(&hold, |state| {
            assert!(state.grant(now, &terms, now));
            state.forget_claim(flags, now);
        });
        let lose = || core.lose(&hold, LostReason::NotOurs);
        assert_eq!(
            OnEvent(break_subscriber).during(|| panics::catch(lose)),
            None
        );
        assert_eq!(hold.state().phase, HoldPhase::Ended);
    }
}
