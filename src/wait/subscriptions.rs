//! Which channels this client's waiters want to hear, and what has become of that.
//!
//! The watchdog's thread keeps the connection and makes the server's list equal to this one.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::key::LockKey;

/// The channels that are wanted. No queue: a list of what shall be, bounded by the waiters.
#[derive(Default)]
pub(crate) struct Subscriptions {
    wanted: Mutex<HashMap<String, Arc<Channel>>>,
    changed: Notify,
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
        let channel = Arc::new(Channel {
            key: key.clone(),
            heard: watch::Sender::new(Heard::Asked),
        });
        self.wanted.lock().insert(key.channel(), channel.clone());
        self.changed.notify_one();
        Subscription {
            share: Arc::new(Share {
                channel,
                subscriptions: Arc::downgrade(self),
            }),
        }
    }

    /// The channels that are wanted now.
    pub(crate) fn wanted(&self) -> HashMap<String, Arc<Channel>> {
        self.wanted.lock().clone()
    }

    /// The lock whose channel this is, if it is wanted.
    pub(crate) fn key_of(&self, channel: &str) -> Option<Arc<LockKey>> {
        let wanted = self.wanted.lock();
        wanted.get(channel).map(|channel| channel.key.clone())
    }

    /// Ends when the list may have changed since the last look.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Notes what became of every wish at once.
    pub(crate) fn set_all(&self, heard: Heard) {
        for channel in self.wanted.lock().values() {
            channel.set(heard);
        }
    }
}

impl Channel {
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
        let mut wanted = subscriptions.wanted.lock();
        // A newer queue of the same lock may have asked for the channel again.
        let name = self.channel.key.channel();
        if wanted
            .get(&name)
            .is_some_and(|found| Arc::ptr_eq(found, &self.channel))
        {
            wanted.remove(&name);
        }
        drop(wanted);
        subscriptions.changed.notify_one();
    }
}
