//! What a waiter does shortly before its deadline if its client's contender has no answer. Either the
//! server is silent, or the contender's future is not polled and the answer is unread in its socket.

use std::time::Duration;

use super::beside::Beside;
use super::contest::{Contest, Step};
use super::{Attempted, Contender, silent_contender};
use crate::clock::Moment;
use crate::error::Result;

impl<C: Contender> Contest<C> {
    /// Waits while the contender, which is another waiter, asks the server. If the contender has no answer at
    /// this waiter's deadline, the waiter would report that the server is silent. So the waiter wakes the
    /// contender earlier, and asks the server itself if the contender is still not polled.
    pub(super) async fn stand_by(&mut self, now: Moment) -> Result<Step<C::Won>> {
        let later = self.poll_again(now);
        let (Some(deadline), Some(place)) = (self.deadline(), &self.place) else {
            return Ok(Step::Wait(later));
        };
        if !C::ASKS_BESIDE {
            return Ok(Step::Wait(later));
        }
        let wait = deadline.since(self.began);
        // This uses the last quarter of the wait: one half for the contender to be polled, the other
        // half for the server to answer.
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
                if let Some(turn) = hold.request_poll() {
                    self.beside = Beside::Woken(hold, turn);
                }
            }
            Beside::Woken(woken, turn) if now >= stages[1] && !woken.was_polled_since(*turn) => {
                // Boxed because it is large and rare; unboxed it would be part of every acquire.
                return Box::pin(self.ask_beside(now)).await;
            }
            // A contender that was polled waits for a silent server. And one command of this waiter is
            // enough.
            Beside::Woken(..) | Beside::Asked { .. } => {}
        }
        Ok(step)
    }

    /// Asks the server, bounded by the waiter's own deadline.
    async fn ask_beside(&mut self, now: Moment) -> Result<Step<C::Won>> {
        self.beside = Beside::Asked { is_busy: false };
        match self.contender.ask_beside(now).await? {
            Attempted::Won(won) => Ok(self.won(won)),
            Attempted::Busy { .. } => {
                self.beside = Beside::Asked { is_busy: true };
                Ok(Step::Again)
            }
            // The waiter has no answer either. That says nothing about the contender's command.
            Attempted::Failed(failed) if failed.error.is_retriable() => Ok(Step::Again),
            Attempted::Failed(failed) => Err(failed.named),
            _ => Ok(Step::Again),
        }
    }
}

/// The time for a woken contender to be polled, and then for the server to answer.
const LONGEST_PART: Duration = Duration::from_millis(500);
