//! The listeners of a queue: they are woken without waiting in it.

use std::sync::Arc;

use super::queue::WaitQueue;
use super::waiter::Waiter;
use crate::clock::Moment;

impl WaitQueue {
    pub(super) fn add_listener(&mut self, waiter: Arc<Waiter>) {
        self.idle_since = None;
        // It asks for several locks, and takes no place in the list of one of them.
        self.unlist();
        self.listening_in.insert(waiter.id, waiter);
    }

    /// Notes for the listeners of a latch that its count is zero.
    pub(super) fn note_zero(&self, now: Moment) {
        for waiter in self.listening_in.values() {
            // The first moment stays: it counts for all waiters.
            let _ = waiter.zero_received.set(now);
        }
    }

    pub(super) fn has_listeners(&self) -> bool {
        !self.listening_in.is_empty()
    }

    pub(super) fn remove_listener(&mut self, waiter: &Waiter) {
        self.listening_in.remove(&waiter.id);
    }
}
