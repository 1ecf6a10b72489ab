//! A waiter's place in a queue on the server.

use std::sync::Arc;

use super::subscriptions::Subscription;
use crate::hold::Hold;
use crate::server::SendingPermit;

/// A place in a queue on the server.
#[derive(Clone)]
pub(crate) struct Standing {
    /// The hold that begins with the grant. Its field is the entry in the queue.
    pub(crate) hold: Arc<Hold>,
    /// Needed for a command that hands the lock to the waiter.
    pub(crate) permit: Option<SendingPermit>,
    /// The channel on which the server tells this waiter that it is its turn.
    pub(crate) channel: Arc<str>,
}

/// What a waiter has of a queue on the server. Empty for a lock without such a queue.
#[derive(Default)]
pub(super) struct Seat {
    standing: Option<Standing>,
    arrival: u64,
    subscription: Option<Subscription>,
}

impl Seat {
    pub(super) fn take(&mut self, standing: Standing, arrival: u64) {
        let channel = self.standing.as_ref().map(|old| &old.channel);
        if channel != Some(&standing.channel) {
            // It was for the messages of an earlier hold.
            self.subscription = None;
        }
        self.standing = Some(standing);
        self.arrival = arrival;
    }

    pub(super) fn leave(&mut self) {
        self.standing = None;
    }

    pub(super) fn standing(&self) -> Option<Standing> {
        self.standing.clone()
    }

    /// When it took its place.
    pub(super) fn arrival(&self) -> Option<u64> {
        self.standing.is_some().then_some(self.arrival)
    }

    pub(super) fn subscription(&self) -> Option<Subscription> {
        self.subscription.clone()
    }

    /// Keeps the subscription as long as the waiter stands.
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
