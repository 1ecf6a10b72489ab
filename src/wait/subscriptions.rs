//! Which channels this client's waiters want to hear, and what has become of that.
//!
//! The watchdog's thread keeps the connection and makes the server's list equal to this one.

use std::sync::{Arc, Weak};

use tokio::sync::watch;

use super::channels::ChannelList;
use crate::key::LockKey;

/// The channels that are wanted. No queue: a list of what shall be, bounded by the waiters.
#[derive(Default)]
pub(crate) struct Subscriptions {
    list: ChannelList,
}

/// One lock's channel, wanted while its queue has waiters.
pub(crate) struct Channel {
    key: Arc<LockKey>,
    heard: watch::Sender<Heard>,
}

/// What has become of a wish to hear a channel.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Heard {
    /// The server has not acknowledged it yet.
    Asked,
    /// The server acknowledged it: every later message will come.
    Listening,
    /// It cannot be had for now; timers alone will do.
    Deaf,
}

/// A waiter's share in a channel. The channel is given up with the last one.
#[derive(Clone)]
pub(crate) struct Subscription {
    share: Arc<Share>,
}

struct Share {
    channel: Arc<Channel>,
    subscriptions: Weak<Subscriptions>,
}

impl Subscriptions {
    pub(crate) fn subscribe(self: &Arc<Self>, key: &Arc<LockKey>) -> Subscription {
        let channel = Arc::new(Channel::new(key));
        self.list.insert(key.channel(), channel.clone());
        Subscription {
            share: Arc::new(Share {
                channel,
                subscriptions: Arc::downgrade(self),
            }),
        }
    }

    /// The channels that are wanted now. The watchdog's thread alone looks at their changes.
    pub(crate) fn list(&self) -> &ChannelList {
        &self.list
    }

    /// The lock whose channel this is, if it is wanted.
    pub(crate) fn key_of(&self, channel: &str) -> Option<Arc<LockKey>> {
        let channel = self.list.get(channel)?;
        Some(channel.key.clone())
    }
}

impl Channel {
    pub(super) fn new(key: &Arc<LockKey>) -> Self {
        Self {
            key: key.clone(),
            heard: watch::Sender::new(Heard::Asked),
        }
    }

    pub(crate) fn key(&self) -> &LockKey {
        &self.key
    }

    /// What was known of it before.
    pub(crate) fn set(&self, heard: Heard) -> Heard {
        self.heard.send_replace(heard)
    }

    pub(crate) fn heard(&self) -> Heard {
        *self.heard.borrow()
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

impl Drop for Share {
    fn drop(&mut self) {
        let Some(subscriptions) = self.subscriptions.upgrade() else {
            return;
        };
        // A newer queue of the same lock may have asked for the channel again.
        let name = self.channel.key.channel();
        subscriptions.list.remove_this(&name, &self.channel);
    }
}
