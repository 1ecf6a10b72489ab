//! Timers that the client's background thread runs.

use std::collections::BTreeMap;
use std::mem::take;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::clock::Moment;

/// An object with a timer.
pub(crate) trait Timed: Send + Sync {
    /// Called when the timer is due. Returns false if there is nothing to do.
    fn on_due(self: Arc<Self>) -> bool;

    /// Called when the client with this timer stops running it.
    fn on_stopped(self: Arc<Self>, key: TimerKey);
}

/// A timer's position in the list.
pub(crate) type TimerKey = (Moment, u64);

/// The timers of composite locks.
#[derive(Default)]
pub(crate) struct Timers {
    list: Mutex<List>,
    changed: Notify,
}

#[derive(Default)]
struct List {
    timers: BTreeMap<TimerKey, Arc<dyn Timed>>,
    next_id: u64,
    /// When the thread will check next. Only an earlier moment has to wake it.
    next_check: Option<Moment>,
    closed: bool,
}

impl Timers {
    /// Sets the timer to `at`, in place of its previous moment. Returns false if this client's thread
    /// has ended.
    pub(crate) fn set(
        &self,
        timed: Arc<dyn Timed>,
        key: &mut Option<TimerKey>,
        at: Moment,
    ) -> bool {
        let mut list = self.list.lock();
        if list.closed {
            return false;
        }
        let id = match key.take() {
            Some(old) => {
                list.timers.remove(&old);
                old.1
            }
            None => {
                list.next_id += 1;
                list.next_id
            }
        };
        *key = Some((at, id));
        list.timers.insert((at, id), timed);
        let is_earlier = list.next_check.is_none_or(|next_check| at < next_check);
        drop(list);
        if is_earlier {
            self.changed.notify_one();
        }
        true
    }

    /// Removes the timer.
    pub(crate) fn remove(&self, key: &mut Option<TimerKey>) {
        if let Some(key) = key.take() {
            self.list.lock().timers.remove(&key);
        }
    }

    /// The timers that are due now. Each stays in the list until its object sets a new moment.
    pub(crate) fn due(&self, now: Moment) -> Vec<Arc<dyn Timed>> {
        let list = self.list.lock();
        let due = list.timers.range(..=(now, u64::MAX));
        due.map(|(_, timed)| timed.clone()).collect()
    }

    /// The moment of the next timer. From now on, an earlier one wakes the thread.
    pub(crate) fn next(&self) -> Moment {
        let mut list = self.list.lock();
        let next = list.timers.first_key_value();
        let next = next.map_or(Moment::NEVER, |((at, _), _)| *at);
        list.next_check = Some(next);
        next
    }

    /// Completes when a timer may be due before the moment that [`Timers::next`] returned.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Called when the thread ends: other threads have to run the timers.
    pub(crate) fn close(&self) {
        let timers = {
            let mut list = self.list.lock();
            list.closed = true;
            take(&mut list.timers)
        };
        // They run other code, so the list is not locked.
        for (key, timed) in timers {
            timed.on_stopped(key);
        }
    }
}
