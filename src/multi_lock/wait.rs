//! The wait for a multi lock: for the one member that somebody else has, holding nothing meanwhile.

use std::time::Duration;

use super::acquire::Call;
use super::members::Member;
use super::round::{Blocked, Round, Trouble};
use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::hold::Standing;
use crate::session::Claim;
use crate::wait::{Place, Wake, Wish};

/// A place in the queue of the member that is waited for.
pub(super) struct Seat {
    pub(super) member: usize,
    pub(super) place: Place,
}

/// What a waiter remembers from one look to the next.
#[derive(Default)]
struct Course {
    /// It has had its look, however short its wait is.
    looked: bool,
    seat: Option<Seat>,
    /// The group that is asked before the others: the last one that was not to be had.
    lead: Option<usize>,
    /// How often others were given back for a member that was not to be had.
    collisions: u32,
    /// Looks without messages.
    attempts: u32,
    /// The messages of this member cannot be had.
    deaf_to: Option<usize>,
    /// Since when a release by a client of the members is waited for.
    release_awaited: Option<Moment>,
    outage: Option<Error>,
    /// The last round was granted after a deadline of its own.
    too_late: bool,
}

/// What a look came to.
enum Step {
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
            let step = match self.turn(&course) {
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
    fn seat(&self, member: usize) -> Result<Seat> {
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

    /// Takes a place in the queue of this member, unless it has one.
    fn move_to(&self, member: usize, course: &mut Course) -> Result<()> {
        if course
            .seat
            .as_ref()
            .is_none_or(|seat| seat.member != member)
        {
            // It leaves before it comes, so that one wait counts as one.
            course.seat = None;
            course.seat = Some(self.seat(member)?);
        }
        Ok(())
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
        let round = self.round(course.lead, course.seat.as_ref()).await;
        if let Some(seat) = &course.seat {
            seat.place.attempted();
            if round.is_ok() {
                seat.place.note_outage(None);
            }
        }
        let round = match round {
            Ok(round) => round,
            Err(trouble) => return self.meet(course, trouble),
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
            Round::Blocked(blocked) if self.holds(blocked.member) => Ok(Step::Again),
            Round::Blocked(blocked) if self.note(&blocked).collided => {
                let took = self.now().since(began);
                Ok(Step::Wait(self.get_out_of_the_way(course, &blocked, took)))
            }
            Round::Blocked(blocked) => self.wait_for(course, &blocked).await,
            Round::Again => Ok(Step::Again),
            // Asked for ever, servers that are slower than the lease would be asked for ever.
            Round::TooLate if self.deadline.is_none() => Err(self.too_late()),
            Round::TooLate => {
                course.too_late = true;
                Ok(Step::Again)
            }
        }
    }

    fn note<'b>(&self, blocked: &'b Blocked) -> &'b Blocked {
        tracing::debug!(
            lock = self.members.list()[blocked.member].key.name(),
            ttl_ms = blocked.ttl.map(|ttl| ttl.as_millis() as u64),
            given_back = blocked.collided,
            "a member is held by another"
        );
        blocked
    }

    /// While a client itself keeps a member, or gives it back, nobody is asked.
    fn keep_off(&self, course: &mut Course) -> Result<Option<Step>> {
        for (place, member) in self.members.list().iter().enumerate() {
            let core = member.core();
            let outlook = core.holds.outlook(&member.key);
            if !outlook.has_holds {
                continue;
            }
            let standing = core.holds.standing(&member.key, self.owner);
            if !matches!(standing, Standing::Acquiring | Standing::Nothing) {
                continue;
            }
            let poll_cap = core.clock.sooner(core.settings.poll_cap);
            if let Some(kept) = outlook.kept_until {
                self.move_to(place, course)?;
                let kept = kept.since(core.clock.now());
                return Ok(Some(Step::Wait(kept.min(poll_cap))));
            }
            // A release that takes long is not waited for twice in a row.
            if outlook.releasing && course.release_awaited.take().is_none() {
                course.release_awaited = Some(self.now());
                self.move_to(place, course)?;
                return Ok(Some(Step::Wait(poll_cap)));
            }
        }
        course.release_awaited = None;
        Ok(None)
    }

    /// Others want the same members, and each got some of them. A pause by chance, longer each time,
    /// lets one of them be first.
    fn get_out_of_the_way(
        &self,
        course: &mut Course,
        blocked: &Blocked,
        took: Duration,
    ) -> Duration {
        let core = self.members.list()[blocked.member].core();
        course.lead = Some(self.members.group_of(blocked.member));
        course.seat = None;
        course.collisions = (course.collisions + 1).min(MOST_DOUBLINGS);
        let most = took.max(SHORTEST_ROUND) * (1 << course.collisions);
        core.clock.some_of(most.min(core.settings.poll_cap))
    }

    /// Waits for the member that blocks: subscribe and look again, or wait.
    async fn wait_for(&self, course: &mut Course, blocked: &Blocked) -> Result<Step> {
        let member = &self.members.list()[blocked.member];
        let core = member.core();
        course.lead = Some(self.members.group_of(blocked.member));
        self.move_to(blocked.member, course)?;
        let poll_cap = core.settings.poll_cap;
        if let Wake::Poll(backoff) = core.settings.wake {
            let pause = backoff.pause(course.attempts);
            course.attempts = course.attempts.saturating_add(1);
            return Ok(Step::Wait(core.clock.later(pause.min(poll_cap))));
        }
        // A TTL of n ms is over when n + 1 ms have passed for certain.
        let ttl = blocked
            .ttl
            .map_or(Duration::MAX, |ttl| ttl + Duration::from_millis(1));
        let pause = ttl.min(core.clock.sooner(poll_cap));
        let Some(seat) = &course.seat else {
            return Ok(Step::Again);
        };
        if seat.place.is_listening() || course.deaf_to == Some(blocked.member) {
            return Ok(Step::Wait(pause));
        }
        let until = core.clock.now() + self.left().map_or(pause, |left| left.min(pause));
        let (source, limit) = (core.server.source(), core.server.command_timeout());
        let told = tokio::select! {
            () = seat.place.subscribed(source, limit) => false,
            told = seat.place.wait(until) => {
                told.map_err(|error| self.about(seat, error))?;
                core.clock.now() < until
            }
        };
        // What was published before the subscription stood was not heard: look once more. Where it
        // cannot be had, timers have to do.
        if told || seat.place.is_listening() {
            return Ok(Step::Again);
        }
        course.deaf_to = Some(blocked.member);
        Ok(Step::Wait(until.since(core.clock.now())))
    }

    /// A caller with time left goes on trying in an outage; one without a deadline is told.
    fn meet(&self, course: &mut Course, trouble: Trouble) -> Result<Step> {
        if !trouble.error.is_retriable() {
            return Err(self.named(trouble));
        }
        let group = self.members.group_of(trouble.about.start);
        course.lead = Some(group);
        match &course.seat {
            Some(seat) if self.members.group_of(seat.member) == group => {
                seat.place.note_outage(Some(&trouble.error));
            }
            // Nobody shall wait behind it for another server.
            _ => course.seat = None,
        }
        let error = self.named(trouble);
        let Some(left) = self.left() else {
            return Err(error);
        };
        course.outage = Some(error);
        // A last attempt without time for its answer would only hide what this one met.
        let in_time = left > AFTER_AN_OUTAGE * 2;
        Ok(Step::Wait(if in_time { AFTER_AN_OUTAGE } else { left }))
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

    fn about(&self, seat: &Seat, error: Error) -> Error {
        self.members.about(seat.member..seat.member + 1, error)
    }
}

/// Pauses grow to 64 times the length of a round.
const MOST_DOUBLINGS: u32 = 6;

/// A round of this length or less is not what makes others collide.
const SHORTEST_ROUND: Duration = Duration::from_millis(1);

/// A question without an answer for this long is more than a busy server.
const SILENCE: Duration = Duration::from_millis(50);

const AFTER_AN_OUTAGE: Duration = Duration::from_millis(20);
