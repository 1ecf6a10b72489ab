//! The wait loop.

use super::beside::Beside;
use super::{Contender, LocalState, OwnerHas, QueuePlace, SHORTEST_ATTEMPT, SILENCE, TimedOut};
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::observe::WokenBy;
use crate::session::Core;
use crate::wait::{Backoff, HandOverCheck, QueueView, TakeOver};

/// Waits until the contender has what it waits for. Returns `None` if others had it until the deadline.
/// The call starts in the queue `at`, if there is one.
pub(crate) fn contend<C: Contender>(
    contender: C,
    at: Option<usize>,
    now: Moment,
) -> impl Future<Output = Result<Option<C::Won>>> {
    // Made here: the future of an `async fn` would keep the contender twice, also as an argument.
    let mut contest = Contest {
        contender,
        place: None,
        began: now,
        has_checked: false,
        is_busy: false,
        attempts: 0,
        release_awaited: None,
        beside: Beside::default(),
        outage: None,
        has_warned: false,
        awaits_message: false,
        woken_by: None,
    };
    async move {
        if let Some(at) = at {
            contest.enter(at, now)?;
        }
        contest.run(now).await
    }
}

/// One call that waits, and its state between two iterations of the loop.
pub(super) struct Contest<C: Contender> {
    // What the contender keeps for its next attempt is dropped before the place in the queue.
    pub(super) contender: C,
    pub(super) place: Option<QueuePlace>,
    pub(super) began: Moment,
    /// The call has made its first check. Every call makes one, however short its wait is.
    pub(super) has_checked: bool,
    /// The last known state: others had the lock, or were ahead of this call in the queue.
    pub(super) is_busy: bool,
    /// Number of polls so far, for the backoff.
    pub(super) attempts: u32,
    /// Since when this call waits for a release by its own client.
    release_awaited: Option<Moment>,
    pub(super) beside: Beside,
    /// The outage that this call's last attempt met.
    pub(super) outage: Option<Error>,
    /// The warning that this client itself has the lock was logged.
    pub(super) has_warned: bool,
    /// A message is to end the next wait, and a timer ends it only if none comes.
    pub(super) awaits_message: bool,
    /// What ended the last wait, for observers.
    pub(super) woken_by: Option<WokenBy>,
}

/// The result of one iteration.
pub(super) enum Step<W> {
    Won(W),
    GaveUp,
    Again,
    /// Check again at this moment, or when woken.
    Wait(Moment),
}

impl<C: Contender> Contest<C> {
    async fn run(&mut self, mut now: Moment) -> Result<Option<C::Won>> {
        loop {
            self.awaits_message = false;
            match self.iterate(now).await? {
                Step::Won(won) => {
                    self.notify_woken();
                    return Ok(Some(won));
                }
                Step::GaveUp => return Ok(None),
                Step::Again => self.woken_by = None,
                Step::Wait(until) => {
                    self.warn_of_own_client();
                    self.park(until).await?;
                    self.note_wake_up();
                }
            }
            now = self.now();
        }
    }

    /// One iteration: checks what is known locally, and asks the server if it is this call's turn.
    async fn iterate(&mut self, mut now: Moment) -> Result<Step<C::Won>> {
        self.contender.ensure_open()?;
        let found = self.place.as_ref().map(|place| place.waiter.found(now));
        let expected = match found {
            // Usually a grant. Accept it even at the deadline: no other waiter can use it.
            Some(HandOverCheck::Here(handed)) => return self.accept_hand_over(handed).await,
            // The owner that hands over is frozen, or the server does not answer it. Undo what it may have
            // acquired for this waiter, and let this waiter ask for itself.
            Some(HandOverCheck::Overdue(hold)) => {
                if let Some(hold) = hold
                    && !self.contender.resolves_hand_over(&hold)
                {
                    self.core().clock.gap().await;
                    self.core().abandon(&hold);
                }
                now = self.now();
                None
            }
            // The command of a hand-over is in flight. `expected` is used below, after the owner's own
            // holds.
            Some(HandOverCheck::Expected(until)) => Some(until),
            Some(HandOverCheck::Nothing) | None => None,
        };
        // This comes before the queue order is checked: no other waiter of this client can claim what
        // this owner already has.
        let has_part = match self.contender.own(self.place.as_ref(), &mut now).await? {
            OwnerHas::Has(won) => return Ok(Step::Won(won)),
            OwnerHas::Part => true,
            OwnerHas::Nothing => false,
        };
        let deadline = self.deadline();
        // The deadline is over, and the first check was made. The call does not wait for a hand-over in
        // flight either: if it is granted, the grant is undone.
        if self.has_checked && deadline.is_some_and(|deadline| now >= deadline) {
            return self.give_up(now);
        }
        self.has_checked = true;
        // An attempt would compete with the hand-over to this waiter.
        if let Some(until) = expected {
            return Ok(Step::Wait(until));
        }
        let view = match &self.place {
            Some(place) => place.waiter.check_in(now),
            None => QueueView::default(),
        };
        // Four kinds of calls may ask: one whose owner already has a part, one that is in no queue, one
        // without a place in the server's queue, and the contender.
        let at_once = self.contender.asks_at_once();
        let is_in_turn = has_part || self.place.is_none() || at_once || view.is_contender;
        if !is_in_turn {
            let until = match self.take_over(now).await {
                TakeOver::Taken(_) => {
                    // The command begins now, which may be later than the check.
                    now = self.now();
                    None
                }
                TakeOver::Kept => Some(Moment::NEVER),
                TakeOver::Asked(until) => Some(until),
            };
            if let Some(until) = until {
                self.is_busy = true;
                return Ok(match self.stand_by(now).await? {
                    Step::Wait(later) => Step::Wait(later.min(until)),
                    step => step,
                });
            }
        }
        // Almost no time is left. The answer would come after the deadline, and a grant would have to
        // be undone.
        if self.is_busy
            && let Some(deadline) = deadline
            && deadline.since(now) < SHORTEST_ATTEMPT
        {
            return Ok(Step::Wait(deadline));
        }
        // Do not ask the server while this client itself has the lock or is releasing it.
        if !at_once && let Some(step) = self.defer_to_own_client(now)? {
            return Ok(step);
        }
        // A call that has a part asks for the rest, and a call whose deadline comes before the end of a pause
        // asks all the same: it may be that no other client wants the lock.
        let may_pause = |until| !has_part && deadline.is_none_or(|deadline| deadline > until);
        // Another client was woken first. It is given time to acquire before this one asks.
        if let Some(until) = view.second_until.filter(|until| may_pause(*until)) {
            return Ok(Step::Wait(until));
        }
        let retreat = view.retreat.filter(|it| may_pause(it.until));
        // A listed client does not wait for the end of its pause: it takes its place behind those that wait.
        if let Some(place) = &mut self.place {
            place.is_listed = view.is_listed;
            place.yields = retreat.map(|retreat| retreat.until.since(now));
        }
        // This client had the lock for a while and now leaves it to other clients.
        if let Some(retreat) = retreat
            && !view.is_listed
        {
            // Releases by the other clients end the pause early. This needs a subscription.
            let listens = self.backoff().is_none() && retreat.releases > 0;
            if listens && !view.is_listening && self.listen(retreat.until).await? {
                return Ok(Step::Again);
            }
            return Ok(Step::Wait(retreat.until));
        }
        let tried = self.contender.attempt(self.place.as_ref(), now).await?;
        self.follow(tried, view.is_listening).await
    }

    /// Takes the role from a contender that is not polled, and undoes its command in flight.
    async fn take_over(&self, now: Moment) -> TakeOver {
        let Some(place) = &self.place else {
            return TakeOver::Kept;
        };
        let taken = place.waiter.take_over(now);
        if let TakeOver::Taken(Some(abandoned)) = &taken {
            self.core().clock.gap().await;
            self.core().abandon(abandoned);
        }
        taken
    }

    /// Lets the waiters of this client send nothing while the client itself has the lock, or is releasing it.
    /// They do not wait longer for a release that takes too long.
    fn defer_to_own_client(&mut self, now: Moment) -> Result<Option<Step<C::Won>>> {
        // Do not wait for two slow releases in a row, even of different locks. If no task finishes
        // either of them, the call would alternate between the two forever.
        let has_waited = self.release_awaited.take().is_some();
        let (at, timeout, is_release) = match self.contender.kept(now, has_waited) {
            // Not held by this client: ask the server.
            LocalState::Nothing => return Ok(None),
            LocalState::Again => {
                self.is_busy = true;
                return Ok(Some(Step::Again));
            }
            // Held by this client: its release wakes this waiter, `left` is the fallback.
            LocalState::For { at, left } => (at, left, false),
            // Being released: wait at most `timeout`, then ask the server.
            LocalState::Releasing { at, timeout } => (at, timeout, true),
        };
        self.is_busy = true;
        if self.move_to(at)? {
            // The hold may have ended before this call entered the queue: check again.
            return Ok(Some(Step::Again));
        }
        if is_release {
            self.release_awaited = Some(now);
        }
        let until = self.poll_again(now).min(now + timeout);
        Ok(Some(Step::Wait(until)))
    }

    /// Waits until `until`, or until the waiter is woken.
    async fn park(&mut self, until: Moment) -> Result<()> {
        let until = self.bounded(until);
        let Some(place) = &self.place else {
            self.core().clock.sleep_until(until).await;
            return Ok(());
        };
        let at = place.at;
        match self.contender.park(place, until).await {
            Err(Error::Closed) => {
                // The client of this queue was shut down. The call continues in another client's queue,
                // if there is one; `enter` fails otherwise.
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
            is_known_busy: self.beside.is_busy(),
            is_unreleased: self.release_awaited.is_some_and(is_unreleased),
            outage: self.outage.clone(),
        })?;
        Ok(Step::GaveUp)
    }

    fn enter(&mut self, at: usize, now: Moment) -> Result<()> {
        self.place = Some(QueuePlace {
            at,
            waiter: self.contender.enter(at, now)?,
            is_unsubscribed: false,
            is_listed: false,
            yields: None,
        });
        Ok(())
    }

    /// Moves to this queue. Returns false if the call is already in it: then the waiter was woken by
    /// each event since.
    pub(super) fn move_to(&mut self, at: usize) -> Result<bool> {
        if self.place.as_ref().is_some_and(|place| place.at == at) {
            return Ok(false);
        }
        // Leave first, so that one call counts as one waiter.
        self.leave_queue();
        let now = self.contender.core(Some(at)).clock.now();
        self.enter(at, now)?;
        Ok(true)
    }

    /// Leaves the queue, and forgets the state that was known from it.
    pub(super) fn leave(&mut self) {
        self.leave_queue();
        self.is_busy = false;
    }

    fn leave_queue(&mut self) {
        self.decline();
        self.place = None;
    }

    /// Refuses further hand-overs, and undoes one that was delivered already.
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

    /// The earlier of this moment and the deadline.
    pub(super) fn bounded(&self, until: Moment) -> Moment {
        self.deadline()
            .map_or(until, |deadline| deadline.min(until))
    }

    /// The latest moment of the next check.
    pub(super) fn poll_again(&self, now: Moment) -> Moment {
        let core = self.core();
        now + core.clock.jitter_down(core.settings.poll_cap)
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
