//! The waiter of a hand-over.

use std::sync::Arc;

use super::queue_entry::QueueEntry;
use super::wait_request::WaitRequest;
use super::waiter::{HandedOver, Waiter};
use crate::clock::Moment;
use crate::hold::Hold;

/// The waiter to which a lock is handed. If this is dropped, the waiter contends for itself.
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

    /// The waiter's place in a queue on the server.
    pub(crate) fn queue_entry(&self) -> Option<QueueEntry> {
        self.waiter.in_queue.lock().queue_entry()
    }

    /// Announces the hold of the hand-over. Returns false if the waiter does not expect it any more.
    pub(crate) fn announce(&self, hold: &Arc<Hold>) -> bool {
        self.waiter.announce(hold)
    }

    /// The command has no answer. The waiter's next query finds out whether it was granted.
    pub(crate) fn lose_answer(&self) {
        self.waiter.lose_answer();
    }

    /// Wakes the waiter, which then sends a query.
    pub(crate) fn wake(&self) {
        self.waiter.wake();
    }

    /// Delivers the lock to the waiter, or returns it if the waiter does not expect it any more.
    pub(crate) fn deliver(&self, handed: HandedOver, now: Moment) -> Option<HandedOver> {
        self.waiter.deliver(handed, now)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.waiter.withdraw();
    }
}
