//! Waking waiters when no lock is held.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::MutexGuard;
use smallvec::SmallVec;

use super::queue::WaitQueue;
use super::waiter::Waiter;
use crate::error::Error;
use crate::key::{ByKey, LockKey};

/// Waiters that are to look, told when this is dropped.
///
/// To tell one runs its waker, which is the user's code: it may poll a future of this client on the
/// spot, and take as long as it likes. So this is dropped where no lock is held.
#[derive(Default)]
pub(super) struct WakeUps {
    tickets: SmallVec<[Arc<Waiter>; 1]>,
}

impl WakeUps {
    pub(super) fn add(&mut self, waiter: &Arc<Waiter>) {
        self.tickets.push(waiter.clone());
    }

    /// Ends its wait.
    pub(super) fn fail(&mut self, waiter: &Arc<Waiter>, error: &Error) {
        waiter.set_failure(error);
        self.add(waiter);
    }
}

impl Drop for WakeUps {
    fn drop(&mut self) {
        for waiter in &self.tickets {
            waiter.wake();
        }
    }
}

/// The queues of one shard, locked; whom that calls is told after they are unlocked.
pub(super) struct LockedShard<'a> {
    // Dropped in this order.
    queues: MutexGuard<'a, ByKey<WaitQueue>>,
    calls: WakeUps,
}

impl<'a> LockedShard<'a> {
    pub(super) fn new(queues: MutexGuard<'a, ByKey<WaitQueue>>) -> Self {
        Self {
            queues,
            calls: WakeUps::default(),
        }
    }

    /// The lock's queue, and where it notes whom it calls.
    pub(super) fn queue(&mut self, key: &LockKey) -> Option<(&mut WaitQueue, &mut WakeUps)> {
        let queue = self.queues.get_mut(key)?;
        Some((queue, &mut self.calls))
    }

    /// Does this to every queue.
    pub(super) fn each(&mut self, mut what: impl FnMut(&WaitQueue, &mut WakeUps)) {
        for queue in self.queues.values() {
            what(queue, &mut self.calls);
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
