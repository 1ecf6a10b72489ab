//! What a waiter does about a member that it cannot have now.

use std::time::Duration;

use super::acquire::Call;
use super::round::{Blocked, Trouble};
use super::wait::{Course, SILENCE, Step};
use crate::error::Result;
use crate::hold::Standing;

impl Call<'_> {
    /// While a client itself keeps a member, or gives it back, nobody is asked.
    pub(super) fn keep_off(&self, course: &mut Course) -> Result<Option<Step>> {
        // A release that takes long is not waited for twice in a row, whichever member's it is: two
        // that nobody finishes would be waited for in turns, without end.
        let has_waited = course.release_awaited.take().is_some();
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
                if self.move_to(place, course)? {
                    return Ok(Some(Step::Again));
                }
                let kept = kept.since(core.clock.now());
                return Ok(Some(Step::Wait(kept.min(poll_cap))));
            }
            if outlook.releasing && !has_waited {
                if self.move_to(place, course)? {
                    return Ok(Some(Step::Again));
                }
                course.release_awaited = Some(self.now());
                return Ok(Some(Step::Wait(poll_cap)));
            }
        }
        Ok(None)
    }

    /// Waits for the member that blocks: subscribe and look again, or wait. `heard` is the member whose
    /// messages were heard while all were asked.
    pub(super) async fn wait_for(
        &self,
        course: &mut Course,
        blocked: &Blocked,
        heard: Option<usize>,
    ) -> Result<Step> {
        let member = &self.members.list()[blocked.member];
        let core = member.core();
        course.lead = Some(self.members.group_of(blocked.member));
        self.move_to(blocked.member, course)?;
        let poll_cap = core.settings.poll_cap;
        if let Some(backoff) = core.backoff(&member.key) {
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
        if [heard, course.deaf_to].contains(&Some(blocked.member)) {
            return Ok(Step::Wait(pause));
        }
        let until = core.clock.now() + self.left().map_or(pause, |left| left.min(pause));
        let told = tokio::select! {
            () = seat.place.subscribed(&core.server) => false,
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

    /// Others want the same members, and each got some of them. A pause by chance, longer each time,
    /// lets one of them be first.
    pub(super) fn get_out_of_the_way(
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
        core.clock.some_of(most.min(LONGEST_PAUSE))
    }

    /// A caller with time left goes on trying in an outage; one without a deadline returns the error.
    /// `took` is how long the round took that met it.
    pub(super) fn meet(
        &self,
        course: &mut Course,
        trouble: Trouble,
        took: Duration,
    ) -> Result<Step> {
        if !trouble.error.is_retriable() {
            return Err(self.named(trouble));
        }
        let group = self.members.group_of(trouble.about.start);
        course.lead = Some(group);
        let was_patient = trouble.was_patient;
        let was_cut_off = !was_patient && trouble.error.is_timeout() && took < SILENCE;
        match &course.seat {
            // The end of the wait came between the question and its answer: what was known before is
            // the last that is known.
            Some(_) if was_cut_off => return Ok(Step::Wait(Duration::ZERO)),
            Some(seat) if self.members.group_of(seat.member) == group => {
                if was_patient {
                    seat.place.note_outage(Some(&trouble.error));
                } else {
                    // Those behind it have more patience, and find out for themselves.
                    seat.place.remember_outage(Some(&trouble.error));
                }
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

    /// Takes a place in the queue of this member. False if it had it already: then it was told of all
    /// that happened since.
    fn move_to(&self, member: usize, course: &mut Course) -> Result<bool> {
        let seat = course.seat.as_ref();
        if seat.is_some_and(|seat| seat.member == member) {
            return Ok(false);
        }
        // It leaves before it comes, so that one wait counts as one.
        course.seat = None;
        course.seat = Some(self.seat(member)?);
        Ok(true)
    }
}

/// Pauses grow to 64 times the length of a round.
const MOST_DOUBLINGS: u32 = 6;

const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A round of this length or less is not what makes others collide.
const SHORTEST_ROUND: Duration = Duration::from_millis(1);

const AFTER_AN_OUTAGE: Duration = Duration::from_millis(20);
