//! The wait for a lock: try, subscribe, try again, then wait for a message or a timer.

use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;

use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::hold::{Standing, Terms};
use crate::key::LockKey;
use crate::owner::Owner;
use crate::session::{Acquiring, Attempt, Claim, Core, Session};
use crate::wait::{Place, Wake};

/// How long a caller is ready to wait.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wait {
    ForEver,
    AtMost(Duration),
    Not,
}

/// Acquires a lock, on the caller's runtime.
pub(super) async fn acquire(
    session: &Arc<Session>,
    key: &Arc<LockKey>,
    owner: Owner,
    terms: &Terms,
    wait: Wait,
) -> Result<Option<Guard>> {
    let core = session.core();
    core.open()?;
    let began = core.clock.now();
    let span = tracing::debug_span!(
        "acquire",
        lock = key.name(),
        %owner,
        outcome = tracing::field::Empty,
        waited_ms = tracing::field::Empty,
    );
    let deadline = match wait {
        Wait::ForEver => None,
        Wait::AtMost(wait) => Some(began + wait),
        Wait::Not => Some(began + core.server.command_timeout()),
    };
    let caller = Caller {
        session,
        key,
        owner,
        terms,
        began,
        deadline,
    };
    let outcome = match wait {
        Wait::Not => caller.try_once().instrument(span.clone()).await,
        Wait::ForEver | Wait::AtMost(_) => caller.wait().instrument(span.clone()).await,
    };
    if !span.is_disabled() {
        let waited = core.clock.now().since(began);
        span.record("waited_ms", waited.as_millis() as u64);
        span.record(
            "outcome",
            match &outcome {
                Ok(Some(_)) => "acquired",
                Ok(None) => "busy",
                Err(_) => "failed",
            },
        );
    }
    Ok(outcome?.map(Guard::new))
}

/// One call to acquire a lock.
struct Caller<'a> {
    session: &'a Arc<Session>,
    key: &'a Arc<LockKey>,
    owner: Owner,
    terms: &'a Terms,
    began: Moment,
    /// When the call has to be over.
    deadline: Option<Moment>,
}

impl Caller<'_> {
    /// One attempt, beside whoever else of this client contends.
    async fn try_once(&self) -> Result<Option<Claim>> {
        let core = self.core();
        if let Some(claim) = self.reenter().await? {
            return Ok(Some(claim));
        }
        if core.holds.is_releasing(self.key) {
            // A guard dropped just now must not look like somebody else's lock.
            self.released().await?;
        }
        loop {
            let mut acquiring = Acquiring::first(self.session, self.key, self.owner);
            match acquiring.attempt(self.terms, self.until()).await? {
                Attempt::Granted(claim) => return Ok(Some(claim)),
                Attempt::TooLate => return Err(self.too_late()),
                // Freed by force before the grant was read: as if it had not been asked for yet.
                Attempt::Ended => core.open()?,
                // Meanwhile another branch of this owner may have got it.
                Attempt::Busy(_) | Attempt::Lost(_) => return self.reenter().await,
            }
        }
    }

    /// Waits in the queue until the lock is acquired or the deadline has come.
    async fn wait(&self) -> Result<Option<Claim>> {
        if let Some(claim) = self.reenter().await? {
            return Ok(Some(claim));
        }
        let core = self.core();
        let patient = self.deadline.is_none();
        let place = core.waiters.enter(self.key, self.owner, patient)?;
        let mut contest = Contest::default();
        loop {
            core.open()?;
            if let Some(claim) = self.reenter().await? {
                return Ok(Some(claim));
            }
            let now = core.clock.now();
            if contest.looked && self.deadline.is_some_and(|deadline| now >= deadline) {
                return self.give_up(&place, &contest);
            }
            contest.looked = true;
            let look_again = match self.take_part(&place, &mut contest).await? {
                Step::Acquired(claim) => return Ok(Some(claim)),
                Step::Again => continue,
                Step::Wait(until) => until,
            };
            let until = self
                .deadline
                .map_or(look_again, |deadline| deadline.min(look_again));
            place.wait(until).await?;
        }
    }

    /// The time is over: the lock was busy, or nobody knows.
    fn give_up(&self, place: &Place, contest: &Contest) -> Result<Option<Claim>> {
        let core = self.core();
        let now = core.clock.now();
        let waited = now.since(self.began);
        let kept = core.holds.kept_until(self.key).is_some();
        let unanswered = place
            .unanswered_for(now)
            .is_some_and(|silence| silence >= SILENCE.max(waited / 2) && !kept);
        let unreleased = contest
            .release_awaited
            .is_some_and(|since| now.since(since) >= SILENCE);
        match place.outage() {
            Some(outage) => Err(outage),
            // Neither the contender's question nor a release of this client's has an answer.
            None if unanswered || unreleased || contest.too_late => Err(Error::Timeout { waited }),
            None => Ok(None),
        }
    }

    /// One look at the lock from a place in its queue.
    async fn take_part(&self, place: &Place, contest: &mut Contest) -> Result<Step> {
        let core = self.core();
        let now = core.clock.now();
        let poll_cap = core.clock.sooner(core.settings.poll_cap);
        if !place.is_contender() {
            match place.take_over() {
                Some(abandoned) => {
                    if let Some(hold) = abandoned {
                        core.abandon(&hold);
                    }
                }
                None => return Ok(Step::Wait(now + poll_cap)),
            }
        }
        // While this client keeps the lock, its waiters send nothing.
        if let Some(kept) = core.holds.kept_until(self.key) {
            return Ok(Step::Wait(kept.min(now + poll_cap)));
        }
        // Nor while it gives the lock back, unless that takes long.
        if contest.release_awaited.is_none() && core.holds.is_releasing(self.key) {
            contest.release_awaited = Some(now);
            return Ok(Step::Wait(now + poll_cap));
        }
        contest.release_awaited = None;

        let mut acquiring = match contest.spare.take() {
            Some(spare) if !spare.is_spent() => spare,
            _ => Acquiring::first(self.session, self.key, self.owner),
        };
        let listening = place.is_listening();
        place.attempting(Some(acquiring.hold().clone()));
        let attempt = acquiring.attempt(self.terms, self.until()).await;
        place.attempting(None);
        if attempt.is_ok() {
            place.note_outage(None);
        }
        let ttl = match attempt {
            Ok(Attempt::Granted(claim)) => return Ok(Step::Acquired(claim)),
            Ok(Attempt::Ended | Attempt::Lost(_)) => return Ok(Step::Again),
            Ok(Attempt::TooLate) => {
                // Asked for ever, a server that is slower than the lease would be asked for ever.
                if self.deadline.is_none() {
                    return Err(self.too_late());
                }
                contest.too_late = true;
                return Ok(Step::Again);
            }
            Ok(Attempt::Busy(ttl)) => ttl,
            Err(error) => return self.meet(place, error),
        };
        contest.too_late = false;
        contest.spare = Some(acquiring);
        self.next_look(place, contest, ttl, listening).await
    }

    /// A caller with time left goes on trying in an outage; one without a deadline is told, and so
    /// are the others of its kind.
    fn meet(&self, place: &Place, error: Error) -> Result<Step> {
        if !error.is_retriable() {
            return Err(error);
        }
        place.note_outage(Some(&error));
        let Some(deadline) = self.deadline else {
            return Err(error);
        };
        let again = self.core().clock.now() + AFTER_AN_OUTAGE;
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
        if let Wake::Poll(backoff) = core.settings.wake {
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
        tokio::select! {
            () = place.subscribed() => {}
            () = core.clock.sleep_until(limit) => {}
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

    /// Acquires once more what this owner holds; `None` if it holds nothing. An error if it held the
    /// lock and lost it.
    async fn reenter(&self) -> Result<Option<Claim>> {
        let core = self.core();
        loop {
            let hold = match core.holds.standing(self.key, self.owner) {
                Standing::Holding(hold) => hold,
                Standing::Lost(lost) => return Err(Error::Lost(lost)),
                Standing::Acquiring | Standing::Nothing => return Ok(None),
            };
            let until = self.until();
            let mut acquiring = Acquiring::again(self.session, hold, until).await?;
            match acquiring.attempt(self.terms, until).await? {
                Attempt::Granted(claim) => return Ok(Some(claim)),
                Attempt::Lost(lost) => return Err(Error::Lost(lost)),
                // Its last claim was dropped meanwhile.
                Attempt::Busy(_) | Attempt::Ended | Attempt::TooLate => {}
            }
        }
    }

    /// Waits until what this client gave up on the lock is settled, or the deadline has come.
    async fn released(&self) -> Result<()> {
        let core = self.core();
        let place = core.waiters.enter(self.key, self.owner, false)?;
        while core.holds.is_releasing(self.key) {
            let now = core.clock.now();
            if self.deadline.is_some_and(|deadline| now >= deadline) {
                break;
            }
            place.wait(now + RELEASED_SOON).await?;
        }
        Ok(())
    }

    /// Up to when one attempt may go on. One that began in time gets a moment to be answered.
    fn until(&self) -> Moment {
        let core = self.core();
        let now = core.clock.now();
        let patience = now + core.server.command_timeout();
        let deadline = self.deadline.map(|deadline| deadline.max(now + GRACE));
        deadline.map_or(patience, |deadline| deadline.min(patience))
    }

    fn too_late(&self) -> Error {
        let waited = self.core().clock.now().since(self.began);
        Error::Timeout { waited }
    }

    fn core(&self) -> &Arc<Core> {
        self.session.core()
    }
}

/// What a look at the lock came to.
enum Step {
    Acquired(Claim),
    Again,
    /// Look again at this moment, or when told.
    Wait(Moment),
}

/// What a waiter remembers from one look to the next.
#[derive(Default)]
struct Contest {
    /// It has had its look, however short its wait is.
    looked: bool,
    /// An acquire that was answered with a clear no, to be sent again.
    spare: Option<Acquiring>,
    /// A subscription could not be had.
    is_deaf: bool,
    attempts: u32,
    /// Since when a release by this client itself is waited for.
    release_awaited: Option<Moment>,
    /// The last attempt was granted after its own deadline.
    too_late: bool,
}

/// An attempt that begins within the caller's wait may take this long, even if the wait ends before.
const GRACE: Duration = Duration::from_millis(100);

/// A question without an answer for this long is more than a busy server.
const SILENCE: Duration = Duration::from_millis(50);

const AFTER_AN_OUTAGE: Duration = Duration::from_millis(20);
const RELEASED_SOON: Duration = Duration::from_millis(100);
