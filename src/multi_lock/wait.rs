//! The wait for a multi lock: for the one member that somebody else has, holding nothing meanwhile.

use std::time::Duration;

use super::acquire::Call;
use super::members::Member;
use super::round::Round;
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::session::Claim;
use crate::wait::{Place, Wish};

/// A place in the queue of the member that is waited for.
pub(super) struct Seat {
    pub(super) member: usize,
    pub(super) place: Place,
}

/// What a waiter remembers from one look to the next.
#[derive(Default)]
pub(super) struct Course {
    /// It has had its look, however short its wait is.
    pub(super) looked: bool,
    pub(super) seat: Option<Seat>,
    /// The group that is asked before the others: the last one that was not to be had.
    pub(super) lead: Option<usize>,
    /// How often others were given back for a member that was not to be had.
    pub(super) collisions: u32,
    /// Looks without messages.
    pub(super) attempts: u32,
    /// The messages of this member cannot be had.
    pub(super) deaf_to: Option<usize>,
    /// Since when a release by a client of the members is waited for.
    pub(super) release_awaited: Option<Moment>,
    pub(super) outage: Option<Error>,
    /// The last round was granted after a deadline of its own.
    pub(super) too_late: bool,
}

/// What a look came to.
pub(super) enum Step {
    Taken(Vec<Claim>),
    Again,
    /// Look again after this time, or when told.
    Wait(Duration),
}

impl Call<'_> {
    /// Waits until all are acquired or the deadline has come.
    pub(super) async fn wait(&self) -> Result<Option<Vec<Claim>>> {
        let mut course = Course::default();
        self.line_up(&mut course)?;
        loop {
            for member in self.members.list() {
                member.core().open()?;
            }
            if course.looked && self.left().is_some_and(|left| left.is_zero()) {
                return self.give_up(&course);
            }
            let left = self.left();
            let is_over = course.seat.is_some()
                && left.is_some_and(|left| left < SHORTEST_ATTEMPT)
                && course.looked;
            let step = match self.turn(&course) {
                // Its answer would come too late, and what it grants would have to be undone.
                _ if is_over => Step::Wait(left.unwrap_or_default()),
                Some(pause) => Step::Wait(pause),
                None => self.look(&mut course).await?,
            };
            course.looked = true;
            let pause = match step {
                Step::Taken(claims) => return Ok(Some(claims)),
                Step::Again => continue,
                Step::Wait(pause) => self.left().map_or(pause, |left| left.min(pause)),
            };
            match &course.seat {
                Some(seat) => self.sit(seat, pause).await?,
                None => tokio::time::sleep(pause).await,
            }
        }
    }

    /// Where others of a client wait for a member already, it waits behind them.
    fn line_up(&self, course: &mut Course) -> Result<()> {
        for (place, member) in self.members.list().iter().enumerate() {
            if member.core().waiters.is_awaited(&member.key) && !self.holds(place) {
                course.seat = Some(self.seat(place)?);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Takes the last place in the queue of this member.
    pub(super) fn seat(&self, member: usize) -> Result<Seat> {
        let Member { session, key, .. } = &self.members.list()[member];
        let core = session.core();
        let now = core.clock.now();
        let wish = Wish {
            owner: self.owner,
            // One lock alone is of no use to it, so it is not handed to it.
            terms: None,
            deadline: self.left().map(|left| now + left),
        };
        let place = core.waiters.enter(key, wish, now)?;
        Ok(Seat { member, place })
    }

    /// How long it has to wait for its turn; `None` if it may ask.
    fn turn(&self, course: &Course) -> Option<Duration> {
        let seat = course.seat.as_ref()?;
        // What its owner holds already it may have once more.
        if self.holds(seat.member) {
            return None;
        }
        let core = self.members.list()[seat.member].core();
        let now = core.clock.now();
        let view = seat.place.look(now);
        if !view.is_contender {
            match seat.place.take_over(now) {
                Some(abandoned) => {
                    if let Some(hold) = abandoned {
                        core.abandon(&hold);
                    }
                }
                None => return Some(core.clock.sooner(core.settings.poll_cap)),
            }
        }
        let retreat = view.retreat?.until.since(now);
        self.left()
            .is_none_or(|left| left > retreat)
            .then_some(retreat)
    }

    /// Waits in its place for so long, or until it is told to look.
    async fn sit(&self, seat: &Seat, pause: Duration) -> Result<()> {
        let clock = &self.members.list()[seat.member].core().clock;
        let told = seat.place.wait(clock.now() + pause).await;
        told.map_err(|error| self.about(seat, error))
    }

    /// One look at all members.
    async fn look(&self, course: &mut Course) -> Result<Step> {
        if let Some(step) = self.keep_off(course)? {
            return Ok(step);
        }
        let began = self.now();
        let heard = course
            .seat
            .as_ref()
            .filter(|seat| seat.place.is_listening());
        let heard = heard.map(|seat| seat.member);
        let round = self.round(course.lead, course.seat.as_ref()).await;
        if let Some(seat) = &course.seat {
            seat.place.attempted();
            if round.is_ok() {
                seat.place.note_outage(None);
            }
        }
        let round = match round {
            Ok(round) => round,
            Err(trouble) => {
                let took = self.now().since(began);
                return self.meet(course, trouble, took);
            }
        };
        course.outage = None;
        course.too_late = false;
        match round {
            Round::Taken(claims) => {
                if let Some(seat) = &course.seat {
                    seat.place.has_lock();
                }
                Ok(Step::Taken(claims))
            }
            Round::Blocked(blocked) => {
                tracing::debug!(
                    lock = self.members.list()[blocked.member].key.name(),
                    ttl_ms = blocked.ttl.map(|ttl| ttl.as_millis() as u64),
                    given_back = blocked.collided,
                    "a member is held by another"
                );
                if self.holds(blocked.member) {
                    // By its owner, since a moment ago.
                    return Ok(Step::Again);
                }
                if blocked.collided {
                    let took = self.now().since(began);
                    return Ok(Step::Wait(self.get_out_of_the_way(course, &blocked, took)));
                }
                self.wait_for(course, &blocked, heard).await
            }
            Round::Again => Ok(Step::Again),
            // Asked for ever, servers that are slower than the lease would be asked for ever.
            Round::TooLate if self.deadline.is_none() => Err(self.too_late()),
            Round::TooLate => {
                course.too_late = true;
                Ok(Step::Again)
            }
        }
    }

    /// The time is over: a member was busy, or nobody knows.
    fn give_up(&self, course: &Course) -> Result<Option<Vec<Claim>>> {
        if let Some(outage) = &course.outage {
            return Err(outage.clone());
        }
        let now = self.now();
        let waited = now.since(self.began);
        if let Some(seat) = &course.seat {
            if let Some(outage) = seat.place.outage() {
                return Err(self.about(seat, outage));
            }
            let member = &self.members.list()[seat.member];
            let core = member.core();
            let kept = core.holds.outlook(&member.key).kept_until.is_some();
            let silence = seat.place.unanswered_for(core.clock.now());
            if !kept && silence.is_some_and(|silence| silence >= SILENCE.max(waited / 2)) {
                return Err(self.about(seat, Error::timeout(waited)));
            }
        }
        let unreleased = course
            .release_awaited
            .is_some_and(|since| now.since(since) >= SILENCE);
        match &course.seat {
            // It sits where the release is awaited.
            Some(seat) if unreleased => Err(self.about(seat, Error::timeout(waited))),
            _ if course.too_late => Err(Error::timeout(waited)),
            _ => Ok(None),
        }
    }

    pub(super) fn about(&self, seat: &Seat, error: Error) -> Error {
        self.members.about(seat.member..seat.member + 1, error)
    }
}

/// A question without an answer for this long is more than a busy server.
pub(super) const SILENCE: Duration = Duration::from_millis(50);

/// With less time than this left, one who knows a member as busy asks no more.
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(1);
