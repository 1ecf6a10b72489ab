//! What follows from an answer, or from none.

use std::time::Duration;

use super::contest::{Contest, Step};
use super::{AFTER_AN_OUTAGE, Attempted, Contender, Failed, SILENCE};
use crate::clock::Moment;
use crate::error::Result;
use crate::wait::HandedOver;

impl<C: Contender> Contest<C> {
    /// Takes in what another owner of this client handed over.
    pub(super) async fn take_in(&mut self, handed: HandedOver) -> Result<Step<C::Won>> {
        let Some(place) = &self.place else {
            return Ok(Step::Again);
        };
        let tried = self.contender.take_in(place, handed).await?;
        self.follow(tried, true).await
    }

    /// What follows from an attempt. `listening` if messages were heard during it.
    pub(super) async fn follow(
        &mut self,
        tried: Attempted<C::Won>,
        listening: bool,
    ) -> Result<Step<C::Won>> {
        match tried {
            Attempted::Won(won) => return Ok(self.won(won)),
            Attempted::Unasked => return Ok(Step::Again),
            Attempted::NotYet(until) => return Ok(Step::Wait(until)),
            Attempted::Failed(failed) => return self.failed(failed),
            // The others are answers.
            _ => self.answered(),
        }
        match tried {
            Attempted::Busy { at, ttl } => self.next_look(at, ttl, listening).await,
            Attempted::Collided(pause) => {
                self.leave();
                Ok(Step::Wait(self.now() + pause))
            }
            Attempted::Taken { again } => {
                self.is_busy = true;
                Ok(again.map_or(Step::Again, Step::Wait))
            }
            // Asked for ever, a server that is slower than the lease would be asked for ever.
            Attempted::TooLate(error) if self.deadline().is_none() => Err(error),
            _ => Ok(Step::Again),
        }
    }

    /// A server answered: there is no outage for those in the queue.
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

    /// What follows from an attempt that failed. A caller with time left goes on trying in an outage; one
    /// without a deadline returns the error, and so do the others of its kind.
    fn failed(&mut self, failed: Failed) -> Result<Step<C::Won>> {
        self.has_looked = true;
        let Failed { error, named, .. } = failed;
        if !error.is_retriable() {
            return Err(named);
        }
        if self.is_busy && failed.cut_off_after.is_some_and(|took| took < SILENCE) {
            // The end of the wait came between the question and its answer: what was known before is
            // the last that is known.
            return Ok(Step::Again);
        }
        match &self.place {
            // Nobody has to wait behind it for another server.
            _ if failed.is_elsewhere => self.leave(),
            Some(place) if failed.was_patient => place.waiter.note_outage(Some(&error)),
            // Those behind it have more patience, and find out for themselves.
            Some(place) => place.waiter.remember_outage(Some(&error)),
            None => {}
        }
        if let Some(again) = failed.again {
            return Ok(Step::Wait(again));
        }
        let (now, deadline) = (self.now(), self.deadline());
        let Some(deadline) = deadline else {
            return Err(named);
        };
        self.outage = Some(named);
        if now >= deadline {
            return Ok(Step::Again);
        }
        // A last attempt without time for its answer would only hide what this one met.
        let in_time = deadline.since(now) > AFTER_AN_OUTAGE * 2;
        Ok(Step::Wait(if in_time {
            now + AFTER_AN_OUTAGE
        } else {
            deadline
        }))
    }

    /// After a busy answer: subscribe and try again, or wait.
    async fn next_look(
        &mut self,
        at: usize,
        ttl: Option<Duration>,
        listening: bool,
    ) -> Result<Step<C::Won>> {
        self.is_busy = true;
        let has_moved = self.move_to(at)?;
        if let Some(backoff) = self.backoff() {
            let core = self.core();
            let pause = backoff.pause(self.attempts).min(core.settings.poll_cap);
            let until = core.clock.now() + core.clock.later(pause);
            self.attempts = self.attempts.saturating_add(1);
            return Ok(Step::Wait(until));
        }
        // A TTL of n ms is over when n + 1 ms have passed for certain.
        let ttl = ttl.map_or(Duration::MAX, |ttl| ttl + Duration::from_millis(1));
        let now = self.now();
        let look_again = now + ttl.min(self.core().clock.sooner(self.core().settings.poll_cap));
        let hears = listening && !has_moved;
        if hears || self.place.as_ref().is_none_or(|place| place.is_deaf) {
            return Ok(Step::Wait(look_again));
        }
        if self.listen(self.bounded(look_again)).await? {
            return Ok(Step::Again);
        }
        // What was published before the subscription stood was not heard: look once more. Where it
        // cannot be had, timers have to do.
        let Some(place) = &mut self.place else {
            return Ok(Step::Again);
        };
        place.is_deaf = !place.waiter.is_listening();
        Ok(if place.is_deaf {
            Step::Wait(look_again)
        } else {
            Step::Again
        })
    }

    /// Waits until the messages of its queue are heard, or it is known that they cannot be, or until then.
    /// True if it was told to look before: the lock may have been handed to it.
    pub(super) async fn listen(&self, until: Moment) -> Result<bool> {
        let Some(place) = &self.place else {
            return Ok(false);
        };
        let core = self.core();
        tokio::select! {
            () = place.waiter.subscribed(&core.server) => Ok(false),
            told = place.waiter.wait(until) => {
                told.map_err(|error| self.contender.about(place.at, error))?;
                Ok(core.clock.now() < until)
            }
        }
    }
}
