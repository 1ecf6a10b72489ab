//! The calls of a waiter that has a place in a queue on the server.

use std::sync::Arc;
use std::time::Duration;

use super::WaiterGuard;
use super::queue_entry::QueueEntry;
use super::queue_places::Called;
use crate::clock::Moment;
use crate::hold::Hold;

impl WaiterGuard {
    /// The waiter has a place in the server's queue, which it took at `arrival` if that is known. The first
    /// of this client's waiters there is the contender.
    pub(crate) fn take_place(&self, entry: QueueEntry, arrival: Option<u64>) {
        let mut queues = self.waiters.shard(&self.key);
        if let Some(queue) = queues.get_mut(&*self.key) {
            let now = self.waiters.clock.now();
            queue.take_place(&self.waiter, entry, arrival, now);
        }
    }

    /// The waiter has no place in the server's queue any more.
    pub(crate) fn lose_place(&self) {
        let mut queues = self.waiters.shard(&self.key);
        if let Some((queue, wake_ups)) = queues.queue(&self.key) {
            queue.lose_place(&self.waiter, wake_ups);
        }
    }

    /// Whether this waiter has the contender's role.
    pub(crate) fn is_contender(&self) -> bool {
        let queues = self.waiters.shard(&self.key);
        let queue = queues.get(&*self.key);
        queue.is_some_and(|queue| queue.is_its_role(&self.waiter))
    }

    /// The holds of further waiters that a query at `now` keeps present, up to `most`: those that have a place
    /// in the server's queue and have not missed a check-in.
    pub(crate) fn keep_others_present(&self, now: Moment, most: usize) -> Vec<Arc<Hold>> {
        let overdue = now.minus(self.waiters.poll_cap);
        let mut queues = self.waiters.shard(&self.key);
        let queue = queues.get_mut(&*self.key);
        queue.map_or_else(Vec::new, |queue| {
            queue.keep_others_present(&self.waiter, now, overdue, most)
        })
    }

    /// How long the contender may wait before its next query. Each query keeps up to `most` further waiters
    /// present, and each waiter has to be kept present once `within` this time.
    pub(crate) fn next_query(&self, now: Moment, within: Duration, most: usize) -> Duration {
        let queues = self.waiters.shard(&self.key);
        let queue = queues.get(&*self.key);
        let due = queue.and_then(|queue| queue.query_due(within, most));
        due.map_or(Duration::ZERO, |due| due.since(now))
    }

    /// Makes the waiter with this hold the contender and wakes it: the server named it as the first in its
    /// queue.
    pub(crate) fn call(&self, hold: &Arc<Hold>, now: Moment) -> Called {
        let overdue = now.minus(self.waiters.poll_cap);
        let mut queues = self.waiters.shard(&self.key);
        match queues.queue(&self.key) {
            Some((queue, wake_ups)) => queue.call(hold, now, overdue, wake_ups),
            None => Called::Unknown,
        }
    }
}
