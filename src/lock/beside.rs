//! What a waiter does before its deadline where the contender of its client has no answer: the server may
//! be silent, or that contender's future stands still with the answer in its socket.

use std::sync::Arc;
use std::time::Duration;

use super::acquire::Caller;
use super::contend::SILENCE;
use super::contest::{Contest, Step};
use crate::clock::Moment;
use crate::error::Result;
use crate::hold::{Hold, Seen};
use crate::session::{Acquiring, Attempt};
use crate::wait::Place;

/// What a waiter knows of a contender without an answer.
#[derive(Default)]
pub(super) enum Beside {
    #[default]
    Nothing,
    /// The contender's future was woken, in this turn of its hold.
    Woken(Arc<Hold>, Seen),
    /// The waiter has asked the server itself.
    Asked { is_busy: bool },
}

impl Beside {
    /// The server has told the waiter itself that somebody else has the lock.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self, Self::Asked { is_busy: true })
    }
}

impl Caller<'_> {
    /// Leaves the question to the contender, which is another waiter. At the deadline the server would be
    /// blamed for a contender without an answer: the waiter wakes that one before, and asks the server
    /// itself if it is not polled then.
    pub(super) async fn stand_by(
        &self,
        place: &Place,
        contest: &mut Contest,
        now: Moment,
        later: Moment,
    ) -> Result<Step> {
        let Some(deadline) = self.deadline else {
            return Ok(Step::Wait(later));
        };
        let wait = deadline.since(self.began);
        let part = (wait / 8).min(LONGEST_PART);
        let stages = [deadline.minus(part * 2), deadline.minus(part), deadline];
        let next = stages.into_iter().find(|stage| *stage > now);
        let step = Step::Wait(next.map_or(later, |next| next.min(later)));
        if now < stages[0] {
            return Ok(step);
        }
        let silent = place.silent_contender(deadline);
        let Some((_, hold)) = silent.filter(|(silence, _)| *silence >= SILENCE.max(wait / 2))
        else {
            return Ok(step);
        };
        match &contest.beside {
            Beside::Nothing => {
                if let Some(turn) = hold.ask_for_a_sign() {
                    contest.beside = Beside::Woken(hold, turn);
                }
            }
            Beside::Woken(woken, turn) if now >= stages[1] && !woken.gave_a_sign(*turn) => {
                // Boxed: it is large and rare, and part of every acquire otherwise.
                return Box::pin(self.ask_beside(place, contest, now)).await;
            }
            Beside::Woken(..) | Beside::Asked { .. } => {}
        }
        Ok(step)
    }

    /// Asks the server within the waiter's own time.
    async fn ask_beside(&self, place: &Place, contest: &mut Contest, now: Moment) -> Result<Step> {
        contest.beside = Beside::Asked { is_busy: false };
        let mut acquiring = Acquiring::first(self.session, self.key, self.owner);
        match acquiring.attempt(self.terms, now, self.until(now)).await {
            Ok(Attempt::Granted(claim)) => {
                place.has_lock();
                return Ok(Step::Acquired(claim));
            }
            Ok(Attempt::Busy(_)) => contest.beside = Beside::Asked { is_busy: true },
            Ok(_) => {}
            // The waiter has no answer either.
            Err(error) if error.is_retriable() => {}
            Err(error) => return Err(error),
        }
        Ok(Step::Again)
    }
}

/// How long a contender that was woken has until it is polled, and then the server until it answers.
const LONGEST_PART: Duration = Duration::from_millis(500);
