//! Turns to send for a hold, and what the background does if the sender is dropped or frozen.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::claim::Claim;
use super::settle::Job;
use super::{Core, Session};
use crate::clock::Moment;
use crate::error::LostReason;
use crate::hold::{Dropped, Hold, HoldPhase, HoldState, TurnGuard};
use crate::key::QueueSide;
use crate::observe::End;
use crate::script::SettleReply;
use crate::server::Failure;

impl Core {
    /// Does what a dropped claim requires.
    pub(crate) fn after_drop(&self, hold: &Arc<Hold>, dropped: Dropped) {
        // The read hold of a writer's owner keeps the field of the write hold beyond its lease.
        let stays =
            dropped == Dropped::Forget && self.is_kept_by_partner(hold) && !hold.state().is_left();
        match dropped {
            Dropped::Forget if !stays => self.forget(hold, true),
            Dropped::Forget | Dropped::Settle => {
                self.settle_in_background(Job::new(hold.clone()));
            }
            Dropped::Nothing => {}
        }
    }

    /// Abandons an acquire whose future is not polled: its effect is undone. If the future accepts its
    /// grant between the caller's decision and this call, the hold has an owner and stays.
    pub(crate) fn abandon(&self, hold: &Arc<Hold>) {
        if !self.end_pending(hold) {
            return;
        }
        self.settle_in_background(Job::new(hold.clone()));
        if hold.key().kind().permits.is_some() {
            // One command may acquire several permits. Each such command has an owner of its own, so the
            // other pending holds of this owner are of the same command.
            for other in self.holds.pending_of(hold.key(), hold.owner()) {
                if self.holds.change(&other, HoldState::end_pending) {
                    self.settle_in_background(Job::new(other));
                }
            }
        }
    }

    /// Deletes the field of a write hold at the end of its lease, if the hold was lost at its deadline or left
    /// to its lease, and its owner has a read hold. The read hold keeps the key of the lock, and so the field
    /// of the write hold, beyond that lease.
    pub(crate) fn end_outlived(&self, hold: Arc<Hold>) {
        if !self.is_kept_by_partner(&hold) {
            return;
        }
        let (is_left, phase) = {
            let state = hold.state();
            (state.is_left(), state.phase)
        };
        match phase {
            _ if is_left => self.settle_in_background(Job::after_lease(hold)),
            HoldPhase::Lost(LostReason::Deadline | LostReason::MaxHold) => {
                self.settle_in_background(Job::new(hold));
            }
            _ => {}
        }
    }

    /// Whether the server keeps the hold beyond its lease: the read hold of a writer's owner keeps the lock's
    /// key, and so the field of the write hold in it.
    pub(super) fn is_kept_by_partner(&self, hold: &Hold) -> bool {
        hold.key().kind().may_outlive_its_lease()
            && self.holds.partner_of(hold.key(), hold.owner()).is_some()
    }

    /// Ends a hold whose grant was not accepted. Returns false if it was accepted, or the hold ended before.
    pub(crate) fn end_pending(&self, hold: &Arc<Hold>) -> bool {
        self.holds.change(hold, |state| {
            let has_ended = state.end_pending();
            if has_ended && hold.key().kind().queue == QueueSide::Server {
                // Other waiters respect the place for `fair_absence`, so the client retries the
                // settlement for that long.
                state.sending(self.clock.now(), self.settings.queue_timeouts.fair_absence);
            }
            has_ended
        })
    }

    /// When an acquire that may run until `until` counts as abandoned. An acquire that is polled has
    /// completed by then, however slow the server is.
    pub(super) fn left_after(&self, until: Moment) -> Moment {
        self.left_for(self.waiters.answer_time(), until)
    }

    /// As [`Core::left_after`], for a caller with a time limit of its own to accept the grant.
    pub(super) fn left_for(&self, limit: Duration, until: Moment) -> Moment {
        self.answered_by(until).unwrap_or(until) + limit
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

    /// Ends the slow release of a hold: the future that releases it may be frozen. The watchdog calls this
    /// repeatedly until the hold is gone. A future that is polled keeps its turn, because it completes by
    /// itself, and during a pause of the server there are many such futures.
    pub(crate) fn request_turn(&self, hold: &Arc<Hold>) {
        let was_not_polled = hold.was_not_polled();
        let (mut job, _) = Job::if_listed(hold.clone());
        let is_owed = match was_not_polled {
            Some(was_not_polled) => was_not_polled,
            // The background has the turn, or the turn is free.
            None => job.try_turn(),
        };
        if is_owed {
            self.settle_in_background(job);
        }
    }

    /// Takes the newest forgotten claim of a hold, so that the caller can end it. Of a semaphore, it takes at
    /// most this number of the claim's permits. Code ported from Redisson unlocks in this way.
    pub(crate) fn take_forgotten(
        &self,
        session: &Arc<Session>,
        hold: &Arc<Hold>,
        most: u32,
    ) -> Option<Claim> {
        let flags = self
            .holds
            .change(hold, |state| state.take_forgotten(most))?;
        Some(Claim::new(session.clone(), hold.clone(), flags))
    }

    /// The client stops retrying the release. The end of the lease frees the lock.
    pub(super) fn give_up_release(&self, hold: &Hold) {
        let is_of_owner = {
            let state = hold.state();
            // A shutdown waits for the answer of each hold that it released, and counts it.
            state.phase == HoldPhase::Ended && state.ended_as != End::ShutDown
        };
        if is_of_owner {
            self.unreleased.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// How many releases were given up because the server refused them.
    pub(crate) fn unreleased(&self) -> usize {
        self.unreleased.load(Ordering::Acquire)
    }

    /// Records the answer to a settlement. `is_last`: no earlier command for the hold is in flight.
    pub(super) fn settled(
        &self,
        hold: &Arc<Hold>,
        target: u32,
        settled: &SettleReply,
        is_last: bool,
    ) {
        match settled {
            SettleReply::Done => self.holds.change(hold, |state| {
                state.known = target;
                state.end_lowering(target);
            }),
            SettleReply::Kept => hold.state().lingers = true,
            SettleReply::Missing => {}
        }
        if target == 0 {
            let now = self.clock.now();
            if is_last {
                // No command is in flight that could bring the field back.
                self.holds.change(hold, |state| state.remains_until = now);
            }
        } else if matches!(settled, SettleReply::Missing) {
            self.lose(hold, LostReason::NotOurs);
        }
    }

    /// Logs that a lock without a holder stays taken in Redis. Returns false if it is no such lock.
    pub(super) fn warn_of_release(&self, hold: &Hold, failure: &Failure) -> bool {
        let is_release = {
            let state = hold.state();
            state.phase == HoldPhase::Ended && state.granted
        };
        if is_release {
            tracing::warn!(
                target: "lockdog::lock",
                {
                    lock = hold.key().logged_name(),
                    lock.hash = %hold.key().fingerprint(),
                    owner = %hold.owner(),
                    %failure,
                },
                "a lock could not be released yet; the client retries until its lease ends"
            );
        }
        is_release
    }
}
