//! Turns to send for a hold, and what the background does if the sender is dropped or frozen.

use std::sync::Arc;

use super::claim::Claim;
use super::settle::Job;
use super::{Core, Session};
use crate::clock::Moment;
use crate::hold::{Dropped, Hold, HoldState, TurnGuard};

impl Core {
    /// Does what a dropped claim requires.
    pub(crate) fn after_drop(&self, hold: &Arc<Hold>, dropped: Dropped) {
        match dropped {
            Dropped::Settle => self.settle_in_background(Job::new(hold.clone())),
            Dropped::Forget => self.forget(hold),
            Dropped::Nothing => {}
        }
    }

    /// Abandons an acquire whose future is not polled: its effect is undone. If the future accepts its
    /// grant between the caller's decision and this call, the hold has an owner and stays.
    pub(crate) fn abandon(&self, hold: &Arc<Hold>) {
        let ends = |state: &mut HoldState| {
            if mutant!("taken_in_and_abandoned") {
                state.end();
                return true;
            }
            state.end_pending()
        };
        if self.holds.change(hold, ends) {
            self.settle_in_background(Job::new(hold.clone()));
        }
    }

    /// When an acquire that may run until `until` counts as abandoned. An acquire that is polled has
    /// completed by then, however slow the server is.
    pub(super) fn left_after(&self, until: Moment) -> Moment {
        self.answered_by(until).unwrap_or(until) + self.waiters.answer_time()
    }

    /// Waits for the right to send a command for a hold. The command of a frozen sender is settled
    /// first.
    pub(super) async fn acquire_turn(&self, hold: &Arc<Hold>) -> TurnGuard {
        loop {
            let (command, on) = hold.command().await;
            if on.is_none() {
                return command;
            }
            self.settle_in_background(Job::after(hold.clone(), Some(command), on));
        }
    }

    /// Ends the slow release of a hold: the future that releases it may be frozen. Called repeatedly
    /// until the hold is gone. A future that is polled completes by itself, and during a server pause
    /// there are many such futures.
    pub(crate) fn demand_turn(&self, hold: &Arc<Hold>) {
        let stood_still = hold.was_not_polled();
        let (mut job, _) = Job::if_listed(hold.clone());
        let is_owed = match stood_still {
            Some(stood_still) => stood_still,
            // The background has the turn, or the turn is free.
            None => job.try_turn(),
        };
        if is_owed {
            self.settle_in_background(job);
        }
    }

    /// Ends the newest forgotten claim of a hold. This is the unlock of ported code.
    pub(crate) fn take_forgotten(&self, session: &Arc<Session>, hold: &Arc<Hold>) -> Option<Claim> {
        let flags = self.holds.change(hold, |state| state.forgotten.pop())?;
        Some(Claim::new(session.clone(), hold.clone(), flags))
    }
}
