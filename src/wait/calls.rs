//! Waking waiters when no lock is held.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::MutexGuard;
use smallvec::SmallVec;

use super::queue::Queue;
use super::ticket::Ticket;
use crate::error::Error;
use crate::key::{ByKey, LockKey};

/// Waiters that are to look, told when this is dropped.
///
/// To tell one runs its waker, which is the user's code: it may poll a future of this client on the
/// spot, and take as long as it likes. So this is dropped where no lock is held.
#[derive(Default)]
pub(super) struct Calls {
    tickets: SmallVec<[Arc<Ticket>; 1]>,
}

impl Calls {
    pub(super) fn tell(&mut self, ticket: &Arc<Ticket>) {
        self.tickets.push(ticket.clone());
    }

    /// Ends its wait.
    pub(super) fn fail(&mut self, ticket: &Arc<Ticket>, error: &Error) {
        ticket.set_failure(error);
        self.tell(ticket);
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        for ticket in &self.tickets {
            ticket.tell();
        }
    }
}

/// The queues of one shard, locked; whom that calls is told after they are unlocked.
pub(super) struct Shard<'a> {
    // Dropped in this order.
    queues: MutexGuard<'a, ByKey<Queue>>,
    calls: Calls,
}

impl<'a> Shard<'a> {
    pub(super) fn new(queues: MutexGuard<'a, ByKey<Queue>>) -> Self {
        Self {
            queues,
            calls: Calls::default(),
        }
    }

    /// The lock's queue, and where it notes whom it calls.
    pub(super) fn queue(&mut self, key: &LockKey) -> Option<(&mut Queue, &mut Calls)> {
        let queue = self.queues.get_mut(key)?;
        Some((queue, &mut self.calls))
    }

    /// Does this to every queue.
    pub(super) fn each(&mut self, mut what: impl FnMut(&Queue, &mut Calls)) {
        for queue in self.queues.values() {
            what(queue, &mut self.calls);
        }
    }
}

impl Deref for Shard<'_> {
    type Target = ByKey<Queue>;

    fn deref(&self) -> &Self::Target {
        &self.queues
    }
}

impl DerefMut for Shard<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.queues
    }
}
