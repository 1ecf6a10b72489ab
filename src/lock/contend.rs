//! The wait for a lock: try, subscribe, try again, then wait for a message, a hand-over or a timer.

use std::sync::Arc;
use std::time::Duration;

use super::acquire::Caller;
use super::contest::{Contest, Seat, Step};
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::hold::{Hold, Outlook, PATIENCE};
use crate::session::{Acquiring, Attempt, Claim};
use crate::wait::{Found, Handed, Place, Wish};

impl Caller<'_> {
    /// Waits in the queue until the lock is acquired or the deadline has come.
    pub(super) async fn wait(&self) -> Result<Option<Claim>> {
        let core = self.core();
        let mut now = self.began;
        if core.holds.outlook(self.key).has_holds {
            if let Some(claim) = self.reenter().await? {
                return Ok(Some(claim));
            }
            now = core.clock.now();
        }
        let place = core.waiters.enter(
            self.key,
            Wish {
                owner: self.owner,
                terms: Some(*self.terms),
                deadline: self.deadline,
            },
            now,
        )?;
        let seat = Seat {
            session: self.session,
            place,
        };
        let mut contest = Contest::default();
        loop {
            core.open()?;
            if contest.looked {
                now = core.clock.now();
            }
            let expected = match seat.place.found(now) {
                Found::Here(handed) => {
                    match self.take_in(&seat.place, &mut contest, handed).await? {
                        Step::Acquired(claim) => return Ok(Some(claim)),
                        Step::Again => continue,
                        Step::Wait(until) => {
                            let until = self.deadline.map_or(until, |it| it.min(until));
                            seat.place.wait(until).await?;
                            continue;
                        }
                    }
                }
                Found::Overdue(hold) => {
                    if let Some(hold) = hold {
                        core.clock.gap().await;
                        core.abandon(&hold);
                    }
                    None
                }
                Found::Expected(until) => Some(until),
                Found::Nothing => None,
            };
            let mut own = core.holds.outlook(self.key);
            if own.has_holds {
                if let Some(claim) = self.reenter_meanwhile().await? {
                    return Ok(Some(claim));
                }
                own = core.holds.outlook(self.key);
                now = core.clock.now();
            }
            // A hand-over that is under way is not waited for either: what it grants is undone.
            if contest.looked && self.deadline.is_some_and(|deadline| now >= deadline) {
                return self.give_up(&seat.place, &contest);
            }
            contest.looked = true;
            let step = match expected {
                Some(until) => Step::Wait(until),
                None => self.take_part(&seat.place, &mut contest, own, now).await?,
            };
            let look_again = match step {
                Step::Acquired(claim) => return Ok(Some(claim)),
                Step::Again => continue,
                Step::Wait(until) => until,
            };
            let until = self
                .deadline
                .map_or(look_again, |deadline| deadline.min(look_again));
            seat.place.wait(until).await?;
        }
    }

    /// The time is over: the lock was busy, or nobody knows.
    fn give_up(&self, place: &Place, contest: &Contest) -> Result<Option<Claim>> {
        let core = self.core();
        let now = core.clock.now();
        let waited = now.since(self.began);
        if contest.beside.is_busy() || core.holds.outlook(self.key).kept_until.is_some() {
            // It is busy for certain. What the contender met before says nothing of that.
            return Ok(None);
        }
        if let Some(outage) = place.outage() {
            return Err(outage);
        }
        // The hold that an answer is missing for: the contender's, or one that is being released.
        let silent = place.silent_contender(now);
        let silent = silent.filter(|(silence, _)| *silence >= SILENCE.max(waited / 2));
        let is_unreleased = contest
            .release_awaited
            .is_some_and(|since| now.since(since) >= SILENCE);
        let unanswered = silent
            .map(|(_, hold)| hold)
            .or_else(|| contest.too_late.clone());
        if unanswered.is_none() && !is_unreleased {
            return Ok(None);
        }
        let unanswered = unanswered.or_else(|| core.holds.releasing(self.key));
        Err(unanswered.map_or_else(|| Error::timeout(waited), |hold| hold.unanswered(waited)))
    }

    /// One look at the lock from a place in its queue.
    async fn take_part(
        &self,
        place: &Place,
        contest: &mut Contest,
        own: Outlook,
        now: Moment,
    ) -> Result<Step> {
        let core = self.core();
        let later = || now + core.clock.sooner(core.settings.poll_cap);
        let view = place.look(now);
        if !view.is_contender {
            match place.take_over(now) {
                Some(abandoned) => {
                    if let Some(hold) = abandoned {
                        core.clock.gap().await;
                        core.abandon(&hold);
                    }
                }
                None => {
                    contest.is_busy = true;
                    return self.stand_by(place, contest, now, later()).await;
                }
            }
        }
        // While this client keeps the lock, its waiters send nothing.
        if let Some(kept) = own.kept_until {
            contest.is_busy = true;
            return Ok(Step::Wait(kept.min(later())));
        }
        // Nor while it gives the lock back, unless that takes long.
        if contest.release_awaited.is_none() && own.releasing {
            contest.release_awaited = Some(now);
            contest.is_busy = true;
            return Ok(Step::Wait(later().min(now + PATIENCE)));
        }
        if own.releasing
            && let Some(releasing) = core.holds.releasing(self.key)
        {
            core.hasten(&releasing);
        }
        contest.release_awaited = None;
        // One whose time is over before asks all the same: nobody else may want the lock.
        if let Some(retreat) = view.retreat
            && self
                .deadline
                .is_none_or(|deadline| deadline > retreat.until)
        {
            // The releases of those who are known to wait end it before.
            let listens = self.backoff().is_none() && retreat.releases > 0;
            if listens && !view.is_listening && self.listen(place, retreat.until).await? {
                return Ok(Step::Again);
            }
            return Ok(Step::Wait(retreat.until));
        }
        if contest.is_busy
            && let Some(deadline) = self.deadline
            && deadline.since(now) < SHORTEST_ATTEMPT
        {
            // Its answer would come too late, and what it grants would have to be undone.
            return Ok(Step::Wait(deadline));
        }

        let mut acquiring = match contest.spare.take() {
            Some(spare) if !spare.is_spent() => spare,
            _ => Acquiring::first(self.session, self.key, self.owner),
        };
        if !place.attempting(acquiring.hold(), now) {
            return Ok(Step::Again);
        }
        let until = self.until(now);
        self.promise(place, until);
        let attempt = acquiring.attempt(self.terms, now, until).await;
        place.attempted();
        let ttl = match attempt {
            Ok(Attempt::Busy(ttl)) => ttl,
            Ok(attempt) => {
                let claim = self.weigh(place, contest, acquiring.hold(), attempt)?;
                return Ok(claim.map_or(Step::Again, Step::Acquired));
            }
            Err(error) => return self.meet(place, contest, error, now),
        };
        place.note_outage(None);
        contest.is_busy = true;
        contest.too_late = None;
        acquiring.rest();
        contest.spare = Some(acquiring);
        self.next_look(place, contest, ttl, view.is_listening).await
    }

    /// Takes in what another owner of this client handed over, if it is a grant still.
    async fn take_in(&self, place: &Place, contest: &mut Contest, handed: Handed) -> Result<Step> {
        let mut acquiring = Acquiring::handed(self.session, handed);
        let now = self.core().clock.now();
        let until = self.until(now);
        self.promise(place, until);
        if let Err(error) = acquiring.acknowledged_by_hand(until).await {
            contest.looked = true;
            return self.meet(place, contest, error, now);
        }
        let attempt = acquiring.take_in(self.terms)?;
        let claim = self.weigh(place, contest, acquiring.hold(), attempt)?;
        Ok(claim.map_or(Step::Again, Step::Acquired))
    }

    /// Its acquire may take longer than others, until replicas have it.
    fn promise(&self, place: &Place, until: Moment) {
        if let Some(until) = self.core().answered_by(until) {
            place.promise(until);
        }
    }

    /// What an attempt that found the lock free came to.
    fn weigh(
        &self,
        place: &Place,
        contest: &mut Contest,
        hold: &Arc<Hold>,
        attempt: Attempt,
    ) -> Result<Option<Claim>> {
        if let Attempt::Granted(claim) = attempt {
            place.has_lock();
            return Ok(Some(claim));
        }
        place.note_outage(None);
        match attempt {
            // Asked for ever, a server that is slower than the lease would be asked for ever.
            Attempt::TooLate if self.deadline.is_none() => return Err(self.too_late(hold)),
            Attempt::TooLate => contest.too_late = Some(hold.clone()),
            _ => {}
        }
        Ok(None)
    }

    /// What comes of an attempt that began at `then` and failed. A caller with time left goes on trying
    /// in an outage; one without a deadline returns the error, and so do the others of its kind.
    fn meet(&self, place: &Place, contest: &Contest, error: Error, then: Moment) -> Result<Step> {
        if !error.is_retriable() {
            return Err(error);
        }
        let now = self.core().clock.now();
        if self.was_patient(then) {
            place.note_outage(Some(&error));
        } else if contest.is_busy && error.is_timeout() && now.since(then) < SILENCE {
            // The end of the wait came between the question and its answer: what was known before is
            // the last that is known.
            return Ok(Step::Again);
        } else {
            // Those behind it have more patience, and find out for themselves.
            place.remember_outage(Some(&error));
        }
        let Some(deadline) = self.deadline else {
            return Err(error);
        };
        if now >= deadline {
            return Ok(Step::Again);
        }
        let again = now + AFTER_AN_OUTAGE;
        // A last attempt without time for its answer would only hide what this one met.
        let in_time = deadline.since(again) > AFTER_AN_OUTAGE;
        Ok(Step::Wait(if in_time { again } else { deadline }))
    }

    /// After a busy answer: subscribe and try again, or wait.
    async fn next_look(
        &self,
        place: &Place,
        contest: &mut Contest,
        ttl: Option<Duration>,
        listening: bool,
    ) -> Result<Step> {
        let core = self.core();
        if let Some(backoff) = self.backoff() {
            let pause = backoff.pause(contest.attempts);
            let pause = core.clock.later(pause.min(core.settings.poll_cap));
            contest.attempts = contest.attempts.saturating_add(1);
            return Ok(Step::Wait(core.clock.now() + pause));
        }
        // A TTL of n ms is over when n + 1 ms have passed for certain.
        let ttl = ttl.map_or(Duration::MAX, |ttl| ttl + Duration::from_millis(1));
        let wait = ttl.min(core.clock.sooner(core.settings.poll_cap));
        let look_again = core.clock.now() + wait;
        if listening || contest.is_deaf {
            return Ok(Step::Wait(look_again));
        }
        let limit = self
            .deadline
            .map_or(look_again, |deadline| deadline.min(look_again));
        if self.listen(place, limit).await? {
            return Ok(Step::Again);
        }
        // What was published before the subscription stood was not heard: look once more. Where it
        // cannot be had, timers have to do.
        contest.is_deaf = !place.is_listening();
        Ok(if contest.is_deaf {
            Step::Wait(look_again)
        } else {
            Step::Again
        })
    }

    /// Waits until the lock's messages are heard, or it is known that they cannot be, or until then.
    /// True if it was told to look before: the lock may have been handed to it.
    async fn listen(&self, place: &Place, until: Moment) -> Result<bool> {
        let core = self.core();
        tokio::select! {
            () = place.subscribed(&core.server) => Ok(false),
            told = place.wait(until) => {
                told?;
                Ok(core.clock.now() < until)
            }
        }
    }
}

/// A question without an answer for this long is more than a busy server.
pub(super) const SILENCE: Duration = Duration::from_millis(50);

/// With less time than this left, one who knows the lock as busy asks no more.
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(1);

const AFTER_AN_OUTAGE: Duration = Duration::from_millis(20);
