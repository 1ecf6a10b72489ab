//! The channels to which this client's waiters want to be subscribed, and their states.
//!
//! The watchdog's thread owns the connection and makes the server's list equal to this one.

use std::sync::{Arc, Weak};

use super::channel::{Channel, SubscriptionState};
use super::channel_list::ChannelList;
use crate::key::LockKey;

/// The wanted channels. Not a queue of changes but a list of the wanted state, so the number of waiters
/// bounds it.
#[derive(Default)]
pub(crate) struct Subscriptions {
    list: ChannelList,
}

/// A waiter's share of a channel. The channel is unsubscribed with the last share.
#[derive(Clone)]
pub(crate) struct Subscription {
    share: Arc<SharedChannel>,
}

struct SharedChannel {
    key: Arc<LockKey>,
    name: String,
    channel: Arc<Channel>,
    subscriptions: Weak<Subscriptions>,
}

impl Subscriptions {
    /// Subscribes a lock to the channel of this name.
    pub(crate) fn subscribe(self: &Arc<Self>, key: &Arc<LockKey>, name: String) -> Subscription {
        let channel = self.list.want(&name, key);
        Subscription {
            share: Arc::new(SharedChannel {
                key: key.clone(),
                name,
                channel,
                subscriptions: Arc::downgrade(self),
            }),
        }
    }

    /// The wanted channels. Only the watchdog's thread consumes the changes of this list.
    pub(crate) fn list(&self) -> &ChannelList {
        &self.list
    }

    /// The locks that are subscribed to this channel.
    pub(crate) fn locks_on(&self, channel: &str) -> impl Iterator<Item = Arc<LockKey>> + use<> {
        let channel = self.list.get(channel);
        channel.map(|channel| channel.locks()).into_iter().flatten()
    }
}

impl Subscription {
    pub(crate) fn is_listening(&self) -> bool {
        self.share.channel.state() == SubscriptionState::Listening
    }

    /// Whether the server refused it, for example because the user may not subscribe to the channel.
    pub(super) fn is_refused(&self) -> bool {
        self.share.channel.state() == SubscriptionState::Refused
    }

    /// Waits until the server has acknowledged the subscription, or the subscription has failed for
    /// now.
    pub(crate) async fn settled(&self) {
        let mut state = self.share.channel.state.subscribe();
        // The sender lives as long as this share.
        let _ = state
            .wait_for(|state| *state != SubscriptionState::Asked)
            .await;
    }
}

impl Drop for SharedChannel {
    fn drop(&mut self) {
        let Some(subscriptions) = self.subscriptions.upgrade() else {
            return;
        };
        // Other shares may still need the channel: a newer queue of the same lock, or a lock of another
        // kind.
        subscriptions
            .list
            .leave(&self.name, &self.channel, &self.key);
    }
}
