//! What the wait loop does after an answer, or after an attempt without one.

use std::time::Duration;

use super::contest::{Contest, Step};
use super::{AFTER_AN_OUTAGE, Attempted, Contender, FailedAttempt, SILENCE};
use crate::clock::Moment;
use crate::error::Result;
use crate::observe::WokenBy;
use crate::wait::HandedOver;

impl<C: Contender> Contest<C> {
    /// Completes a hand-over from another owner of this client.
    pub(super) async fn accept_hand_over(&mut self, handed: HandedOver) -> Result<Step<C::Won>> {
        let Some(place) = &self.place else {
            return Ok(Step::Again);
        };
        self.woken_by = Some(WokenBy::HandOver);
        let tried = self.contender.accept_hand_over(place, handed).await?;
        self.follow(tried, true).await
    }

    /// The next step after an attempt. `listening`: the client received the lock's messages during it.
    pub(super) async fn follow(
        &mut self,
        tried: Attempted<C::Won>,
        listening: bool,
    ) -> Result<Step<C::Won>> {
        match tried {
            Attempted::Won(won) => return Ok(self.won(won)),
            // No command was sent, so nothing is known about the server: no outage is cleared.
            Attempted::Unasked => return Ok(Step::Again),
            Attempted::NotYet(until) => return Ok(Step::Wait(until)),
            // The server did not answer, or refused.
            Attempted::Failed(failed) => return self.failed(failed),
            // Every other result is an answer of the server.
            _ => self.answered(),
        }
        match tried {
            // Another holder has the lock: subscribe, or wait for its TTL.
            Attempted::Busy { at, ttl } => self.next_query(at, ttl, listening).await,
            // Another call acquires the same locks in another order. Leave the queue, so that this
            // client's next waiter is not delayed by the pause.
            Attempted::Collided(pause) => {
                self.leave();
                Ok(Step::Wait(self.now() + pause))
            }
            // Another holder has the lock, and the contender itself is notified of the release.
            Attempted::Taken { again } => {
                self.is_busy = true;
                self.awaits_message = true;
                Ok(again.map_or(Step::Again, Step::Wait))
            }
            // Without a deadline this would retry forever if the server is slower than the lease.
            Attempted::TooLate(error) if self.deadline().is_none() => Err(error),
            // `Again`, or `TooLate` with a deadline: the deadline bounds the retries.
            _ => Ok(Step::Again),
        }
    }

    /// A server answered, so the waiters of this queue are not in an outage.
    fn answered(&mut self) {
        self.outage = None;
        if let Some(place) = &self.place {
            place.waiter.note_outage(None);
        }
    }

    pub(super) fn won(&self, won: C::Won) -> Step<C::Won> {
        if let Some(place) = &self.place {
            self.contender.leave_with(&place.waiter);
        }
        Step::Won(won)
    }

    /// The next step after a failed attempt. During an outage, a call with time left retries. A call
    /// without a deadline returns the error, and so do the other calls without a deadline in its queue.
    fn failed(&mut self, failed: FailedAttempt) -> Result<Step<C::Won>> {
        self.has_checked = true;
        let FailedAttempt { error, named, .. } = failed;
        // A retry would fail in the same way.
        if !error.is_retriable() {
            return Err(named);
        }
        if self.is_busy && failed.cut_off_after.is_some_and(|took| took < SILENCE) {
            // The deadline cut the attempt off before the server could answer. The last known state
            // still counts: others have the lock.
            return Ok(Step::Again);
        }
        match &self.place {
            // This queue is about another server than the one that failed: its other waiters must not
            // wait for this call.
            _ if failed.is_elsewhere => self.leave(),
            // The server had a full command timeout: end the waits without a deadline now.
            Some(place) if failed.had_full_timeout => place.waiter.note_outage(Some(&error)),
            // This attempt was too short to prove an outage. The other waiters have more time and check
            // for themselves.
            Some(place) => place.waiter.remember_outage(Some(&error)),
            None => {}
        }
        // The contender chose the time of its retry.
        if let Some(again) = failed.again {
            return Ok(Step::Wait(again));
        }
        let (now, deadline) = (self.now(), self.deadline());
        // Without a deadline the call would retry forever.
        let Some(deadline) = deadline else {
            return Err(named);
        };
        self.outage = Some(named);
        // `iterate` gives up at the deadline, and reports the outage.
        if now >= deadline {
            return Ok(Step::Again);
        }
        // Too little time is left for an answer. One more attempt would only replace this error by a
        // timeout.
        let in_time = deadline.since(now) > AFTER_AN_OUTAGE * 2;
        Ok(Step::Wait(if in_time {
            now + AFTER_AN_OUTAGE
        } else {
            deadline
        }))
    }

    /// After a busy answer: subscribe and try again, or wait.
    async fn next_query(
        &mut self,
        at: usize,
        ttl: Option<Duration>,
        listening: bool,
    ) -> Result<Step<C::Won>> {
        self.is_busy = true;
        let has_moved = self.move_to(at)?;
        if has_moved && self.contender.asks_at_once() {
            // The call subscribes to its own channel once it has a place in that queue on the server.
            return Ok(Step::Again);
        }
        // This client polls and does not subscribe.
        if let Some(backoff) = self.backoff() {
            let core = self.core();
            let pause = backoff.pause(self.attempts).min(core.settings.poll_cap);
            let until = core.clock.now() + core.clock.jitter_up(pause);
            self.attempts = self.attempts.saturating_add(1);
            return Ok(Step::Wait(until));
        }
        self.awaits_message = true;
        // A TTL of n ms is certainly over after n + 1 ms.
        let ttl = ttl.map_or(Duration::MAX, |ttl| ttl + Duration::from_millis(1));
        let now = self.now();
        let next_check =
            now + ttl.min(self.core().clock.jitter_down(self.core().settings.poll_cap));
        let is_listening = listening && !has_moved;
        // A message of the release will wake this call; or the client cannot subscribe, so only the timer
        // wakes it.
        if is_listening
            || self
                .place
                .as_ref()
                .is_none_or(|place| place.is_unsubscribed)
        {
            return Ok(Step::Wait(next_check));
        }
        // The waiter was woken before the subscription was settled: the lock may be handed to it.
        if self.listen(self.bounded(next_check)).await? {
            return Ok(Step::Again);
        }
        // Messages that were published before the subscription began were missed, so try once more. If
        // the client cannot subscribe, wait for the timer.
        let Some(place) = &mut self.place else {
            return Ok(Step::Again);
        };
        place.is_unsubscribed = !place.waiter.is_listening();
        Ok(if place.is_unsubscribed {
            Step::Wait(next_check)
        } else {
            Step::Again
        })
    }

    /// Waits until the client is subscribed to the messages of its queue, until the subscription fails,
    /// or until `until`. Returns true if the waiter was woken before `until`: the lock may have been
    /// handed to it.
    pub(super) async fn listen(&self, until: Moment) -> Result<bool> {
        let Some(place) = &self.place else {
            return Ok(false);
        };
        let core = self.core();
        tokio::select! {
            () = place.waiter.subscribed(&core.server) => Ok(false),
            waited = place.waiter.wait(until) => {
                waited.map_err(|error| self.contender.about(place.at, error))?;
                Ok(core.clock.now() < until)
            }
        }
    }
}
