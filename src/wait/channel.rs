//! One channel to which waiters subscribe.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::key::{ByKey, LockKey};

/// The channel of a lock. The client is subscribed to it while the lock's queue has waiters. Locks of
/// several kinds under one key may share a channel.
pub(crate) struct Channel {
    /// The lock that subscribed first. All locks of a channel have the same key.
    key: Arc<LockKey>,
    wanted: Mutex<Wanted>,
    pub(super) state: watch::Sender<SubscriptionState>,
}

/// The current subscriptions. All locks of values of a group share a channel, so there may be many locks.
struct Wanted {
    /// Those of the lock that subscribed first: most channels have only this one.
    first: usize,
    /// Those of other locks.
    others: ByKey<usize>,
}

/// The state of a subscription.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SubscriptionState {
    /// The server has not acknowledged it yet.
    Asked,
    /// The server acknowledged it: the client receives every later message.
    Listening,
    /// The connection failed. The client retries, and waiters use only timers meanwhile.
    Failed,
    /// The server refused it. The client asks again now and then, and waiters use only timers meanwhile.
    Refused,
}

impl SubscriptionState {
    /// Whether messages may have been missed.
    pub(crate) fn has_failed(self) -> bool {
        matches!(self, Self::Failed | Self::Refused)
    }
}

impl Channel {
    pub(super) fn new(key: &Arc<LockKey>) -> Self {
        Self {
            key: key.clone(),
            wanted: Mutex::new(Wanted {
                first: 1,
                others: ByKey::default(),
            }),
            state: watch::Sender::new(SubscriptionState::Asked),
        }
    }

    /// The Redis key of all its locks.
    pub(crate) fn key(&self) -> &str {
        self.key.key()
    }

    /// The locks that subscribe to it, each once.
    pub(crate) fn locks(&self) -> impl Iterator<Item = Arc<LockKey>> + use<> {
        let wanted = self.wanted.lock();
        let first = (wanted.first > 0).then(|| self.key.clone());
        let others: Vec<_> = wanted.others.keys().cloned().collect();
        first.into_iter().chain(others)
    }

    pub(super) fn want(&self, key: &Arc<LockKey>) {
        let mut wanted = self.wanted.lock();
        if *key == self.key {
            wanted.first += 1;
        } else {
            *wanted.others.entry(key.clone()).or_default() += 1;
        }
    }

    /// Removes one subscription of this lock. Returns true if it was the last one of the channel.
    pub(super) fn unsubscribe(&self, key: &LockKey) -> bool {
        let mut wanted = self.wanted.lock();
        if *key == *self.key {
            wanted.first = wanted.first.saturating_sub(1);
        } else if let Some(count) = wanted.others.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                wanted.others.remove(key);
            }
        }
        wanted.first == 0 && wanted.others.is_empty()
    }

    /// Sets the state and returns the previous one.
    pub(crate) fn set(&self, state: SubscriptionState) -> SubscriptionState {
        self.state.send_replace(state)
    }

    /// Whether this subscription needs an acknowledgement of its own, even if the server still has an earlier
    /// subscription to the same channel. The waiters of a latch use the text of its messages, so no message
    /// may be older than the subscription.
    pub(crate) fn needs_own_answer(&self) -> bool {
        self.key.kind().is_latch && self.state() == SubscriptionState::Asked
    }

    pub(crate) fn state(&self) -> SubscriptionState {
        *self.state.borrow()
    }
}
