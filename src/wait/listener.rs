//! Hearing of a lock without a place in its queue.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Waiters;
use super::waiter::{WaitRequest, Waiter};
use crate::clock::Moment;
use crate::error::Error;
use crate::key::LockKey;
use crate::owner::Owner;
use crate::server::Server;

/// Hears when a lock may be free, and waits for it in nobody's way: for those who want it together with
/// others only, which may be long after it is free. Gone when dropped.
pub(crate) struct Listener {
    waiters: Arc<Waiters>,
    key: Arc<LockKey>,
    pub(super) waiter: Arc<Waiter>,
}

impl Waiters {
    /// Hears of the lock from now on.
    pub(crate) fn add_listener(
        self: &Arc<Self>,
        key: &Arc<LockKey>,
        owner: Owner,
    ) -> Result<Listener, Error> {
        let mut queues = self.queues_of(key)?;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let request = WaitRequest {
            owner,
            terms: None,
            deadline: None,
        };
        let waiter = Arc::new(Waiter::new(id, request, self.clock.now()));
        let queue = queues.entry(key.clone()).or_default();
        queue.add_listener(waiter.clone());
        drop(queues);
        Ok(Listener {
            waiters: self.clone(),
            key: key.clone(),
            waiter,
        })
    }

    /// See [`Place::subscribed`](super::WaiterGuard::subscribed).
    pub(super) async fn subscribed(self: &Arc<Self>, key: &Arc<LockKey>, server: &Server) {
        let Some(channel) = key.channel() else {
            return;
        };
        // Before the wish can be seen: who sees it and finds nobody at it opens a connection.
        let opening = if server.is_cluster() {
            // The client's own thread has a connection to each of its servers.
            None
        } else {
            self.messages.begin(self)
        };
        let subscription = {
            let mut queues = self.shard(key);
            let Some(queue) = queues.get_mut(&**key) else {
                return;
            };
            queue.subscription(|| self.subscriptions.subscribe(key, channel))
        };
        if let Some(opening) = opening {
            opening.begin(server);
        }
        subscription.settled().await;
    }
}

impl Listener {
    /// Waits until the lock may be free, but not beyond `until`; at least a millisecond. The error is
    /// the client's end.
    pub(crate) async fn wait(&self, until: Moment) -> Result<(), Error> {
        self.waiter.wait(&self.waiters.clock, until).await
    }

    /// See [`Place::subscribed`](super::WaiterGuard::subscribed).
    ///
    /// # Cancel safety
    ///
    /// The subscription stays, and a connection that is being opened is opened all the same.
    pub(crate) async fn subscribed(&self, server: &Server) {
        self.waiters.subscribed(&self.key, server).await;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut queues = self.waiters.shard(&self.key);
        let Some(queue) = queues.get_mut(&*self.key) else {
            return;
        };
        queue.remove_listener(&self.waiter);
        if queue.is_empty() {
            queues.remove(&*self.key);
        }
    }
}
