//! A waiter's place in a queue on the server.

use std::sync::Arc;

use super::subscriptions::Subscription;
use crate::hold::Hold;
use crate::server::SendingPermit;

/// A place in a queue on the server.
#[derive(Clone)]
pub(crate) struct QueueEntry {
    /// The hold that begins with the grant. Its field is the entry in the queue.
    pub(crate) hold: Arc<Hold>,
    /// Needed for a command that hands the lock to the waiter.
    pub(crate) permit: Option<SendingPermit>,
    /// The channel on which this waiter is notified that it is first.
    pub(crate) channel: Arc<str>,
}

/// A waiter's place in a queue on the server, and its subscription. Empty for a lock without such a queue.
#[derive(Default)]
pub(super) struct WaiterEntry {
    entry: Option<QueueEntry>,
    arrival: u64,
    subscription: Option<Subscription>,
}

impl WaiterEntry {
    pub(super) fn take(&mut self, entry: QueueEntry, arrival: u64) {
        let channel = self.entry.as_ref().map(|old| &old.channel);
        if channel != Some(&entry.channel) {
            // The subscription is to the channel of an earlier hold.
            self.subscription = None;
        }
        self.entry = Some(entry);
        self.arrival = arrival;
    }

    pub(super) fn leave(&mut self) {
        self.entry = None;
    }

    pub(super) fn queue_entry(&self) -> Option<QueueEntry> {
        self.entry.clone()
    }

    /// When it took its place.
    pub(super) fn arrival(&self) -> Option<u64> {
        self.entry.is_some().then_some(self.arrival)
    }

    pub(super) fn subscription(&self) -> Option<Subscription> {
        self.subscription.clone()
    }

    /// Keeps the subscription while the waiter is in the queue.
    pub(super) fn listen(&mut self, subscription: Subscription) {
        self.subscription = Some(subscription);
    }

    /// Ends the subscription: the waiter leaves.
    pub(super) fn unsubscribe(&mut self) -> Option<Subscription> {
        self.subscription.take()
    }

    pub(super) fn is_listening(&self) -> bool {
        let subscription = self.subscription.as_ref();
        subscription.is_some_and(Subscription::is_listening)
    }
}
