//! Ends a claim, and sends the release to Redis.

use std::pin::pin;
use std::time::Duration;

use super::claim::Claim;
use super::lowering::believe_missing;
use super::settle::Job;
use super::transfer::Transfer;
use crate::clock::Moment;
use crate::error::{Error, LostReason, UnlockUnconfirmed};
use crate::hold::{HoldPhase, HoldState, SLOW_UNLOCK, TurnGuard};
use crate::lease;
use crate::observe::End;
use crate::script::{self, LoweredHold, TransferReply, UnlockReply as Answer, Woken};
use crate::server::{Failure, Sent, TimeBox};

/// The result of an unlock. A later version may have more variants: treat one that you do not know as
/// [`Unlocked::StillHeld`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Unlocked {
    /// The lock is free.
    Released,
    /// The owner still holds the lock.
    StillHeld {
        /// How many acquires are left to unlock.
        count: u32,
    },
    /// The owner no longer holds the lock, and Redis keeps it for the rest of
    /// [`hold_at_least`](crate::request::LockRequest::hold_at_least).
    Kept {
        /// The rest.
        rest: Duration,
    },
}

/// An unlock in flight: the claim has ended, and the client has to send the release to Redis.
pub(super) struct PendingUnlock {
    claim: Claim,
    command: Option<TurnGuard>,
    sent: Sent,
    began: Moment,
    target: u32,
    /// The claims that are left.
    left: u32,
    /// For how long the lock has to stay although its hold ended; zero if the unlock releases it.
    rest: Duration,
    /// The hand-over in place of the unlock, if a waiter of this client can take the lock.
    transfer: Option<Transfer>,
    answered: bool,
    handed_on: bool,
}

impl PendingUnlock {
    /// Ends the claim while the caller has the turn of the hold. Returns the claim to the caller if the turn
    /// was taken over. Fails with `Lost` if the hold is lost; then the drop of the claim cleans up.
    pub(super) fn begin(
        mut claim: Claim,
        command: TurnGuard,
    ) -> Result<Result<Self, Claim>, Error> {
        let hold = &claim.hold;
        let core = claim.session.core();
        let now = core.clock.now();
        // The check and the end are one step. A renewal that is answered between two steps would make the
        // hold valid again, and there would be no loss to report.
        let counts = core.holds.change(hold, |state| {
            if !state.is_valid(now) {
                return Err(state.expire(now));
            }
            if !command.is_valid() || state.is_last_beside_left() {
                // A party that took the turn over before this step settled on a count that includes this
                // claim. One that takes it over after this step settles on the count without the claim.
                // If all other claims were left to the lease, the unlock sends nothing.
                return Ok(None);
            }
            state.drop_claim(claim.flags, now);
            let has_ended = state.phase == HoldPhase::Ended;
            let mut rest = Duration::ZERO;
            if has_ended {
                state.ended_as = End::Unlocked;
                rest = state.rest(now);
            }
            state.is_lowering = hold.key().kind().is_freed_in_parts();
            if has_ended || state.is_lowering {
                // No other client waits for an inner unlock.
                state.hasten_at = now + SLOW_UNLOCK;
            }
            Ok(Some((state.target(), state.count, rest)))
        });
        let (target, left, rest) = match counts {
            Ok(Some(counts)) => counts,
            Ok(None) => return Ok(Err(claim)),
            Err(expired) => {
                if expired {
                    core.report_lost(hold);
                }
                return Err(hold.loss(now).map_or(Error::Closed, Error::Lost));
            }
        };
        claim.ended = true;
        Ok(Ok(Self {
            claim,
            sent: Sent::with([command.permit()]),
            command: Some(command),
            began: now,
            target,
            left,
            rest,
            transfer: None,
            answered: false,
            handed_on: false,
        }))
    }

    pub(super) async fn finish(mut self) -> Result<Unlocked, Error> {
        let Some(mut answer) = self.send().await else {
            return self.taken_over().await;
        };
        if matches!(answer, Ok(Answer::Missing))
            && let Some(on) = self.sent.on.clone()
        {
            let limit = self.claim.session.core().server.command_timeout();
            let key = self.claim.hold.key().clone();
            let believed = believe_missing(&on, &key, self.target, self.rest, limit).await;
            answer = believed.map(|()| Answer::Missing);
        }
        self.answered = answer.is_ok();
        match answer {
            Ok(Answer::Released(woken)) => {
                self.claim.hold.state().known = self.target;
                let waiters = &self.claim.session.core().waiters;
                match woken {
                    Woken::All => {}
                    Woken::One => waiters.leave_to_others(self.claim.hold.key()),
                    Woken::NotListed => waiters.refuse_lists(),
                }
                Ok(Unlocked::Released)
            }
            Ok(Answer::Kept) => Ok(self.kept()),
            Ok(Answer::Missing) => self.found_nothing(),
            // A server that is out of memory lowers no count. The local count is right all the same, and
            // the final unlock deletes the field whatever its count is.
            Err(failure) if failure.is_out_of_memory() && self.target > 0 => Ok(self.kept()),
            Err(failure) => {
                let cause = Error::from(failure).after(self.waited());
                Err(self.unconfirmed(Some(cause)))
            }
        }
    }

    /// Sends a hand-over if a waiter can take the lock, or else the unlock. Returns `None` if its turn was
    /// taken over.
    async fn send(&mut self) -> Option<Result<Answer, Failure>> {
        let time = self.claim.session.core().server.time_box(self.began);
        if self.target == 0 && self.rest.is_zero() {
            let Claim {
                session,
                hold,
                flags,
                ..
            } = &self.claim;
            self.transfer = Transfer::begin(session, hold, flags.weight, time);
        }
        if self.transfer.is_some()
            && let Some(answer) = self.hand_over(time).await?
        {
            return Some(answer);
        }
        let turn = self.command.as_ref()?;
        let Claim { session, hold, .. } = &self.claim;
        let core = session.core();
        let field = core.field(hold);
        let (view, lease) = {
            let mut state = hold.state();
            (state.ledger_view(), state.longest_lease())
        };
        let lowered = LoweredHold {
            key: hold.key(),
            field: &field,
            target: self.target,
            view,
            lease,
            queue_timeouts: core.settings.queue_timeouts,
            // An inner unlock wakes no client.
            list: match self.target {
                0 => core.waiters.list_of(hold.key()),
                _ => None,
            },
        };
        let (server, rest, sent) = (&core.server, self.rest, &mut self.sent);
        let sending = pin!(async {
            if rest.is_zero() {
                return script::unlock(server, &lowered, time, sent).await;
            }
            script::linger(server, &lowered, rest, time, sent).await
        });
        TurnGuard::drive(&[turn], sending).await
    }

    /// Sends the hand-over. Returns `Some(None)` if the server declined it: the hold has to be released.
    async fn hand_over(&mut self, time: TimeBox) -> Option<Option<Result<Answer, Failure>>> {
        let turn = self.command.as_ref()?;
        let transfer = self.transfer.as_mut()?;
        let Claim { session, hold, .. } = &self.claim;
        let known = std::mem::take(&mut hold.state().known);
        let answer = {
            let sending = pin!(transfer.send(session.core(), hold, time, &mut self.sent));
            TurnGuard::drive(&[turn], sending).await?
        };
        self.handed_on = transfer.finish(session, hold, &answer, &self.sent);
        Some(match answer {
            Ok(TransferReply::Declined) => {
                // The receiver contends for itself.
                self.transfer = None;
                if self.sent.is_answered() {
                    // The server changed nothing, so the known number of permits is right again.
                    hold.state().known = known;
                }
                self.sent = Sent::with([turn.permit()]);
                None
            }
            // The receiver has the lock, but this command did not end the hold.
            Ok(TransferReply::Handed { ended_first, .. }) if !ended_first => {
                Some(Ok(Answer::Missing))
            }
            Ok(TransferReply::Handed { .. } | TransferReply::Freed) => {
                Some(Ok(Answer::Released(Woken::All)))
            }
            Ok(TransferReply::Missing) => Some(Ok(Answer::Missing)),
            Err(failure) => Some(Err(failure)),
        })
    }

    /// This call was frozen and its turn was taken over: the other party sends the new count to Redis.
    async fn taken_over(self) -> Result<Unlocked, Error> {
        let hold = &self.claim.hold;
        let core = self.claim.session.core();
        if self.target == 0 {
            // This future may not be frozen but polled late, on a busy machine. It waits until the other
            // party has its answer. An error of this wait adds nothing to the state that is read below.
            drop(core.turn_to_unlock(hold).await);
        }
        let now = core.clock.now();
        let (phase, deadline, remains_until, lingers) = {
            let state = hold.state();
            (
                state.phase,
                state.deadline,
                state.remains_until,
                state.lingers,
            )
        };
        match phase {
            HoldPhase::Lost(reason) => Err(Error::Lost(hold.lost_as(reason, now))),
            _ if self.target > 0 || lingers => Ok(self.kept()),
            // Redis has nothing of the hold, at a time when an unlock of this client would still have kept
            // the lock. So another party deleted it.
            _ if remains_until <= now && self.must_linger(now) => {
                Err(Error::Lost(hold.lost_as(LostReason::NotOurs, now)))
            }
            // Redis has nothing of the hold. Before the deadline this unlock deleted it, or a
            // client freed it by force.
            _ if remains_until <= now && now < deadline => Ok(Unlocked::Released),
            _ => Err(self.unconfirmed(None)),
        }
    }

    /// The outcome for a hold whose count is the target, or whose lock stays.
    fn kept(&self) -> Unlocked {
        if self.target > 0 {
            return Unlocked::StillHeld { count: self.left };
        }
        let waited = self.waited();
        Unlocked::Kept {
            rest: self.rest.saturating_sub(waited),
        }
    }

    /// Whether an earlier sending of this unlock has certainly kept the lock up to now, if it found it.
    fn must_linger(&self, now: Moment) -> bool {
        now < lease::deadline(self.began, self.rest)
    }

    fn waited(&self) -> Duration {
        self.claim.session.core().clock.now().since(self.began)
    }

    fn unconfirmed(&self, cause: Option<Error>) -> Error {
        let name = self.claim.hold.key().name();
        UnlockUnconfirmed::new(name, self.waited(), cause).into()
    }

    /// The field was missing: lost, unless an earlier sending of this unlock deleted it.
    fn found_nothing(&self) -> Result<Unlocked, Error> {
        let core = self.claim.session.core();
        let now = core.clock.now();
        if self.target > 0 {
            if self.claim.hold.state().phase == HoldPhase::Ended {
                // The last claim ended meanwhile, and this one before it.
                return Ok(Unlocked::StillHeld { count: self.left });
            }
            core.lose(&self.claim.hold, LostReason::NotOurs);
            return Err(self.claim.hold.loss(now).map_or(Error::Closed, Error::Lost));
        }
        // No earlier sending can have deleted the field: there was none, or it kept the lock until now.
        if !self.sent.repeated || self.must_linger(now) {
            let lost = self.claim.hold.lost_as(LostReason::NotOurs, now);
            let owes_end = std::mem::take(&mut self.claim.hold.state().owes_end);
            if owes_end {
                core.notify_lost(&self.claim.hold, &lost, false);
            }
            return Err(Error::Lost(lost));
        }
        // The lease is not over, so an earlier sending deleted the field.
        if now < self.claim.hold.state().deadline {
            return Ok(Unlocked::Released);
        }
        core.notify_released(&self.claim.hold, false);
        Err(self.unconfirmed(None))
    }
}

impl Drop for PendingUnlock {
    fn drop(&mut self) {
        let core = self.claim.session.core();
        if let Some(transfer) = &mut self.transfer {
            transfer.abandon(&self.claim.hold, &self.sent);
        }
        if self.command.as_ref().is_some_and(|turn| !turn.is_valid()) {
            // The party that took the turn over completes the unlock.
            return;
        }
        if self.answered && self.claim.hold.key().kind().is_freed_in_parts() {
            let target = self.target;
            let lowered = |state: &mut HoldState| state.end_lowering(target);
            core.holds.change(&self.claim.hold, lowered);
        }
        if !self.answered {
            let job = Job::after(
                self.claim.hold.clone(),
                self.command.take(),
                self.sent.on.take(),
            );
            core.settle_in_background(job);
        } else if self.handed_on {
            // The next owner has the lock already, so no waiter has to check.
            core.holds.remove(&self.claim.hold);
            core.notify_released(&self.claim.hold, true);
        } else if self.target == 0 {
            core.forget(&self.claim.hold, true);
        }
    }
}

#[cfg(test)]
mod on_servers {
    use super::*;
    use crate::client::Client;
    use crate::hold::ClaimFlags;
    use crate::support::RedisServer;

    /// The thread of an unlock is suspended between its turn and the end of its claim. Meanwhile another
    /// guard was dropped, and the turn taken over for it.
    #[tokio::test]
    async fn an_unlock_that_lost_its_turn_ends_no_claim_until_it_has_a_turn_again() {
        let server = RedisServer::start().await;
        let client = Client::connect(server.url()).await.unwrap();
        let session = client.lock("l").session().clone();
        let guard = client.lock("l").lock().await.unwrap();
        let hold = session.core().holds.all().pop().unwrap();
        let flags = ClaimFlags {
            watched: true,
            local: false,
            part: false,
            weight: 1,
        };
        let claim = Claim::new(session.clone(), hold.clone(), flags);
        let late = hold.try_command().expect("no other command has it");
        // As the watchdog finds it: the future is not polled.
        let (taken, _) = hold.command().await;
        let begun = PendingUnlock::begin(claim, late).expect("it is held");
        let mut claim = begun.err().expect("it has no turn");
        assert_eq!(hold.state().count, 1);
        drop(taken);
        // The guard has this claim too, and ends it below.
        claim.ended = true;
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        assert!(session.core().holds.all().is_empty());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use parking_lot::Mutex;

    use super::*;
    use crate::clock::Clock;
    use crate::hold::{ClaimFlags, Hold, Terms};
    use crate::key::{LockKey, kind};
    use crate::owner::Owner;
    use crate::session::{Session, disconnected};

    /// Another thread repeatedly renews the hold and lets its deadline come. An unlock after the deadline reports
    /// the loss, also if a renewal is answered at the same time.
    #[tokio::test]
    async fn an_unlock_after_the_deadline_reports_the_loss_during_a_renewal() {
        let core = disconnected(&Clock::default());
        let session = Arc::new(Session::new(core.clone()));
        let key = LockKey::new(&kind::PLAIN, "l", None).unwrap();
        let key = Arc::new(key);
        let terms = Terms::new(LEASE, true);
        let flags = ClaimFlags {
            watched: true,
            local: false,
            part: false,
            weight: 1,
        };
        let (current, is_over) = (Mutex::new(None::<Arc<Hold>>), AtomicBool::new(false));
        let sent = core.clock.now();
        let mut losses = 0;
        let began = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let Some(hold) = current.lock().clone() else {
                        thread::yield_now();
                        continue;
                    };
                    // The answer was read before the deadline.
                    let renew = |state: &mut HoldState| state.renew(sent, LEASE, Moment(0));
                    core.holds.change(&hold, renew);
                    core.holds.change(&hold, |state| state.deadline = sent);
                }
            });
            let _ends_the_thread = Ends(&is_over);
            for round in 0..ROUNDS {
                // Each round waits for the other thread, which takes long on a busy machine.
                if round % 100 == 0 && losses > 0 && began.elapsed() > ENOUGH {
                    break;
                }
                let hold = core.holds.enter(&key, Owner::new());
                for _ in 0..2 {
                    // With a second claim, the end of the first one asks for nothing more.
                    let grant = |state: &mut HoldState| state.grant(sent, &terms, sent);
                    assert!(core.holds.change(&hold, grant));
                }
                *current.lock() = Some(hold.clone());
                while hold.state().deadline != sent {
                    thread::yield_now();
                }
                let claim = Claim::new(session.clone(), hold.clone(), flags);
                let turn = hold.try_command().expect("no other command has it");
                match PendingUnlock::begin(claim, turn) {
                    Ok(begun) => {
                        let mut valid =
                            begun.unwrap_or_else(|_| panic!("no other party takes its turn"));
                        // It sends nothing.
                        valid.answered = true;
                    }
                    Err(error) => {
                        assert!(matches!(error, Error::Lost(_)), "{error}");
                        losses += 1;
                    }
                }
                *current.lock() = None;
                core.holds.remove(&hold);
            }
        });
        assert!(losses > 0, "no unlock met a passed deadline");
    }

    /// So that a failure does not leave the thread running.
    struct Ends<'a>(&'a AtomicBool);

    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    const LEASE: Duration = Duration::from_secs(30);
    const ROUNDS: u32 = 5_000;
    const ENOUGH: Duration = Duration::from_secs(5);
}
