//! One channel that waiters want to hear.

use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::{SmallVec, smallvec};
use tokio::sync::watch;

use crate::key::LockKey;

/// The channel of a lock, wanted while its queue has waiters. Locks of several kinds under one key may
/// have one channel.
pub(crate) struct Channel {
    /// The lock that it was first wanted for: all are under the same key.
    key: Arc<LockKey>,
    /// A lock for each time that it is wanted now.
    wanted: Mutex<WantedChannels>,
    pub(super) heard: watch::Sender<Heard>,
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
