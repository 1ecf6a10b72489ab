//! Whose turn it is to send for a hold, and what is owed where its sender goes or stands still.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::claim::Claim;
use super::settle::Job;
use super::{Core, Session};
use crate::clock::Moment;
use crate::error::LostReason;
use crate::hold::{Dropped, Hold, HoldPhase, HoldState, TurnGuard};
use crate::script::SettleReply;
use crate::server::Failure;

impl Core {
    /// Sees to what a dropped claim asks for.
    pub(crate) fn after_drop(&self, hold: &Arc<Hold>, dropped: Dropped) {
        match dropped {
            Dropped::Settle => self.settle_in_background(Job::new(hold.clone())),
            Dropped::Forget => self.forget(hold),
            Dropped::Nothing => {}
        }
    }

    /// Gives up an acquire whose future is not polled: whatever it does is undone. The future may
    /// take its grant in between the caller's decision and this call: then the hold has an owner, and
    /// stays.
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

    /// From then on an acquire that goes on until `until` counts as left. One that is polled has come to
    /// its end by itself before, however slow the server is.
    pub(super) fn left_after(&self, until: Moment) -> Moment {
        self.answered_by(until).unwrap_or(until) + self.waiters.answer_time()
    }

    /// The right to send a command for a hold. What one that stands still has sent is settled before.
    pub(super) async fn acquire_turn(&self, hold: &Arc<Hold>) -> TurnGuard {
        loop {
            let (command, on) = hold.command().await;
            if on.is_none() {
                return command;
            }
            self.settle_in_background(Job::after(hold.clone(), Some(command), on));
        }
    }

    /// Sees to the release of a hold that takes long: the future that releases it may stand still. Called
    /// again and again until the hold is gone. A future that is polled goes on by itself: while a server
    /// pauses, these are many.
    pub(crate) fn demand_turn(&self, hold: &Arc<Hold>) {
        let stood_still = hold.was_not_polled();
        let (mut job, _) = Job::if_listed(hold.clone());
        let is_owed = match stood_still {
            Some(stood_still) => stood_still,
            // The background has a turn, or nobody has any more.
            None => job.try_turn(),
        };
        if is_owed {
            self.settle_in_background(job);
        }
    }

    /// Ends the newest forgotten claim of a hold: ported code's unlock.
    pub(crate) fn take_forgotten(&self, session: &Arc<Session>, hold: &Arc<Hold>) -> Option<Claim> {
        let flags = self.holds.change(hold, |state| state.forgotten.pop())?;
        Some(Claim::new(session.clone(), hold.clone(), flags))
    }

    /// Nobody asks the server again: the end of the lease releases it.
    pub(super) fn give_up_release(&self, hold: &Hold) {
        // Whoever lost it waits for the answer, and counts it then.
        if hold.state().phase == HoldPhase::Ended {
            self.unreleased.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// How many releases were given up because the server refused them.
    pub(crate) fn unreleased(&self) -> usize {
        self.unreleased.load(Ordering::Acquire)
    }

    /// `is_last` if no earlier command for the hold is on its way.
    pub(super) fn settled(
        &self,
        hold: &Arc<Hold>,
        target: u32,
        settled: &SettleReply,
        is_last: bool,
    ) {
        if target == 0 {
            let now = self.clock.now();
            if is_last {
                self.holds.change(hold, |state| state.remains_until = now);
            }
        } else if matches!(settled, SettleReply::Missing) {
            self.lose(hold, LostReason::NotOurs);
        }
    }

    /// Says that a lock which nobody holds any more stays taken. False if this is no such lock.
    pub(super) fn warn_of_release(&self, hold: &Hold, failure: &Failure) -> bool {
        let is_release = {
            let state = hold.state();
            state.phase == HoldPhase::Ended && state.granted
        };
        if is_release {
            tracing::warn!(
                target: "lockdog::lock",
                { lock.hash = %hold.key().fingerprint(), owner = %hold.owner(), ?failure },
                "a lock could not be released yet; it is tried again until its lease is over"
            );
        }
        is_release
    }
}
