//! One waiter, and what others of its client do for it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::{Clock, Moment};
use crate::error::Error;
use crate::hold::{Hold, Terms, TurnGuard};
use crate::owner::Owner;
use crate::server::Sent;

/// What a waiter waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitRequest {
    pub(crate) owner: Owner,
    /// The hold it wants; none if the lock cannot be handed to it, because it wants others at the
    /// same time, or only waits for the end of a release.
    pub(crate) terms: Option<Terms>,
    /// When it will have gone, if it does not wait for ever.
    pub(crate) deadline: Option<Moment>,
}

/// A waiter's acquire that somebody else's hand-over did: granted by Redis, not taken in yet.
pub(crate) struct HandedOver {
    pub(crate) hold: Arc<Hold>,
    pub(crate) command: Option<TurnGuard>,
    pub(crate) sent: Sent,
}

/// One waiter.
pub(super) struct Waiter {
    pub(super) id: u64,
    pub(super) request: WaitRequest,
    told: Notify,
    state: Mutex<WaiterState>,
}

struct WaiterState {
    /// When it means to look again at the latest.
    promised: Moment,
    /// It broke its promise and lost the role; cleared by its next sign of life.
    absent: bool,
    /// Its acquire that is under way, and since when.
    acquire: Option<Arc<Hold>>,
    asked: Moment,
    reception: Reception,
    /// What ends its wait.
    failure: Option<Error>,
}

/// Whether a holder hands the lock to this waiter.
enum Reception {
    Nothing,
    /// The command for it is under way.
    Expected,
    Here(HandedOver),
}

/// What a waiter finds when it looks whether the lock is handed to it.
pub(crate) enum Found {
    Nothing,
    /// The command for it is under way; it is not waited for beyond this.
    Expected(Moment),
    /// The command for it is under way for too long: this hold of it is to be undone.
    Overdue(Option<Arc<Hold>>),
    Here(HandedOver),
}

impl Waiter {
    pub(super) fn new(id: u64, request: WaitRequest, now: Moment) -> Self {
        Self {
            id,
            request,
            told: Notify::new(),
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

    pub(super) fn wake(&self) {
        self.told.notify_one();
    }

    /// Waits until it is told to look, but not beyond `until`; at least a millisecond. The error
    /// is one that ends the wait.
    pub(super) async fn wait(&self, clock: &Clock, until: Moment) -> Result<(), Error> {
        let until = until.max(clock.now() + SHORTEST);
        self.promise(until);
        tokio::select! {
            biased;
            () = self.told.notified() => {}
            () = clock.sleep_until(until), if !mutant!("no_timer") => {}
        }
        // A woken contender has a poll cap to do what it was woken for.
        self.promise(clock.now());
        self.failure().map_or(Ok(()), Err)
    }

    pub(super) fn promise(&self, at: Moment) {
        self.state.lock().promised = at;
    }

    /// Notes its acquire, unless the lock is being handed to it.
    pub(super) fn attempting(&self, hold: &Arc<Hold>, now: Moment, until: Moment) -> bool {
        let mut state = self.state.lock();
        if !matches!(state.reception, Reception::Nothing) {
            return false;
        }
        state.asked = now;
        state.promised = until;
        state.acquire = Some(hold.clone());
        true
    }

    pub(super) fn attempted(&self) {
        self.state.lock().acquire = None;
    }

    /// Since when its acquire is under way, and which hold that is.
    pub(super) fn unanswered(&self) -> Option<(Moment, Arc<Hold>)> {
        let state = self.state.lock();
        Some((state.asked, state.acquire.clone()?))
    }

    /// What it waits for, and since when or how long.
    pub(super) fn shown(&self, now: Moment) -> String {
        let state = self.state.lock();
        let reception = match state.reception {
            Reception::Nothing => "nothing",
            Reception::Expected => "a hand-over",
            Reception::Here(_) => "its own look at a hand-over",
        };
        format!(
            "expects {reception}, asks={} for {:?}, looks in {:?}, overdue by {:?}, absent={}",
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

    /// It shows that it is there.
    pub(super) fn appear(&self) {
        self.state.lock().absent = false;
    }

    /// Counts as absent if it promised to look before `overdue`: then its acquire that is under way,
    /// if there is one, is somebody else's to undo.
    pub(super) fn replace(&self, overdue: Moment) -> Option<Option<Arc<Hold>>> {
        let mut state = self.state.lock();
        if state.promised > overdue {
            return None;
        }
        state.absent = true;
        state.reception = Reception::Nothing;
        Some(state.acquire.take())
    }

    fn failure(&self) -> Option<Error> {
        self.state.lock().failure.take()
    }

    /// Ends its wait with this, once it is told.
    pub(super) fn set_failure(&self, error: &Error) {
        self.state.lock().failure = Some(error.clone());
    }

    /// It is there, and the lock cannot be handed to it.
    pub(super) fn asks_for_itself(&self, overdue: Moment) -> bool {
        self.request.terms.is_none() && self.state.lock().is_there(overdue)
    }

    /// Lets it expect the lock, if it wants it, is there, and has no command of its own under way.
    pub(super) fn expect(&self, now: Moment, overdue: Moment, until: Moment) -> bool {
        // A hand-over takes a round trip. One that comes after the receiver's deadline is undone, and
        // nobody has the lock meanwhile.
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

    /// Says which hold it will be. False if it does not wait for it any more.
    pub(super) fn announce(&self, hold: &Arc<Hold>) -> bool {
        let mut state = self.state.lock();
        let expected = matches!(state.reception, Reception::Expected);
        if expected {
            state.acquire = Some(hold.clone());
        }
        expected
    }

    /// Hands the lock to it, or gives it back if it does not wait for it any more.
    pub(super) fn deliver(&self, handed: HandedOver, now: Moment) -> Option<HandedOver> {
        let mut state = self.state.lock();
        if !matches!(state.reception, Reception::Expected) {
            return Some(handed);
        }
        state.reception = Reception::Here(handed);
        // It has a poll cap to take it in.
        state.promised = now;
        drop(state);
        self.wake();
        None
    }

    /// The hand-over came to nothing: it has to contend for itself.
    pub(super) fn withdraw(&self) {
        let mut state = self.state.lock();
        if matches!(state.reception, Reception::Expected) {
            state.reception = Reception::Nothing;
            state.acquire = None;
            drop(state);
            self.wake();
        }
    }

    /// What has come of a hand-over that is given `patience`.
    pub(super) fn look(&self, now: Moment, patience: Duration) -> Found {
        let mut state = self.state.lock();
        let until = state.asked + patience;
        match state.reception {
            Reception::Nothing => Found::Nothing,
            Reception::Expected if now < until => Found::Expected(until),
            Reception::Expected => {
                state.reception = Reception::Nothing;
                Found::Overdue(state.acquire.take())
            }
            Reception::Here(_) => state.receive().map_or(Found::Nothing, Found::Here),
        }
    }

    /// Expects nothing any more, now or later: until it has left the queue, no holder may pick it.
    /// What was handed to it already is for the caller to undo.
    pub(super) fn decline(&self) -> Option<HandedOver> {
        let mut state = self.state.lock();
        state.absent = true;
        state.receive()
    }
}

impl WaiterState {
    /// It looked after `overdue`, as it had promised.
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
            Reception::Nothing | Reception::Expected => None,
        }
    }
}

/// The waiter that a lock is handed to. Dropped, it contends for itself.
pub(crate) struct Receiver {
    waiter: Arc<Waiter>,
}

impl Receiver {
    pub(super) fn new(waiter: Arc<Waiter>) -> Self {
        Self { waiter }
    }

    pub(crate) fn request(&self) -> &WaitRequest {
        &self.waiter.request
    }

    /// Says which hold it will be. False if it does not wait for it any more.
    pub(crate) fn announce(&self, hold: &Arc<Hold>) -> bool {
        self.waiter.announce(hold)
    }

    /// Hands the lock to it, or gives it back if it does not wait for it any more.
    pub(crate) fn deliver(&self, handed: HandedOver, now: Moment) -> Option<HandedOver> {
        self.waiter.deliver(handed, now)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.waiter.withdraw();
    }
}

/// No wait is shorter: a TTL of nothing must not become a busy loop.
const SHORTEST: Duration = Duration::from_millis(1);

/// A lock is handed to no waiter whose deadline comes sooner.
const HAND_OVER_TIME: Duration = Duration::from_millis(5);
