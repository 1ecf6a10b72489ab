//! Which channels this client's waiters want to hear, and what has become of that.
//!
//! The watchdog's thread keeps the connection and makes the server's list equal to this one.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use smallvec::{SmallVec, smallvec};
use tokio::sync::watch;

use super::channels::ChannelList;
use crate::key::LockKey;

/// The channels that are wanted. No queue: a list of what shall be, bounded by the waiters.
#[derive(Default)]
pub(crate) struct Subscriptions {
    list: ChannelList,
}

/// The channel of a lock, wanted while its queue has waiters. Locks of several kinds under one key may
/// have one channel.
pub(crate) struct Channel {
    /// The lock that it was first wanted for: all are under the same key.
    key: Arc<LockKey>,
    /// A lock for each time that it is wanted now.
    wanted: Mutex<WantedChannels>,
    heard: watch::Sender<Heard>,
}

type WantedChannels = SmallVec<[Arc<LockKey>; 1]>;

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

impl Channel {
    pub(super) fn new(key: &Arc<LockKey>) -> Self {
        Self {
            key: key.clone(),
            wanted: Mutex::new(smallvec![key.clone()]),
            heard: watch::Sender::new(Heard::Asked),
        }
    }

    /// The key in Redis of all its locks.
    pub(crate) fn key(&self) -> &str {
        self.key.key()
    }

    /// The locks that it is wanted for, each once.
    pub(crate) fn locks(&self) -> impl Iterator<Item = Arc<LockKey>> + use<> {
        let mut locks = WantedChannels::new();
        for key in &*self.wanted.lock() {
            if !locks.contains(key) {
                locks.push(key.clone());
            }
        }
        locks.into_iter()
    }

    pub(super) fn want(&self, key: &Arc<LockKey>) {
        self.wanted.lock().push(key.clone());
    }

    /// It is not wanted so often any more. True if it was the last time.
    pub(super) fn unsubscribe(&self, key: &LockKey) -> bool {
        let mut wanted = self.wanted.lock();
        if let Some(place) = wanted.iter().position(|one| **one == *key) {
            wanted.remove(place);
        }
        wanted.is_empty()
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
