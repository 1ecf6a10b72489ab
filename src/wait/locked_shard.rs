//! A shard of a client's queues, locked.

use std::ops::{Deref, DerefMut};

use parking_lot::MutexGuard;

use super::queue::WaitQueue;
use super::wake_ups::WakeUps;
use crate::key::{ByKey, LockKey};

/// The queues of one shard, locked. Waiters are woken after the shard is unlocked.
pub(super) struct LockedShard<'a> {
    // Fields are dropped in this order.
    queues: MutexGuard<'a, ByKey<WaitQueue>>,
    wake_ups: WakeUps,
}

impl<'a> LockedShard<'a> {
    pub(super) fn new(queues: MutexGuard<'a, ByKey<WaitQueue>>) -> Self {
        Self {
            queues,
            wake_ups: WakeUps::default(),
        }
    }

    /// The lock's queue, and the list of waiters to wake.
    pub(super) fn queue(&mut self, key: &LockKey) -> Option<(&mut WaitQueue, &mut WakeUps)> {
        let queue = self.queues.get_mut(key)?;
        Some((queue, &mut self.wake_ups))
    }

    /// Calls `what` for every queue.
    pub(super) fn each(&mut self, mut what: impl FnMut(&WaitQueue, &mut WakeUps)) {
        for queue in self.queues.values() {
            what(queue, &mut self.wake_ups);
        }
    }
}

impl Deref for LockedShard<'_> {
    type Target = ByKey<WaitQueue>;

    fn deref(&self) -> &Self::Target {
        &self.queues
    }
}

impl DerefMut for LockedShard<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.queues
    }
}
