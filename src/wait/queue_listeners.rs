//! The listeners of a queue: they are woken without waiting in it.

use std::sync::Arc;

use super::queue::WaitQueue;
use super::waiter::Waiter;
use crate::clock::Moment;

impl WaitQueue {
    pub(super) fn add_listener(&mut self, waiter: Arc<Waiter>) {
        self.idle_since = None;
        // It asks for several locks, and takes no place in the list of one of them.
        self.unlist();
        self.listeners.insert(waiter.id, waiter);
    }

    /// Notes for the listeners of a latch that its count is zero.
    pub(super) fn note_zero(&self, now: Moment) {
        for waiter in self.listeners.values() {
            *waiter.zero_received.lock() = Some(now);
        }
    }

    pub(super) fn has_listeners(&self) -> bool {
        !self.listeners.is_empty()
    }

    pub(super) fn remove_listener(&mut self, waiter: &Waiter) {
        self.listeners.remove(&waiter.id);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uuid::Uuid;

    use super::*;
    use crate::clock::Clock;
    use crate::key::{LockKey, kind};
    use crate::owner::Owner;
    use crate::wait::Waiters;

    /// CL2: two zeros come while a query is in flight. The second one ends the wait of a caller that joined
    /// after the first one.
    #[test]
    fn the_last_zero_counts() {
        let cap = Duration::from_secs(60);
        let waiters = Waiters::new(Uuid::nil(), Clock::default(), cap, 10, true);
        let waiters = Arc::new(waiters);
        let key = Arc::new(LockKey::new(&kind::LATCH, "start", None).unwrap());
        let listener = waiters.add_listener(&key, Owner::new()).unwrap();
        assert_eq!(listener.zero_received(), None);
        let first = waiters.clock.now();
        let last = first + cap * 2;
        for at in [first, last] {
            let queues = waiters.shard(&key);
            queues.get(&*key).expect("it has a listener").note_zero(at);
            drop(queues);
        }
        assert_eq!(listener.zero_received(), Some(last));
    }
}
