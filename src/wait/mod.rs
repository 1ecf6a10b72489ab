//! This client's waiters: one queue for each lock, first in, first out.
//!
//! Only the contender, as a rule the head, talks to Redis (design: invariant 9). The others wait
//! for the role, which is passed on when its bearer leaves, for whatever reason, or does not look
//! after it.

mod backoff;
mod ear;
mod messages;
mod queue;
mod subscriptions;
mod ticket;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Clock, Moment};
use crate::error::Error;
use crate::hold::Hold;
use crate::key::{ByKey, LockKey};
use crate::owner::Owner;
use crate::server::Server;

pub use backoff::{Backoff, Wake};
pub(crate) use ear::Ear;
pub(crate) use messages::{Line, Messages, open as open_messages};
use queue::{Queue, Retreat};
pub(crate) use subscriptions::{Channel, Heard, Subscription, Subscriptions};
use ticket::Ticket;
pub(crate) use ticket::{Found, Handed, Receiver, Wish};

/// Every waiter of one client.
pub(crate) struct Waiters {
    clock: Clock,
    poll_cap: Duration,
    limit: usize,
    next_id: AtomicU64,
    queues: Mutex<Queues>,
    subscriptions: Arc<Subscriptions>,
    messages: Messages,
}

#[derive(Default)]
struct Queues {
    by_key: ByKey<Queue>,
    waiting: usize,
    /// Set once, by the client's shutdown.
    closed: bool,
}

impl Waiters {
    pub(crate) fn new(clock: Clock, poll_cap: Duration, limit: usize) -> Self {
        Self {
            clock,
            poll_cap,
            limit,
            next_id: AtomicU64::new(1),
            queues: Mutex::default(),
            subscriptions: Arc::default(),
            messages: Messages::default(),
        }
    }

    pub(crate) fn messages(&self) -> &Messages {
        &self.messages
    }

    pub(crate) fn subscriptions(&self) -> &Arc<Subscriptions> {
        &self.subscriptions
    }

    /// Takes the last place in the lock's queue.
    pub(crate) fn enter(
        self: &Arc<Self>,
        key: &Arc<LockKey>,
        wish: Wish,
        now: Moment,
    ) -> Result<Place, Error> {
        let mut queues = self.queues.lock();
        if queues.closed {
            return Err(Error::Closed);
        }
        if queues.waiting >= self.limit {
            return Err(Error::TooManyWaiters { limit: self.limit });
        }
        queues.waiting += 1;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let ticket = Arc::new(Ticket::new(id, wish, now));
        queues
            .by_key
            .entry(key.clone())
            .or_default()
            .push(ticket.clone());
        Ok(Place {
            waiters: self.clone(),
            key: key.clone(),
            ticket,
            has_lock: AtomicBool::new(false),
        })
    }

    /// Whether anybody of this client waits for the lock.
    pub(crate) fn is_awaited(&self, key: &LockKey) -> bool {
        let queues = self.queues.lock();
        queues.by_key.get(key).is_some_and(Queue::is_awaited)
    }

    /// Lets the lock's contender try: it may have become free.
    pub(crate) fn wake(&self, key: &LockKey) {
        if let Some(queue) = self.queues.lock().by_key.get(key) {
            queue.wake_contender();
        }
    }

    /// Lets the contender of every lock try.
    pub(crate) fn wake_all(&self) {
        for queue in self.queues.lock().by_key.values() {
            queue.wake_contender();
        }
    }

    /// Lets the lock's contender try, unless this message is one that it leaves to other clients.
    pub(crate) fn hear(&self, key: &LockKey) {
        if let Some(queue) = self.queues.lock().by_key.get_mut(key) {
            queue.hear(self.clock.now());
        }
    }

    /// Picks the waiter to hand the lock to, and lets it expect that. None if nobody waits who can
    /// take it.
    pub(crate) fn receiver(&self, key: &LockKey, now: Moment) -> Option<Receiver> {
        let overdue = now.minus(self.poll_cap);
        let mut queues = self.queues.lock();
        let queue = queues.by_key.get_mut(key)?;
        let ticket = queue.receiver(now, overdue, now + self.answer_time())?;
        Some(Receiver::new(ticket))
    }

    /// Leaves a lock that is about to be released to other clients, so many if their number is known:
    /// until they had it, or for a moment.
    pub(crate) fn stay_out(&self, key: &LockKey, others: Option<u32>, now: Moment) {
        if let Some(queue) = self.queues.lock().by_key.get_mut(key) {
            queue.stay_out(others, now + LONGEST_RETREAT);
        }
    }

    /// Whether this client hears the lock's messages.
    pub(crate) fn is_listening(&self, key: &LockKey) -> bool {
        let queues = self.queues.lock();
        queues.by_key.get(key).is_some_and(Queue::is_listening)
    }

    /// An answer may take this long before an acquire counts as left.
    fn answer_time(&self) -> Duration {
        self.poll_cap.max(SLOW_ANSWER)
    }

    /// Lets all waiters of `owner` look: it holds the lock now, so they re-enter.
    pub(crate) fn wake_owner(&self, key: &LockKey, owner: Owner) {
        if let Some(queue) = self.queues.lock().by_key.get(key) {
            queue.wake_owner(owner);
        }
    }

    /// A line for each queue, up to a hundred: the hash of its lock's name, and how its contender is.
    pub(crate) fn shown(&self) -> Vec<String> {
        let now = self.clock.now();
        let queues = self.queues.lock();
        let queues = queues.by_key.iter().take(MOST_SHOWN);
        let shown =
            queues.map(|(key, queue)| format!("{} {}", key.fingerprint(), queue.shown(now)));
        shown.collect()
    }

    /// Ends every wait, and every later one, with `Closed`.
    pub(crate) fn close(&self) {
        self.messages.close();
        let mut queues = self.queues.lock();
        queues.closed = true;
        for queue in queues.by_key.values() {
            queue.fail(&Error::Closed);
        }
    }
}

/// What a waiter sees of its queue.
#[derive(Clone, Copy, Default)]
pub(crate) struct View {
    /// It is the one that may talk to Redis.
    pub(crate) is_contender: bool,
    /// Every message of the lock is heard.
    pub(crate) is_listening: bool,
    /// This client leaves the lock to others.
    pub(crate) retreat: Option<Retreat>,
}

/// A waiter's place in the queue; left when dropped, and then passed on.
pub(crate) struct Place {
    waiters: Arc<Waiters>,
    key: Arc<LockKey>,
    ticket: Arc<Ticket>,
    has_lock: AtomicBool,
}

impl Place {
    /// Looks at the queue, which counts as a sign of life.
    pub(crate) fn look(&self, now: Moment) -> View {
        let mut queues = self.waiters.queues.lock();
        let Some(queue) = queues.by_key.get_mut(&*self.key) else {
            return View::default();
        };
        View {
            is_contender: queue.is_contender(&self.ticket),
            is_listening: queue.is_listening(),
            retreat: queue.stays_out(now),
        }
    }

    /// Waits until it is told to look, but not beyond `until`; at least a millisecond. The error
    /// is one that ends the wait.
    pub(crate) async fn wait(&self, until: Moment) -> Result<(), Error> {
        self.ticket.wait(&self.waiters.clock, until).await
    }

    /// It looks again by then, whatever it does until then.
    pub(crate) fn promise(&self, until: Moment) {
        self.ticket.promise(until);
    }

    /// What has come of a hand-over to this waiter.
    pub(crate) fn found(&self, now: Moment) -> Found {
        self.ticket.look(now, self.waiters.answer_time())
    }

    /// Expects no hand-over any more. What was handed over already is for the caller to undo.
    pub(crate) fn decline(&self) -> Option<Handed> {
        self.ticket.decline()
    }

    /// It got the lock: when it leaves, the next in line has nothing to look at.
    pub(crate) fn has_lock(&self) {
        self.has_lock.store(true, Ordering::Relaxed);
    }

    /// Takes the role from a contender that promised to look and has not for a poll cap: its future
    /// was polled once and left. Returns that one's acquire, if one is under way.
    pub(crate) fn take_over(&self, now: Moment) -> Option<Option<Arc<Hold>>> {
        let overdue = now.minus(self.waiters.poll_cap);
        let mut queues = self.waiters.queues.lock();
        let queue = queues.by_key.get_mut(&*self.key)?;
        queue.take_over(&self.ticket, overdue)
    }

    /// Tells whoever may take over that this acquire is under way. False if it is not needed: the
    /// lock is being handed to this waiter.
    pub(crate) fn attempting(&self, hold: &Arc<Hold>, now: Moment) -> bool {
        let until = now + self.waiters.answer_time();
        self.ticket.attempting(hold, now, until)
    }

    /// The acquire was answered.
    pub(crate) fn attempted(&self) {
        self.ticket.attempted();
    }

    /// How long the contender has waited for an answer by `now`, if it does.
    pub(crate) fn unanswered_for(&self, now: Moment) -> Option<Duration> {
        let queues = self.waiters.queues.lock();
        queues.by_key.get(&*self.key)?.unanswered_for(now)
    }

    /// Tells the queue what became of the contender's question: an outage ends the waits without a
    /// deadline, so that they are not told one after another, each after an outage of its own.
    pub(crate) fn note_outage(&self, outage: Option<&Error>) {
        let mut queues = self.waiters.queues.lock();
        if let Some(queue) = queues.by_key.get_mut(&*self.key) {
            queue.note_outage(outage);
        }
    }

    /// As [`Place::note_outage`], but ends no wait yet.
    pub(crate) fn remember_outage(&self, outage: Option<&Error>) {
        let mut queues = self.waiters.queues.lock();
        if let Some(queue) = queues.by_key.get_mut(&*self.key) {
            queue.remember_outage(outage);
        }
    }

    /// What kept the contender from asking when it last tried.
    pub(crate) fn outage(&self) -> Option<Error> {
        let queues = self.waiters.queues.lock();
        queues.by_key.get(&*self.key)?.outage()
    }

    /// Whether every message of the lock is heard.
    pub(crate) fn is_listening(&self) -> bool {
        self.waiters.is_listening(&self.key)
    }

    /// Subscribes to the lock's messages, which its waiters share, and waits until the server has
    /// acknowledged that or it is known that it does not.
    ///
    /// # Cancel safety
    ///
    /// The subscription stays; a connection that was being opened is opened elsewhere.
    pub(crate) async fn subscribed(&self, server: &Server, limit: Duration) {
        self.waiters.subscribed(&self.key, server, limit).await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut queues = self.waiters.queues.lock();
        queues.waiting -= 1;
        let Some(queue) = queues.by_key.get_mut(&*self.key) else {
            return;
        };
        queue.leave(&self.ticket, *self.has_lock.get_mut());
        if queue.is_empty() {
            queues.by_key.remove(&*self.key);
        }
    }
}

/// An answer may take this long before an acquire counts as left: with a poll cap below the round
/// trip, waiters would take each other's acquires away and none would ever get the lock.
const SLOW_ANSWER: Duration = Duration::from_secs(1);

const MOST_SHOWN: usize = 100;

/// Others have got what they wait for by then, or they do not wait.
const LONGEST_RETREAT: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hold::Terms;

    fn waiting() -> (Arc<Waiters>, Arc<LockKey>, Place) {
        let waiters = Waiters::new(Clock::default(), Duration::from_secs(60), 10);
        let waiters = Arc::new(waiters);
        let key = Arc::new(LockKey::new("l", None).unwrap());
        let terms = Terms {
            lease: Duration::from_secs(10),
            watched: true,
            max_hold: None,
            local: false,
        };
        let wish = Wish {
            owner: Owner::new(),
            terms: Some(terms),
            deadline: None,
        };
        let now = waiters.clock.now();
        let place = waiters.enter(&key, wish, now).unwrap();
        (waiters, key, place)
    }

    #[test]
    fn a_waiter_that_is_leaving_is_picked_for_no_hand_over() {
        let (waiters, key, place) = waiting();
        let now = waiters.clock.now();
        // Between its last look and the end of its place in the queue, on another thread.
        assert!(place.decline().is_none());
        assert!(waiters.receiver(&key, now).is_none());
        drop(place);
    }

    #[test]
    fn a_client_stays_out_for_those_it_knows_of_and_for_those_it_cannot_see() {
        let (waiters, key, place) = waiting();
        for (others, known) in [(Some(0), 0), (None, 1), (Some(2), 2)] {
            assert!(place.look(waiters.clock.now()).retreat.is_none());
            waiters.stay_out(&key, others, waiters.clock.now());
            let retreat = place.look(waiters.clock.now()).retreat;
            assert_eq!(retreat.map(|retreat| retreat.releases), Some(known));
            std::thread::sleep(LONGEST_RETREAT);
        }
    }
}
