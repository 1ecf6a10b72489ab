//! This client in the waiting lists of locks, which are on the server: see `lua/lock/contend.lua` and
//! `lua/lock/unlock.lua`.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Waiters;
use super::queue::WaitQueue;
use super::queue_listed::LINGER;
use crate::clock::Moment;
use crate::key::LockKey;

impl Waiters {
    /// A release woke this client, or the one before it in the waiting list. See `lua/lock/unlock.lua`.
    pub(super) fn handle_call(&self, key: &LockKey, text: &[u8]) {
        if let Some((queue, wake_ups)) = self.shard(key).queue(key) {
            match text {
                b"1" => queue.be_called(wake_ups),
                b"2" => queue.be_second(self.clock.now() + HEAD_START, wake_ups),
                _ => {}
            }
        }
    }

    /// This client released the lock, which woke one client. If that was not this client, the other one is to
    /// get the lock.
    pub(crate) fn leave_to_others(&self, key: &LockKey) {
        if let Some(queue) = self.shard(key).get_mut(key) {
            queue.leave_to_others(self.clock.now() + HEAD_START);
        }
    }

    /// The lock's waiting list, unless the server has refused its use lately.
    pub(crate) fn list_of(&self, key: &LockKey) -> Option<String> {
        if !self.has_lists || self.are_lists_refused() {
            return None;
        }
        key.waiting_list()
    }

    fn are_lists_refused(&self) -> bool {
        let until = Moment(self.lists_refused_until.load(Ordering::Relaxed));
        until != Moment(0) && self.clock.now() < until
    }

    /// The server did not allow the use of a waiting list. The next try is far off, because each one is an entry in
    /// the server's log of refusals. Until then a release wakes this client together with all others.
    pub(crate) fn refuse_lists(&self) {
        // Of many commands that are refused together, the first one unlists all queues.
        if self.are_lists_refused() {
            return;
        }
        let until = self.clock.now() + REFUSED_FOR;
        self.lists_refused_until.store(until.0, Ordering::Relaxed);
        for shard in &self.shards {
            shard.lock().values_mut().for_each(WaitQueue::unlist);
        }
    }

    /// Removes queues that were kept without waiters, with their subscriptions. Never returns.
    pub(crate) async fn end_idle(&self) {
        loop {
            self.idle.notified().await;
            let mut has_idle = true;
            while has_idle {
                tokio::time::sleep(LINGER).await;
                let now = self.clock.now();
                has_idle = false;
                for shard in &self.shards {
                    let mut queues = shard.lock();
                    queues.retain(|_, queue| !queue.has_lingered(now));
                    has_idle |= queues.values().any(WaitQueue::is_idle);
                }
            }
        }
    }

    /// Whether this client is subscribed to the lock's messages, and not listed as waiting.
    pub(crate) fn listens_unlisted(&self, key: &LockKey) -> bool {
        self.shard(key)
            .get(key)
            .is_some_and(|queue| queue.is_listening() && !queue.is_listed())
    }
}

/// How long a client that was woken alone is left alone with the free lock. It needs a message, the wake-up of a task
/// and a command. If it is dead or frozen, the lock is free for this long.
const HEAD_START: Duration = Duration::from_millis(20);

const REFUSED_FOR: Duration = Duration::from_secs(600);
