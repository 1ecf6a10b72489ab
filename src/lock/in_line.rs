//! The wait for a lock whose queue is on the server: each waiter enters that queue by its own command, and
//! then the contender looks for all of this client's waiters.

use std::time::Duration;

use super::contender::{LockContender, ONLY};
use crate::clock::Moment;
use crate::contend::{Attempted, QueuePlace};
use crate::error::Result;
use crate::key::QueueSide;
use crate::script::LookMode;
use crate::session::{AttemptOutcome, Claim, LookOutcome};
use crate::wait::{Called, WaiterGuard};

impl LockContender<'_> {
    /// One look from the waiter's place in the server's queue, which its first look takes.
    pub(super) async fn look(
        &mut self,
        waiter: &WaiterGuard,
        now: Moment,
    ) -> Result<Attempted<Claim>> {
        let mut acquiring = match self.spare.take() {
            Some(spare) if spare.may_look() => spare,
            ended => {
                // Dropped before the next one begins, so that its place is given back first.
                drop(ended);
                self.lose_place(waiter);
                self.in_line.begin();
                self.first()
            }
        };
        if !waiter.attempting(acquiring.hold(), now) {
            // The lock is being handed to this waiter.
            self.spare = Some(acquiring);
            return Ok(Attempted::Unasked);
        }
        let core = self.caller.core().clone();
        let mode = if self.in_line.is_taken() {
            LookMode::Again
        } else {
            LookMode::Enter
        };
        let others = match mode {
            LookMode::Again if waiter.is_contender() => waiter.keep_others(now, MOST_OTHERS),
            _ => Vec::new(),
        };
        let others: Vec<String> = others.iter().map(|hold| core.field(hold)).collect();
        let until = self.caller.until(now);
        self.promise(waiter, until);
        let looked = acquiring
            .look(mode, &others, self.caller.terms, now, until)
            .await;
        if matches!(looked, Ok(LookOutcome::Waits { .. }) | Err(_)) && acquiring.may_look() {
            // Before the end of the attempt, so that the waiter with this hold is always found. Without an
            // answer it may have a place.
            let arrival = match &looked {
                Ok(LookOutcome::Waits { arrival, .. }) => *arrival,
                _ => None,
            };
            waiter.stand(acquiring.standing(), arrival);
        }
        waiter.attempted();
        match looked {
            Ok(LookOutcome::Waits { .. }) if !acquiring.may_look() => {
                // Others took it over meanwhile, and give its place back.
                self.lose_place(waiter);
                Ok(Attempted::Again)
            }
            Ok(LookOutcome::Waits { ttl, head, .. }) => {
                self.too_late = None;
                if !self.in_line.is_hand_over_missed() {
                    acquiring.rest();
                }
                self.in_line.take(acquiring.is_certain());
                self.spare = Some(acquiring);
                let asked = head.and_then(|head| self.call(waiter, &head));
                Ok(self.waits(waiter, ttl, asked))
            }
            Ok(LookOutcome::NoPlace) => {
                // It was silent for too long, or the queue was deleted: it stands last again.
                acquiring.rest();
                self.lose_place(waiter);
                self.spare = Some(acquiring);
                Ok(Attempted::Again)
            }
            Ok(LookOutcome::Ended(outcome)) => {
                if !matches!(outcome, AttemptOutcome::Granted(_)) {
                    self.lose_place(waiter);
                }
                Ok(self.weigh(acquiring.hold(), outcome))
            }
            Err(error) => {
                if error.is_retriable() && acquiring.may_look() {
                    // The next look finds what this one may have been granted.
                    acquiring.rest();
                    self.in_line.doubt();
                    self.spare = Some(acquiring);
                } else {
                    self.lose_place(waiter);
                }
                Ok(self.failed(error, now))
            }
        }
    }

    /// How long the contender may send nothing while its own client has the lock: until its next look for all
    /// of its client's waiters.
    pub(super) fn may_be_silent(&self, place: Option<&QueuePlace>, now: Moment) -> Duration {
        match (self.caller.key.kind().queue, place) {
            (QueueSide::Server, Some(place)) => self.next_look(&place.waiter, now),
            _ => Duration::MAX,
        }
    }

    fn next_look(&self, waiter: &WaiterGuard, now: Moment) -> Duration {
        let within = self.caller.core().settings.line.silence / LOOKS;
        waiter.next_look(now, within, MOST_OTHERS)
    }

    /// What a waiter does that stands in the queue.
    /// `asked`: until when the waiter whose turn it is may show that it is there.
    fn waits(
        &self,
        waiter: &WaiterGuard,
        ttl: Option<Duration>,
        asked: Option<Moment>,
    ) -> Attempted<Claim> {
        let core = self.caller.core();
        let now = core.clock.now();
        let next = self.next_look(waiter, now);
        let is_kept = core
            .holds
            .local_holds(self.caller.key, self.caller.owner)
            .kept_until
            .is_some();
        let is_contender = waiter.is_contender();
        if is_contender && !is_kept {
            let ttl = ttl.map_or(next, |ttl| ttl.min(next));
            return Attempted::Busy {
                at: ONLY,
                ttl: Some(ttl),
            };
        }
        // The contender looks for all, or this client has the lock: its release wakes the next waiter.
        let mut pause = core.clock.sooner(core.settings.poll_cap);
        if is_contender {
            pause = pause.min(next);
        }
        let again = now + pause;
        Attempted::Taken {
            again: Some(asked.map_or(again, |asked| asked.min(again))),
        }
    }

    /// The lock is free, and it is the turn of the waiter with this field. Returns until when that waiter may
    /// show that it is there, if it has missed its check-in.
    fn call(&self, waiter: &WaiterGuard, head: &str) -> Option<Moment> {
        let core = self.caller.core();
        let key = self.caller.key;
        let number = core.number_of(head);
        // Without one it is another client's. Or this client has given its place back, or its presence ends.
        let hold = number.and_then(|number| core.holds.numbered(key, number))?;
        match waiter.call(&hold, core.clock.now()) {
            // Its future is not polled.
            Called::Absent => core.abandon(&hold),
            Called::Asked(until) => return Some(until),
            // It is woken; or it has just left, and gives its place back.
            Called::Here | Called::Unknown => {}
        }
        None
    }

    fn lose_place(&mut self, waiter: &WaiterGuard) {
        self.in_line.lose();
        waiter.lose_place();
    }
}

/// How many waiters one look keeps present.
const MOST_OTHERS: usize = 100;

/// Each waiter is kept present this often while it may be silent.
const LOOKS: u32 = 4;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt;

    use crate::clock::Clock;
    use crate::key::{LockKey, kind};
    use crate::owner::Owner;
    use crate::session::disconnected;
    use crate::wait::{Line, WaitRequest};

    /// The channels of a fair lock are those of its waiters. On another one there is no message, and the other
    /// waiters would not subscribe to their own.
    #[tokio::test]
    async fn a_waiter_without_a_place_in_the_servers_queue_does_not_subscribe() {
        let core = disconnected(&Clock::default());
        let key = Arc::new(LockKey::new(&kind::FAIR, "l", None).unwrap());
        let request = WaitRequest {
            owner: Owner::new(),
            terms: None,
            deadline: None,
            line: Line::Sole,
        };
        let waiter = core.waiters.enter(&key, request, core.clock.now()).unwrap();
        let settled = waiter.subscribed(&core.server).now_or_never();
        let names = core.waiters.subscriptions().list().names();
        assert_eq!((settled, names), (Some(()), Vec::new()));
    }
}
