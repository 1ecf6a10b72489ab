//! Notifications about a lock without a place in its queue.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Waiters;
use super::listed::ListedClient;
use super::wait_request::WaitRequest;
use super::waiter::Waiter;
use super::waiter_kind::WaiterKind;
use crate::clock::Moment;
use crate::error::Error;
use crate::key::{LockKey, QueueSide};
use crate::owner::Owner;
use crate::server::Server;

/// Is woken when a lock may be free, without a place in the lock's queue. For calls that acquire
/// several locks together: such a call may acquire this lock long after it became free, and must not
/// delay other waiters. Unregistered on drop.
pub(crate) struct Listener {
    waiters: Arc<Waiters>,
    key: Arc<LockKey>,
    pub(super) waiter: Arc<Waiter>,
}

impl Waiters {
    /// Registers a listener for the lock.
    pub(crate) fn add_listener(
        self: &Arc<Self>,
        key: &Arc<LockKey>,
        owner: Owner,
    ) -> Result<Listener, Error> {
        let key = match key.queue_key() {
            Cow::Borrowed(_) => key.clone(),
            Cow::Owned(queue_key) => Arc::new(queue_key),
        };
        let mut queues = self.queues_of(&key)?;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let request = WaitRequest {
            owner,
            terms: None,
            deadline: None,
            kind: WaiterKind::Sole,
        };
        let waiter = Arc::new(Waiter::new(id, request, self.clock.now()));
        let queue = queues.entry(key.clone()).or_default();
        queue.add_listener(waiter.clone());
        drop(queues);
        Ok(Listener {
            waiters: self.clone(),
            key,
            waiter,
        })
    }

    /// See [`WaiterGuard::subscribed`](super::WaiterGuard::subscribed). A `waiter` with a place in a queue on
    /// the server has a channel of its own.
    pub(super) async fn subscribed(
        self: &Arc<Self>,
        key: &Arc<LockKey>,
        waiter: Option<&Waiter>,
        server: &Server,
    ) {
        let own = waiter.and_then(|waiter| Some((waiter, waiter.in_queue.lock().queue_entry()?)));
        if own.is_none() && key.kind().queue == QueueSide::Server {
            // A waiter without a place has no channel: the lock's channel is only the prefix of the
            // waiters' channels, and nothing is published on it.
            return;
        }
        let own = own.map(|(waiter, entry)| (waiter, entry.channel.to_string()));
        let Some(channel) = own
            .as_ref()
            .map(|own| own.1.clone())
            .or_else(|| key.channel())
        else {
            return;
        };
        // Before the subscription is listed: if the watchdog sees a subscription that no waiter opens a
        // connection for, it opens one itself.
        let opening = if server.is_cluster() {
            // On a cluster the client's background thread has a connection to each server.
            None
        } else {
            self.messages.begin(self)
        };
        let mut listed = None;
        let subscription = if let Some((waiter, _)) = own {
            let known = waiter.in_queue.lock().subscription();
            known.unwrap_or_else(|| {
                let subscription = self.subscriptions.subscribe(key, channel);
                waiter.in_queue.lock().listen(subscription.clone());
                subscription
            })
        } else {
            let mut queues = self.shard(key);
            let Some(queue) = queues.get_mut(&**key) else {
                return;
            };
            let subscription = queue.subscription(|| self.subscriptions.subscribe(key, channel));
            let list = self.list_of(key);
            let is_one = waiter.is_some_and(Waiter::may_be_listed) && !queue.has_listeners();
            match list {
                Some(list) if is_one => {
                    let client = key.listed_as(self.client);
                    let subscribe =
                        || ListedClient::subscribe(&self.subscriptions, key, list, &client);
                    listed = Some(queue.listed(subscribe));
                }
                _ => queue.unlist(),
            }
            subscription
        };
        if let Some(opening) = opening {
            opening.begin(server);
        }
        subscription.settled().await;
        if let Some(listed) = listed {
            listed.settled().await;
            // A client that listens on the list's channel and not on the lock's would hide another waiter from
            // an unlock, which compares their listeners.
            if subscription.is_refused() || listed.is_refused() {
                self.refuse_lists();
            }
        }
    }
}

impl Listener {
    /// Waits until the lock may be free: at most until `until`, and at least a millisecond. It fails if
    /// the client is shut down.
    pub(crate) async fn wait(&self, until: Moment) -> Result<(), Error> {
        self.waiter.wait(&self.waiters.clock, until).await
    }

    /// Ends the current wait, or else the next one.
    pub(crate) fn wake(&self) {
        self.waiter.wake();
    }

    /// When the last message said that the count of the latch is zero.
    pub(crate) fn zero_received(&self) -> Option<Moment> {
        *self.waiter.zero_received.lock()
    }

    /// See [`WaiterGuard::subscribed`](super::WaiterGuard::subscribed).
    ///
    /// # Cancel safety
    ///
    /// The subscription stays, and a connection attempt in flight continues.
    pub(crate) async fn subscribed(&self, server: &Server) {
        self.waiters.subscribed(&self.key, None, server).await;
    }
}

impl Listener {
    /// Unregisters the listener: it gets no further message.
    pub(crate) fn leave(&self) {
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

impl Drop for Listener {
    fn drop(&mut self) {
        self.leave();
    }
}
