//! A waiter's place in a queue.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::sign::Sign;
use super::waiter::{HandOverCheck, HandedOver, Waiter};
use super::{QueueView, Waiters};
use crate::clock::Moment;
use crate::error::Error;
use crate::hold::Hold;
use crate::key::{LockKey, QueueSide};
use crate::observe::WokenBy;
use crate::server::Server;

/// A waiter's place in the queue. Dropping it leaves the queue and passes the role on.
pub(crate) struct WaiterGuard {
    pub(super) waiters: Arc<Waiters>,
    pub(super) key: Arc<LockKey>,
    pub(super) waiter: Arc<Waiter>,
    has_lock: AtomicBool,
    shares: AtomicBool,
}

/// The result of a waiter's attempt to take over the contender's role.
pub(crate) enum TakeOver {
    /// The contender keeps the role.
    Kept,
    /// The contender was woken, and keeps the role if it is polled by this moment.
    Asked(Moment),
    /// The caller has the role now. Contains the contender's acquire, if one is in flight.
    Taken(Option<Arc<Hold>>),
}

impl WaiterGuard {
    pub(super) fn new(waiters: Arc<Waiters>, key: Arc<LockKey>, waiter: Arc<Waiter>) -> Self {
        Self {
            waiters,
            key,
            waiter,
            has_lock: AtomicBool::new(false),
            shares: AtomicBool::new(false),
        }
    }

    /// Checks the queue, which marks the waiter as alive.
    pub(crate) fn check_in(&self, now: Moment) -> QueueView {
        let mut queues = self.waiters.shard(&self.key);
        let Some(queue) = queues.get_mut(&*self.key) else {
            return QueueView::default();
        };
        let is_contender = queue.may_ask(&self.waiter, now);
        // On a connection that counts as listed, a release wakes only a waiter that is in the list.
        let is_listening =
            queue.is_woken_by_a_release(&self.waiter) || self.waiter.in_queue.lock().is_listening();
        if is_contender && is_listening && !mem::replace(&mut queue.is_watched, true) {
            // It asks once more now, because messages from before the subscription were missed.
            self.waiter.note_call();
        }
        QueueView {
            is_contender,
            is_listening,
            is_listed: queue.is_listed() && self.waiter.may_be_listed(),
            second_until: queue.second_until(now),
            retreat: queue.backed_off(now),
        }
    }

    /// Waits until it is woken: at most until `until`, and at least a millisecond. It fails if the wait
    /// was ended with an error.
    pub(crate) async fn wait(&self, until: Moment) -> Result<(), Error> {
        self.waiter.wait(&self.waiters.clock, until).await
    }

    /// What ended the last wait.
    pub(crate) fn woken_by(&self) -> WokenBy {
        self.waiter.woken.woken_by()
    }

    /// The waiter checks in again by this moment, and maybe not before.
    pub(crate) fn promise(&self, until: Moment) {
        self.waiter.promise(until);
    }

    /// The state of a hand-over to this waiter.
    pub(crate) fn found(&self, now: Moment) -> HandOverCheck {
        self.waiter.check_reception(now, self.waiters.answer_time())
    }

    /// Refuses further hand-overs. If one was delivered already, the caller has to undo it.
    pub(crate) fn decline(&self) -> Option<HandedOver> {
        self.waiter.decline()
    }

    /// The waiter got the lock: when it leaves, the next waiter need not check.
    pub(crate) fn has_lock(&self) {
        self.has_lock.store(true, Ordering::Relaxed);
    }

    /// The waiter got a part of what is free: there are more permits, or others may read too. When it leaves,
    /// the next waiter has to try.
    pub(crate) fn shares(&self) {
        self.shares.store(true, Ordering::Relaxed);
    }

    /// Whether permits may have become free that the waiter did not see when it acquired its own. Called
    /// while the shard is locked, so that no wake-up comes in between.
    fn was_called_meanwhile(&self) -> bool {
        self.key.kind().permits.is_some() && self.waiter.was_called()
    }

    /// Takes the role from a contender that missed its check-in by a poll cap: its future was polled
    /// once and abandoned.
    pub(crate) fn take_over(&self, now: Moment) -> TakeOver {
        let overdue = now.minus(self.waiters.poll_cap);
        let mut queues = self.waiters.shard(&self.key);
        let Some((queue, wake_ups)) = queues.queue(&self.key) else {
            return TakeOver::Kept;
        };
        if self.key.kind().queue == QueueSide::Server {
            // A contender whose acquire is undone loses its place in the server's queue. If its future is
            // polled, only the server is silent, and the contender keeps its place.
            match queue.sign_of_contender(&self.waiter, now, overdue, wake_ups) {
                Sign::Given => return TakeOver::Kept,
                Sign::Asked(until) => return TakeOver::Asked(until),
                Sign::Missing => {}
            }
        }
        let was_writer = queue.contender.as_ref().is_some_and(|it| it.is_writer());
        let taken = queue.take_over(&self.waiter, overdue);
        if taken.is_some() {
            // It asks in place of the contender, which may have been called. If it gets a hand-over first, it passes
            // the call on.
            self.waiter.note_call();
            if was_writer {
                // If this waiter reads, the readers behind it may ask from now on, too.
                queue
                    .askers()
                    .skip(1)
                    .for_each(|reader| wake_ups.add(reader));
            }
        }
        drop(queues);
        taken.map_or(TakeOver::Kept, |(acquire, _)| TakeOver::Taken(acquire))
    }

    /// Notes the acquire in flight, so that another waiter can take over. Returns false if the acquire
    /// is not needed: the lock is being handed to this waiter.
    pub(crate) fn attempting(&self, hold: &Arc<Hold>, now: Moment) -> bool {
        let until = now + self.waiters.answer_time();
        self.waiter.attempting(hold, now, until)
    }

    /// The acquire was answered.
    pub(crate) fn attempted(&self) {
        self.waiter.attempted();
    }

    /// The contender's hold, and how long its acquire will have had no answer by `then`.
    pub(crate) fn silent_contender(&self, then: Moment) -> Option<(Duration, Arc<Hold>)> {
        let queues = self.waiters.shard(&self.key);
        queues.get(&*self.key)?.silent_contender(then)
    }

    /// Notes the outage that the contender met, if any. An outage ends all waits without a deadline at
    /// once. Otherwise each of them would detect the outage only by itself, one after another.
    pub(crate) fn note_outage(&self, outage: Option<&Error>) {
        let mut shard = self.waiters.shard(&self.key);
        if let Some((queue, wake_ups)) = shard.queue(&self.key) {
            queue.note_outage(outage, wake_ups);
        }
    }

    /// As [`WaiterGuard::note_outage`], but ends no wait yet.
    pub(crate) fn remember_outage(&self, outage: Option<&Error>) {
        let mut queues = self.waiters.shard(&self.key);
        if let Some(queue) = queues.get_mut(&*self.key) {
            queue.remember_outage(outage);
        }
    }

    /// The outage that the contender's last attempt met.
    pub(crate) fn outage(&self) -> Option<Error> {
        let queues = self.waiters.shard(&self.key);
        queues.get(&*self.key)?.outage()
    }

    /// Notes since when the contender asks several servers; `None` once it knows the outcome. A waiter that has
    /// lost the role notes nothing, because the round of the contender after it is in flight.
    pub(crate) fn note_round(&self, since: Option<Moment>) {
        let mut queues = self.waiters.shard(&self.key);
        if let Some(queue) = queues.get_mut(&*self.key)
            && queue.is_its_role(&self.waiter)
        {
            queue.round_since = since;
        }
    }

    /// Since when the contender asks several servers and does not know the outcome.
    pub(crate) fn round_since(&self) -> Option<Moment> {
        let queues = self.waiters.shard(&self.key);
        queues.get(&*self.key)?.round_since
    }

    /// Whether the client is subscribed to the lock's messages.
    pub(crate) fn is_listening(&self) -> bool {
        self.waiters.is_listening(&self.key) || self.waiter.in_queue.lock().is_listening()
    }

    /// Subscribes to the lock's messages, a subscription that its waiters share. Waits until the server
    /// acknowledges it or the subscription fails.
    ///
    /// # Cancel safety
    ///
    /// The subscription stays, and a connection attempt in flight continues.
    pub(crate) async fn subscribed(&self, server: &Server) {
        let waiter = Some(&*self.waiter);
        self.waiters.subscribed(&self.key, waiter, server).await;
    }
}

impl Drop for WaiterGuard {
    fn drop(&mut self) {
        // Another party may keep the waiter for longer, for example a hand-over whose future is not polled.
        // The subscription has to end now.
        let subscription = self.waiter.in_queue.lock().unsubscribe();
        drop(subscription);
        let mut shard = self.waiters.shard(&self.key);
        self.waiters.waiting.fetch_sub(1, Ordering::Relaxed);
        let Some((queue, wake_ups)) = shard.queue(&self.key) else {
            return;
        };
        let has_lock = *self.has_lock.get_mut();
        let is_known = queue.is_watched || self.key.kind().permits.is_none();
        let is_used_up =
            has_lock && is_known && !(*self.shares.get_mut() || self.was_called_meanwhile());
        queue.leave(&self.waiter, has_lock, is_used_up, wake_ups);
        if !queue.is_empty() {
            return;
        }
        // A call that gave up does not come back: its client must not be woken in place of others.
        if !(has_lock && queue.is_listed()) {
            shard.remove(&*self.key);
            return;
        }
        queue.linger(self.waiters.clock.now());
        drop(shard);
        self.waiters.idle.notify_one();
    }
}
