//! One waiter, and what other parties of its client do for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::queue_entry::WaiterEntry;
use super::sign::AskedForSign;
use super::wait_request::WaitRequest;
use super::waiter_kind::WaiterKind;
use super::wake_signal::WakeSignal;
use crate::clock::{Clock, Moment};
use crate::error::Error;
use crate::hold::{Hold, TurnGuard};
use crate::server::Sent;

/// A waiter's acquire that another owner's hand-over made: granted by Redis, not yet taken by the waiter.
pub(crate) struct HandedOver {
    pub(crate) hold: Arc<Hold>,
    pub(crate) command: Option<TurnGuard>,
    pub(crate) sent: Sent,
}

/// One waiter.
pub(super) struct Waiter {
    pub(super) id: u64,
    pub(super) request: WaitRequest,
    entered: Moment,
    pub(super) woken: WakeSignal,
    /// It was woken as the contender since its last acquire began, because the lock or permits may be free.
    was_called: AtomicBool,
    /// When the last message said that the count of its latch is zero. An earlier one may be about a zero from
    /// before the wait of a caller that joined since then.
    pub(super) zero_received: Mutex<Option<Moment>>,
    pub(super) in_queue: Mutex<WaiterEntry>,
    pub(super) asked_for_sign: Mutex<AskedForSign>,
    state: Mutex<WaiterState>,
}

struct WaiterState {
    /// The latest moment of its next check-in.
    promised: Moment,
    /// Missed its check-in and lost the contender role; cleared by its next check-in.
    absent: bool,
    /// Its acquire in flight; `asked` is the moment when it was sent.
    acquire: Option<Arc<Hold>>,
    asked: Moment,
    reception: Reception,
    /// The error that ends its wait.
    failure: Option<Error>,
}

/// The state of a hand-over to this waiter.
enum Reception {
    Nothing,
    /// The command of the hand-over is in flight.
    Expected,
    /// The command of the hand-over ended without an answer: it may be granted.
    Unanswered,
    Here(HandedOver),
}

/// What a waiter finds when it checks for a hand-over.
pub(crate) enum HandOverCheck {
    Nothing,
    /// The command of the hand-over is in flight. The waiter waits for it at most until this moment.
    Expected(Moment),
    /// The command has taken too long, or ended without an answer. It may be granted to this hold, if any.
    Overdue(Option<Arc<Hold>>),
    Here(HandedOver),
}

impl Waiter {
    pub(super) fn new(id: u64, request: WaitRequest, now: Moment) -> Self {
        Self {
            id,
            request,
            entered: now,
            woken: WakeSignal::new(),
            was_called: AtomicBool::new(false),
            zero_received: Mutex::default(),
            in_queue: Mutex::default(),
            asked_for_sign: Mutex::default(),
            state: Mutex::new(WaiterState {
                promised: now,
                absent: false,
                acquire: None,
                asked: now,
                reception: Reception::Nothing,
                failure: None,
            }),
        }
    }

    pub(super) fn has_no_deadline(&self) -> bool {
        self.request.deadline.is_none()
    }

    pub(super) fn is_reader(&self) -> bool {
        matches!(self.request.kind, WaiterKind::Reader { .. })
    }

    /// It waits for one lock, as any other client in the lock's waiting list.
    pub(super) fn may_be_listed(&self) -> bool {
        self.request.terms.is_some()
    }

    pub(super) fn is_writer(&self) -> bool {
        self.request.kind == WaiterKind::Writer
    }

    /// It is a reader that has waited long enough for a writer of its client.
    pub(super) fn is_impatient(&self, now: Moment) -> bool {
        match self.request.kind {
            WaiterKind::Reader { patience } => now.since(self.entered) >= patience,
            WaiterKind::Sole | WaiterKind::Permits(_) | WaiterKind::Writer => false,
        }
    }

    pub(super) fn wake(&self) {
        self.woken.wake();
    }

    /// Waits until it is woken: at most until `until`, and at least a millisecond. It fails if the wait
    /// was ended with an error.
    pub(super) async fn wait(&self, clock: &Clock, until: Moment) -> Result<(), Error> {
        let until = until.max(clock.now() + SHORTEST);
        self.promise(until);
        self.woken.wait(clock, until).await;
        // A woken contender has one poll cap to act.
        self.promise(clock.now());
        self.failure().map_or(Ok(()), Err)
    }

    pub(super) fn promise(&self, at: Moment) {
        self.state.lock().promised = at;
    }

    /// Notes the acquire in flight, unless the lock is being handed to this waiter.
    pub(super) fn attempting(&self, hold: &Arc<Hold>, now: Moment, until: Moment) -> bool {
        let mut state = self.state.lock();
        if !matches!(state.reception, Reception::Nothing) {
            return false;
        }
        state.asked = now;
        state.promised = until;
        state.acquire = Some(hold.clone());
        self.was_called.store(false, Ordering::Relaxed);
        true
    }

    /// Notes that it is woken because the lock may be free.
    pub(super) fn note_call(&self) {
        self.was_called.store(true, Ordering::Relaxed);
    }

    /// Whether the lock may have become free since its last acquire began.
    pub(super) fn was_called(&self) -> bool {
        self.was_called.load(Ordering::Relaxed)
    }

    pub(super) fn attempted(&self) {
        self.state.lock().acquire = None;
    }

    /// Since when its acquire is in flight, and the hold of that acquire.
    pub(super) fn unanswered(&self) -> Option<(Moment, Arc<Hold>)> {
        let state = self.state.lock();
        Some((state.asked, state.acquire.clone()?))
    }

    /// For diagnostics: the state of a hand-over to it, and since when its acquire is in flight.
    pub(super) fn shown(&self, now: Moment) -> String {
        let state = self.state.lock();
        let reception = match state.reception {
            Reception::Nothing => "none",
            Reception::Expected => "expected",
            Reception::Unanswered => "unanswered",
            Reception::Here(_) => "delivered",
        };
        format!(
            "hand_over={reception} in_flight={} since={:?} check_in_due={:?} overdue={:?} absent={}",
            state.acquire.is_some(),
            now.since(state.asked),
            state.promised.since(now),
            now.since(state.promised),
            state.absent,
        )
    }

    pub(super) fn is_absent(&self) -> bool {
        self.state.lock().absent
    }

    /// Marks the waiter as alive.
    pub(super) fn appear(&self) {
        self.state.lock().absent = false;
    }

    /// Marks the waiter as absent if it missed its check-in before `overdue`. Then the caller has to undo its acquire
    /// in flight, and drops a delivered hand-over: that may run user code, so not while the queue is locked.
    pub(super) fn replace(
        &self,
        overdue: Moment,
    ) -> Option<(Option<Arc<Hold>>, Option<HandedOver>)> {
        let mut state = self.state.lock();
        if state.promised > overdue {
            return None;
        }
        state.absent = true;
        // The caller asks in its place.
        self.was_called.store(false, Ordering::Relaxed);
        Some((state.acquire.take(), state.receive()))
    }

    /// A hand-over to it is in flight or was delivered.
    pub(super) fn is_receiving(&self) -> bool {
        !matches!(self.state.lock().reception, Reception::Nothing)
    }

    /// It has not missed a check-in.
    pub(super) fn is_there(&self, overdue: Moment) -> bool {
        self.state.lock().is_there(overdue)
    }

    fn failure(&self) -> Option<Error> {
        self.state.lock().failure.take()
    }

    /// Sets the error that ends its wait when it is next woken.
    pub(super) fn set_failure(&self, error: &Error) {
        self.state.lock().failure = Some(error.clone());
    }

    /// The waiter is alive, and the lock cannot be handed to it.
    pub(super) fn asks_for_itself(&self, overdue: Moment) -> bool {
        self.request.terms.is_none() && self.state.lock().is_there(overdue)
    }

    /// Makes it expect the lock, if it wants the lock, is alive, and has no command of its own in flight.
    pub(super) fn expect(&self, now: Moment, overdue: Moment, until: Moment) -> bool {
        // A hand-over takes a round trip. One that completes after the receiver's deadline is undone,
        // and no client has the lock meanwhile.
        let in_time = |deadline| deadline > now + HAND_OVER_TIME;
        let in_time = self.request.deadline.is_none_or(in_time);
        if self.request.terms.is_none() || !in_time {
            return false;
        }
        let mut state = self.state.lock();
        let is_idle = state.acquire.is_none() && state.failure.is_none();
        if !state.is_there(overdue) || !is_idle || !matches!(state.reception, Reception::Nothing) {
            return false;
        }
        state.reception = Reception::Expected;
        state.asked = now;
        state.promised = until;
        true
    }

    /// Announces the hold of the hand-over. Returns false if the waiter does not expect it any more.
    pub(super) fn announce(&self, hold: &Arc<Hold>) -> bool {
        let mut state = self.state.lock();
        let expected = matches!(state.reception, Reception::Expected);
        if expected {
            state.acquire = Some(hold.clone());
        }
        expected
    }

    /// Delivers the lock to the waiter, or returns it if the waiter does not expect it any more.
    pub(super) fn deliver(&self, handed: HandedOver, now: Moment) -> Option<HandedOver> {
        let mut state = self.state.lock();
        if !matches!(state.reception, Reception::Expected) {
            return Some(handed);
        }
        state.reception = Reception::Here(handed);
        // The waiter has one poll cap to take it.
        state.promised = now;
        drop(state);
        self.wake();
        None
    }

    /// Withdraws the hand-over, which failed: the waiter has to contend for itself.
    pub(super) fn withdraw(&self) {
        let mut state = self.state.lock();
        if matches!(state.reception, Reception::Expected) {
            state.reception = Reception::Nothing;
            state.acquire = None;
            drop(state);
            self.wake();
        }
    }

    /// The command of the hand-over has no answer: the waiter has to query whether it was granted.
    pub(super) fn lose_answer(&self) {
        let mut state = self.state.lock();
        if matches!(state.reception, Reception::Expected) {
            state.reception = Reception::Unanswered;
            drop(state);
            self.wake();
        }
    }

    /// The state of a hand-over. `timeout` is how long its command may take.
    pub(super) fn check_reception(&self, now: Moment, timeout: Duration) -> HandOverCheck {
        let mut state = self.state.lock();
        let until = state.asked + timeout;
        match state.reception {
            Reception::Nothing => HandOverCheck::Nothing,
            Reception::Expected if now < until => HandOverCheck::Expected(until),
            Reception::Expected | Reception::Unanswered => {
                state.reception = Reception::Nothing;
                HandOverCheck::Overdue(state.acquire.take())
            }
            Reception::Here(_) => state
                .receive()
                .map_or(HandOverCheck::Nothing, HandOverCheck::Here),
        }
    }

    /// Refuses all hand-overs from now on, so that no holder picks this waiter before it has left the
    /// queue. If one was delivered already, the caller has to undo it.
    pub(super) fn decline(&self) -> Option<HandedOver> {
        let mut state = self.state.lock();
        state.absent = true;
        state.receive()
    }
}

impl WaiterState {
    /// Its next check-in was due after `overdue`, so it has not missed one.
    fn is_there(&self, overdue: Moment) -> bool {
        !self.absent && self.promised > overdue
    }

    fn receive(&mut self) -> Option<HandedOver> {
        let reception = std::mem::replace(&mut self.reception, Reception::Nothing);
        if !matches!(reception, Reception::Nothing) {
            self.acquire = None;
        }
        match reception {
            Reception::Here(handed) => Some(handed),
            Reception::Nothing | Reception::Expected | Reception::Unanswered => None,
        }
    }
}

/// The shortest wait: a TTL of zero must not cause a busy loop.
const SHORTEST: Duration = Duration::from_millis(1);

/// A waiter whose deadline comes sooner than this gets no hand-over.
const HAND_OVER_TIME: Duration = Duration::from_millis(5);
