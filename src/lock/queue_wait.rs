//! A call that waits for a lock whose queue is on the server: each waiter enters that queue by its own
//! command, and then the contender queries for all of this client's waiters.

use std::sync::Arc;
use std::time::Duration;

use super::place_in_queue::PlaceInQueue;
use crate::clock::Moment;
use crate::contend::Attempted;
use crate::error::Error;
use crate::hold::{Hold, Terms};
use crate::key::LockKey;
use crate::owner::Owner;
use crate::script::QueryMode;
use crate::session::{AttemptOutcome, Core, PendingAcquire, QueueOutcome, Session};
use crate::wait::{Called, HandedOver, WaiterGuard};

/// The acquire of a call that waits in a lock's queue on the server. It keeps its hold, and so its field in the
/// queue, until it is granted or given up.
#[derive(Default)]
pub(crate) struct QueueWait {
    waiting: Option<PendingAcquire>,
    /// What is known of its place.
    place: PlaceInQueue,
}

/// What the call waits for.
pub(crate) struct QueueCall<'a> {
    pub(crate) session: &'a Arc<Session>,
    pub(crate) key: &'a Arc<LockKey>,
    pub(crate) owner: Owner,
    pub(crate) terms: &'a Terms,
    /// The number of the queue, for the wait loop.
    pub(crate) at: usize,
}

/// The result of a query.
pub(crate) enum QueryResult<W> {
    /// The wait continues.
    Waits(Attempted<W>),
    /// The acquire of this hold is complete.
    Ended(Arc<Hold>, AttemptOutcome),
    Failed(Error),
}

impl QueueWait {
    /// Sends one query at `now`. The first one takes a place in the server's queue.
    ///
    /// # Cancel safety
    ///
    /// The effect of the command is undone in the background, when this value is dropped.
    pub(crate) async fn query<W>(
        &mut self,
        call: &QueueCall<'_>,
        waiter: &WaiterGuard,
        now: Moment,
        until: Moment,
    ) -> QueryResult<W> {
        let mut acquiring = match self.waiting.take() {
            Some(waiting) if waiting.may_query() => waiting,
            ended => {
                // Dropped before the next one begins, so that its place is given up first.
                drop(ended);
                self.lose_place(waiter);
                self.place.begin();
                PendingAcquire::first(call.session, call.key, call.owner)
            }
        };
        if !waiter.attempting(acquiring.hold(), now) {
            // The lock is being handed to this waiter.
            self.waiting = Some(acquiring);
            return QueryResult::Waits(Attempted::Unasked);
        }
        let core = call.session.core();
        let mode = if self.place.is_taken() {
            QueryMode::Again
        } else {
            QueryMode::Enter
        };
        let others = match mode {
            QueryMode::Again if waiter.is_contender() => {
                waiter.keep_others_present(now, MOST_OTHERS)
            }
            _ => Vec::new(),
        };
        let others: Vec<String> = others.iter().map(|hold| core.field(hold)).collect();
        if let Some(answered_by) = core.answered_by(until) {
            // Replicas must acknowledge the acquire, so it may take longer than usual.
            waiter.promise(answered_by);
        }
        let result = acquiring.query(mode, &others, call.terms, now, until).await;
        if matches!(result, Ok(QueueOutcome::Waits { .. }) | Err(_)) && acquiring.may_query() {
            // Before the end of the attempt, so that the waiter with this hold is always found. Without an
            // answer it may have a place.
            let arrival = match &result {
                Ok(QueueOutcome::Waits { arrival, .. }) => *arrival,
                _ => None,
            };
            waiter.take_place(acquiring.queue_entry(), arrival);
        }
        waiter.attempted();
        match result {
            Ok(QueueOutcome::Waits { .. }) if !acquiring.may_query() => {
                // Another party took the acquire over meanwhile, and gives its place up.
                self.lose_place(waiter);
                QueryResult::Waits(Attempted::Again)
            }
            Ok(QueueOutcome::Waits { ttl, head, .. }) => {
                if !self.place.is_hand_over_missed() {
                    acquiring.rest();
                }
                self.place.take(acquiring.is_certain());
                self.waiting = Some(acquiring);
                let asked = head.and_then(|head| called(call, waiter, &head));
                QueryResult::Waits(waits(call, waiter, ttl, asked))
            }
            Ok(QueueOutcome::NoPlace) => {
                // It sent no query for too long, or the queue was deleted. The next query enters at the end.
                acquiring.rest();
                self.lose_place(waiter);
                self.waiting = Some(acquiring);
                QueryResult::Waits(Attempted::Again)
            }
            Ok(QueueOutcome::Ended(outcome)) => {
                if !matches!(outcome, AttemptOutcome::Granted(_)) {
                    self.lose_place(waiter);
                }
                QueryResult::Ended(acquiring.hold().clone(), outcome)
            }
            Err(error) => {
                if error.is_retriable() && acquiring.may_query() {
                    // The next query finds what this one may have been granted.
                    acquiring.rest();
                    self.place.doubt();
                    self.waiting = Some(acquiring);
                } else {
                    self.lose_place(waiter);
                }
                QueryResult::Failed(error)
            }
        }
    }

    /// Whether the waiter has to query by itself: see [`PlaceInQueue::asks_at_once`].
    pub(crate) fn asks_at_once(&self) -> bool {
        self.place.asks_at_once()
    }

    /// Gives the place back. The call leaves this queue, or enters it again at its end.
    pub(crate) fn give_up(&mut self, waiter: &WaiterGuard) {
        *self = Self::default();
        waiter.lose_place();
    }

    /// Whether this hold is the one that waits.
    pub(super) fn is_for(&self, hold: &Arc<Hold>) -> bool {
        let waiting = self.waiting.as_ref();
        waiting.is_some_and(|waiting| Arc::ptr_eq(waiting.hold(), hold))
    }

    /// Takes the waiting acquire, and returns it if the hand-over granted it. Otherwise the acquire is dropped,
    /// which gives its place up.
    pub(super) fn receive(&mut self, handed: &HandedOver) -> Option<PendingAcquire> {
        let is_granted = self.is_for(&handed.hold);
        let mut granted = self.waiting.take().filter(|_| is_granted)?;
        granted.received(handed.sent.clone());
        Some(granted)
    }

    /// A hand-over to its hold had no answer: the next query finds whether it was granted.
    pub(super) fn miss_hand_over(&mut self) {
        self.place.miss_hand_over();
    }

    fn lose_place(&mut self, waiter: &WaiterGuard) {
        self.place.lose();
        waiter.lose_place();
    }
}

/// How long the contender may send nothing while its own client has the lock: until its next query for all
/// of its client's waiters.
pub(crate) fn next_query(core: &Core, waiter: &WaiterGuard, now: Moment) -> Duration {
    let within = core.settings.queue_timeouts.fair_absence / QUERIES_PER_ABSENCE;
    waiter.next_query(now, within, MOST_OTHERS)
}

/// How a waiter in the queue continues. `asked`: the moment by which the first waiter in the queue has to be
/// polled, if that one missed its check-in.
fn waits<W>(
    call: &QueueCall<'_>,
    waiter: &WaiterGuard,
    ttl: Option<Duration>,
    asked: Option<Moment>,
) -> Attempted<W> {
    let core = call.session.core();
    let now = core.clock.now();
    let next = next_query(core, waiter, now);
    let local = core.holds.local_holds(call.key, call.owner);
    let is_kept = local.kept_until.is_some();
    let is_contender = waiter.is_contender();
    if is_contender && !is_kept {
        let ttl = ttl.map_or(next, |ttl| ttl.min(next));
        return Attempted::Busy {
            at: call.at,
            ttl: Some(ttl),
        };
    }
    // The contender queries for all, or this client has the lock: its release wakes the next waiter.
    let mut pause = core.clock.jitter_down(core.settings.poll_cap);
    if is_contender {
        pause = pause.min(next);
    }
    let again = now + pause;
    Attempted::Taken {
        again: Some(asked.map_or(again, |asked| asked.min(again))),
    }
}

/// Wakes the waiter with this field: it is the first in the queue, and the lock is free. If that waiter missed
/// its check-in, returns the moment by which it has to be polled.
fn called(call: &QueueCall<'_>, waiter: &WaiterGuard, head: &str) -> Option<Moment> {
    let core = call.session.core();
    let number = core.number_of(head);
    // Without a number the waiter is another client's. Without a hold this client has given the place back, or
    // the presence of the place will end.
    let hold = number.and_then(|number| core.holds.numbered(call.key, number))?;
    match waiter.call(&hold, core.clock.now()) {
        // Its future is not polled.
        Called::Absent => core.abandon(&hold),
        Called::Asked(until) => return Some(until),
        // It is woken; or it has just left, and gives its place up.
        Called::Here | Called::Unknown => {}
    }
    None
}

/// How many waiters one query keeps present.
const MOST_OTHERS: usize = 100;

/// Each waiter is kept present this often while it may be silent.
const QUERIES_PER_ABSENCE: u32 = 4;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt;

    use crate::clock::Clock;
    use crate::key::{LockKey, kind};
    use crate::owner::Owner;
    use crate::session::disconnected;
    use crate::wait::{WaitRequest, WaiterKind};

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
            kind: WaiterKind::Sole,
        };
        let waiter = core.waiters.enter(&key, request, core.clock.now()).unwrap();
        let settled = waiter.subscribed(&core.server).now_or_never();
        let names = core.waiters.subscriptions().list().names();
        assert_eq!((settled, names), (Some(()), Vec::new()));
    }
}
