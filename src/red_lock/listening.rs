//! The messages that a RedLock's contender listens to.

use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};

use super::acquire::RedLockCall;
use super::contender::RedLockContender;
use crate::wait::WaiterGuard;

impl RedLockContender<'_> {
    /// Adds a listener for every instance, for releases within this process. Clients that were shut
    /// down are skipped. True if the listeners are new.
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

    /// Subscribes to the messages of every instance. True if the subscription is new: the lock may have
    /// been released before it.
    pub(super) async fn listen(&mut self, waiter: &WaiterGuard) -> bool {
        let caller = self.caller;
        // Also in an outage: the listeners are notified when an instance answers again.
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
        // Do not wait for an instance that does not answer.
        let limit = caller.deadline.map_or(LISTENING_SOON, |deadline| {
            LISTENING_SOON.min(deadline.since(now))
        });
        let all = subscriptions.collect::<Vec<()>>();
        let _all_in_time = tokio::time::timeout(limit, all).await;
        true
    }
}

/// Enough for a round trip and a new connection.
const LISTENING_SOON: Duration = Duration::from_millis(500);
