//! This client as one of those that wait for a lock, as the server lists them: see `lua/lock/contend.lua`.

use std::sync::Arc;

use super::{Subscription, Subscriptions};
use crate::key::LockKey;

/// The channels by which an unlock wakes this client alone.
#[derive(Clone)]
pub(super) struct ListedClient {
    // Dropped in this order.
    /// While the client listens on this channel, an unlock counts on the list to wake it. So it is subscribed after
    /// the lock's channel and the client's own, and is unsubscribed before them.
    list: Subscription,
    own: Subscription,
}

impl ListedClient {
    /// Subscribes to the channels of the list with this name, for the client that is listed as `client`.
    pub(super) fn subscribe(
        subscriptions: &Arc<Subscriptions>,
        key: &Arc<LockKey>,
        list: String,
        client: &str,
    ) -> Self {
        let own = subscriptions.subscribe(key, format!("{list}:{client}"));
        let list = subscriptions.subscribe(key, list);
        Self { list, own }
    }

    /// Ends the subscription by which unlocks count on the list to wake this client. Returns the one to the
    /// client's own channel: a message may be on its way, until the server has executed the unsubscribe.
    pub(super) fn leave(self) -> Option<Subscription> {
        let Self { list, own } = self;
        drop(list);
        own.is_listening().then_some(own)
    }

    pub(super) fn is_listening(&self) -> bool {
        self.own.is_listening() && self.list.is_listening()
    }

    /// Whether the server refused one of the subscriptions.
    pub(super) fn is_refused(&self) -> bool {
        self.own.is_refused() || self.list.is_refused()
    }

    /// Waits until the server has acknowledged both subscriptions, or one of them has failed for now.
    pub(super) async fn settled(&self) {
        self.own.settled().await;
        self.list.settled().await;
    }
}
