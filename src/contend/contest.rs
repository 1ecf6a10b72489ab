//! The loop of a wait.

use super::beside::Beside;
use super::{Contender, LocalState, OwnerHas, QueuePlace, SHORTEST_ATTEMPT, SILENCE, TimedOut};
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::session::Core;
use crate::wait::{Backoff, Found, QueueView};

/// Waits until the contender has what it wants; `None` if others had it up to the deadline. It begins in
/// the queue `at`, if in any.
pub(crate) async fn contend<C: Contender>(
    contender: C,
    at: Option<usize>,
    now: Moment,
) -> Result<Option<C::Won>> {
    let mut contest = Contest {
        contender,
        place: None,
        began: now,
        has_looked: false,
        is_busy: false,
        attempts: 0,
        release_awaited: None,
        beside: Beside::default(),
        outage: None,
        has_warned: false,
    };
    if let Some(at) = at {
        contest.enter(at, now)?;
    }
    contest.run(now).await
}

/// One call that waits, and what it remembers from one look to the next.
pub(super) struct Contest<C: Contender> {
    // What the contender keeps to ask again is dropped before its place in the queue.
    pub(super) contender: C,
    pub(super) place: Option<QueuePlace>,
    pub(super) began: Moment,
    /// It has had its look, however short its wait is.
    pub(super) has_looked: bool,
    /// When this call last knew, others had what it wants or were before it in the queue.
    pub(super) is_busy: bool,
    /// Looks without messages.
    pub(super) attempts: u32,
    /// Since when a release by this client itself is waited for.
    release_awaited: Option<Moment>,
    pub(super) beside: Beside,
    /// What it met itself when it asked last.
    pub(super) outage: Option<Error>,
    /// It was said that this client itself has what it waits for.
    pub(super) has_warned: bool,
}

/// What a look came to.
pub(super) enum Step<W> {
    Won(W),
    GaveUp,
    Again,
    /// Look again at this moment, or when told.
    Wait(Moment),
}

impl<C: Contender> Contest<C> {
    async fn run(&mut self, mut now: Moment) -> Result<Option<C::Won>> {
        loop {
            match self.look(now).await? {
                Step::Won(won) => return Ok(Some(won)),
                Step::GaveUp => return Ok(None),
                Step::Again => {}
                Step::Wait(until) => {
                    self.warn_of_own_client();
                    self.park(until).await?;
                }
            }
            now = self.now();
        }
    }

    /// One look at what it waits for.
    async fn look(&mut self, mut now: Moment) -> Result<Step<C::Won>> {
        self.contender.ensure_open()?;
        let found = self.place.as_ref().map(|place| place.waiter.found(now));
        let expected = match found {
            // A grant, most likely. It is taken in also at the deadline: nobody else can use it.
            Some(Found::Here(handed)) => return self.take_in(handed).await,
            // The owner that hands over stands still. What it may have got for this one is undone, and
            // this one asks for itself.
            Some(Found::Overdue(hold)) => {
                if let Some(hold) = hold {
                    self.core().clock.gap().await;
                    self.core().abandon(&hold);
                }
                None
            }
            Some(Found::Expected(until)) => Some(until),
            Some(Found::Nothing) | None => None,
        };
        // Before its turn: what its owner has, nobody else of this client can want to have before it.
        let has_part = match self.contender.own(self.place.as_ref(), &mut now).await? {
            OwnerHas::Has(won) => return Ok(Step::Won(won)),
            OwnerHas::Part => true,
            OwnerHas::Nothing => false,
        };
        let deadline = self.deadline();
        // A hand-over that is under way is not waited for either: what it grants is undone.
        if self.has_looked && deadline.is_some_and(|deadline| now >= deadline) {
            return self.give_up(now);
        }
        self.has_looked = true;
        if let Some(until) = expected {
            return Ok(Step::Wait(until));
        }
        let view = match &self.place {
            Some(place) => place.waiter.look(now),
            None => QueueView::default(),
        };
        let is_in_turn = has_part || self.place.is_none() || view.is_contender;
        if !is_in_turn && !self.take_over(now).await {
            self.is_busy = true;
            return self.stand_by(now).await;
        }
        if self.is_busy
            && let Some(deadline) = deadline
            && deadline.since(now) < SHORTEST_ATTEMPT
        {
            return Ok(Step::Wait(deadline));
        }
        if let Some(step) = self.defer_to_own_client(now)? {
            return Ok(step);
        }
        // The client had it for a while and leaves it to others. A waiter whose time is over before asks
        // all the same: nobody else may want it.
        if !has_part
            && let Some(retreat) = view.retreat
            && deadline.is_none_or(|deadline| deadline > retreat.until)
        {
            // The releases of those who are known to wait end it before.
            let listens = self.backoff().is_none() && retreat.releases > 0;
            if listens && !view.is_listening && self.listen(retreat.until).await? {
                return Ok(Step::Again);
            }
            return Ok(Step::Wait(retreat.until));
        }
        let tried = self.contender.attempt(self.place.as_ref(), now).await?;
        self.follow(tried, view.is_listening).await
    }

    /// Takes the role from a contender that is not polled, and undoes what that one has under way. False
    /// if it keeps the role.
    async fn take_over(&self, now: Moment) -> bool {
        let abandoned = self.place.as_ref().map(|place| place.waiter.take_over(now));
        let Some(Some(abandoned)) = abandoned else {
            return false;
        };
        if let Some(hold) = abandoned {
            self.core().clock.gap().await;
            self.core().abandon(&hold);
        }
        true
    }

    /// While this client itself keeps it, its waiters send nothing; nor while it gives it back, unless
    /// that takes long.
    fn defer_to_own_client(&mut self, now: Moment) -> Result<Option<Step<C::Won>>> {
        // A release that takes long is not waited for twice in a row, whichever it is: two that nobody
        // finishes would be waited for in turns, without end.
        let has_waited = self.release_awaited.take().is_some();
        let (at, patience, is_release) = match self.contender.kept(now, has_waited) {
            LocalState::Nothing => return Ok(None),
            LocalState::Again => {
                self.is_busy = true;
                return Ok(Some(Step::Again));
            }
            LocalState::For { at, left } => (at, left, false),
            LocalState::Releasing { at, patience } => (at, patience, true),
        };
        self.is_busy = true;
        if self.move_to(at)? {
            // What ended before it entered has to be looked at again.
            return Ok(Some(Step::Again));
        }
        if is_release {
            self.release_awaited = Some(now);
        }
        let until = self.poll_again(now).min(now + patience);
        Ok(Some(Step::Wait(until)))
    }

    /// Waits until then, or until it is told to look.
    async fn park(&mut self, until: Moment) -> Result<()> {
        let until = self.bounded(until);
        let Some(place) = &self.place else {
            self.core().clock.sleep_until(until).await;
            return Ok(());
        };
        let at = place.at;
        match self.contender.park(place, until).await {
            Err(Error::Closed) => {
                // The client of its queue was shut down. It goes on in that of another, if there is one.
                self.leave_queue();
                let now = self.now();
                self.enter(at, now)
            }
            ended => ended.map_err(|error| self.contender.about(at, error)),
        }
    }

    fn give_up(&self, now: Moment) -> Result<Step<C::Won>> {
        let is_unreleased = |since| now.since(since) >= SILENCE;
        self.contender.give_up(TimedOut {
            place: self.place.as_ref(),
            now,
            is_told_busy: self.beside.is_busy(),
            is_unreleased: self.release_awaited.is_some_and(is_unreleased),
            outage: self.outage.clone(),
        })?;
        Ok(Step::GaveUp)
    }

    fn enter(&mut self, at: usize, now: Moment) -> Result<()> {
        self.place = Some(QueuePlace {
            at,
            waiter: self.contender.enter(at, now)?,
            is_deaf: false,
        });
        Ok(())
    }

    /// Takes a place in this queue. False if it had it already: then it was told of all that happened
    /// since.
    pub(super) fn move_to(&mut self, at: usize) -> Result<bool> {
        if self.place.as_ref().is_some_and(|place| place.at == at) {
            return Ok(false);
        }
        // It leaves before it comes, so that one wait counts as one.
        self.leave_queue();
        let now = self.contender.core(Some(at)).clock.now();
        self.enter(at, now)?;
        Ok(true)
    }

    /// Leaves the queue: what was known there says nothing any more.
    pub(super) fn leave(&mut self) {
        self.leave_queue();
        self.is_busy = false;
    }

    fn leave_queue(&mut self) {
        self.decline();
        self.place = None;
    }

    /// Gives back what is being handed to it.
    fn decline(&self) {
        if let Some(place) = &self.place
            && let Some(handed) = place.waiter.decline()
        {
            self.contender.decline(handed);
        }
    }

    pub(super) fn core(&self) -> &Core {
        self.contender.core(self.at())
    }

    fn at(&self) -> Option<usize> {
        self.place.as_ref().map(|place| place.at)
    }

    pub(super) fn now(&self) -> Moment {
        self.core().clock.now()
    }

    pub(super) fn deadline(&self) -> Option<Moment> {
        self.contender.deadline(self.at())
    }

    /// Then, or at the deadline if that is before.
    pub(super) fn bounded(&self, until: Moment) -> Moment {
        self.deadline()
            .map_or(until, |deadline| deadline.min(until))
    }

    /// When it looks again at the latest, whatever it is told.
    pub(super) fn poll_again(&self, now: Moment) -> Moment {
        let core = self.core();
        now + core.clock.sooner(core.settings.poll_cap)
    }

    pub(super) fn backoff(&self) -> Option<Backoff> {
        self.contender.backoff(self.at()?)
    }
}

impl<C: Contender> Drop for Contest<C> {
    fn drop(&mut self) {
        self.decline();
    }
}
