//! Which channels this client's waiters want to hear, and what has become of that.
//!
//! The watchdog's thread keeps the connection and makes the server's list equal to this one.

use std::sync::{Arc, Weak};

use super::channel::{Channel, Heard};
use super::channel_list::ChannelList;
use crate::key::LockKey;

/// The channels that are wanted. No queue: a list of what shall be, bounded by the waiters.
#[derive(Default)]
pub(crate) struct Subscriptions {
    list: ChannelList,
}

/// A waiter's share in a channel. The channel is given up with the last one.
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
    /// Hears a lock on the channel of this name from now on.
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

    /// The channels that are wanted now. The watchdog's thread alone looks at their changes.
    pub(crate) fn list(&self) -> &ChannelList {
        &self.list
    }

    /// The locks that are heard on this channel.
    pub(crate) fn heard_on(&self, channel: &str) -> impl Iterator<Item = Arc<LockKey>> + use<> {
        let channel = self.list.get(channel);
        channel.map(|channel| channel.locks()).into_iter().flatten()
    }
}

impl Subscription {
    pub(crate) fn is_listening(&self) -> bool {
        self.share.channel.heard() == Heard::Listening
    }

    /// Waits until the server has acknowledged it, or it is known that it cannot for now.
    pub(crate) async fn settled(&self) {
        let mut heard = self.share.channel.heard.subscribe();
        // The sender lives as long as this share.
        let _ = heard.wait_for(|heard| *heard != Heard::Asked).await;
    }
}

impl Drop for SharedChannel {
    fn drop(&mut self) {
        let Some(subscriptions) = self.subscriptions.upgrade() else {
            return;
        };
        // Others may want the channel still: a newer queue of the same lock, or one of another kind.
        subscriptions
            .list
            .leave(&self.name, &self.channel, &self.key);
    }
}
