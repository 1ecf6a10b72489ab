//! What a waiter does before its deadline where the contender of its client has no answer: the server may
//! be silent, or that contender's future stands still with the answer in its socket.

use std::time::Duration;

use super::beside::Beside;
use super::contest::{Contest, Step};
use super::{Attempted, Contender, silent_contender};
use crate::clock::Moment;
use crate::error::Result;

impl<C: Contender> Contest<C> {
    /// Leaves the question to the contender, which is another waiter. At the deadline the server would be
    /// blamed for a contender without an answer: the waiter wakes that one before, and asks the server
    /// itself if it is not polled then.
    pub(super) async fn stand_by(&mut self, now: Moment) -> Result<Step<C::Won>> {
        let later = self.poll_again(now);
        let (Some(deadline), Some(place)) = (self.deadline(), &self.place) else {
            return Ok(Step::Wait(later));
        };
        if !C::ASKS_BESIDE {
            return Ok(Step::Wait(later));
        }
        let wait = deadline.since(self.began);
        // The last quarter of the wait is for this: one half of it for the contender to be polled, the
        // other for the server to answer.
        let part = (wait / 8).min(LONGEST_PART);
        let stages = [deadline.minus(part * 2), deadline.minus(part), deadline];
        let next = stages.into_iter().find(|stage| *stage > now);
        let step = Step::Wait(next.map_or(later, |next| next.min(later)));
        if now < stages[0] {
            return Ok(step);
        }
        let Some(hold) = silent_contender(place, deadline, wait) else {
            return Ok(step);
        };
        match &self.beside {
            Beside::Nothing => {
                if let Some(turn) = hold.ask_for_a_sign() {
                    self.beside = Beside::Woken(hold, turn);
                }
            }
            Beside::Woken(woken, turn) if now >= stages[1] && !woken.gave_a_sign(*turn) => {
                // Boxed: it is large and rare, and part of every acquire otherwise.
                return Box::pin(self.ask_beside(now)).await;
            }
            // A contender that was polled waits for a silent server, and one question is enough for all.
            Beside::Woken(..) | Beside::Asked { .. } => {}
        }
        Ok(step)
    }

    /// Asks the server within the waiter's own time.
    async fn ask_beside(&mut self, now: Moment) -> Result<Step<C::Won>> {
        self.beside = Beside::Asked { is_busy: false };
        match self.contender.ask_beside(now).await? {
            Attempted::Won(won) => Ok(self.won(won)),
            Attempted::Busy { .. } => {
                self.beside = Beside::Asked { is_busy: true };
                Ok(Step::Again)
            }
            // The waiter has no answer either, which says nothing about the contender's question.
            Attempted::Failed(failed) if failed.error.is_retriable() => Ok(Step::Again),
            Attempted::Failed(failed) => Err(failed.named),
            _ => Ok(Step::Again),
        }
    }
}

/// How long a contender that was woken has until it is polled, and then the server until it answers.
const LONGEST_PART: Duration = Duration::from_millis(500);
