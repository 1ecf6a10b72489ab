//! What a RedLock's contender hears of the instances.

use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};

use super::acquire::RedLockCall;
use super::contender::RedLockContender;
use crate::wait::WaiterGuard;

impl RedLockContender<'_> {
    /// Hears of every instance from now on, as far as this process knows of it; one whose client was
    /// shut down is not there. True if that is news.
    pub(super) fn add_listeners(&mut self) -> bool {
        if !self.listeners.is_empty() {
            return false;
        }
        let RedLockCall { lock, owner, .. } = *self.caller;
        for (member, instance) in lock.instances().iter().enumerate() {
            if let Ok(listener) = instance.core().waiters.add_listener(instance.key(), owner) {
                self.listeners.push((member, listener));
            }
        }
        true
    }

    /// Hears the messages of every instance from now on. True if that is news: the lock may have been
    /// released before.
    pub(super) async fn listen(&mut self, waiter: &WaiterGuard) -> bool {
        let caller = self.caller;
        // In an outage, to be told of an instance that answers again.
        self.add_listeners();
        if self.listens || self.outage.is_some() {
            return false;
        }
        self.listens = true;
        let now = self.clock().now();
        waiter.promise(now + LISTENING_SOON);
        let subscriptions: FuturesUnordered<_> = self
            .listeners
            .iter()
            .map(|(member, listener)| (&caller.lock.instances()[*member], listener))
            .filter(|(instance, _)| instance.backoff().is_none())
            .map(|(instance, listener)| listener.subscribed(&instance.core().server))
            .collect();
        // An instance that does not answer is not waited for.
        let limit = caller.deadline.map_or(LISTENING_SOON, |deadline| {
            LISTENING_SOON.min(deadline.since(now))
        });
        let all = subscriptions.collect::<Vec<()>>();
        let _all_in_time = tokio::time::timeout(limit, all).await;
        true
    }
}

/// A subscription takes a round trip, or a connection to be opened.
const LISTENING_SOON: Duration = Duration::from_millis(500);
