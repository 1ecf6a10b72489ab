//! This client's waiters: one queue for each lock, first in, first out.
//!
//! Only the contender, as a rule the head, talks to Redis (design: invariant 9). The others wait
//! for the role, which is passed on when its bearer leaves, for whatever reason, or does not look
//! after it.

mod backoff;
mod channel;
mod channel_list;
mod listener;
mod locked_shard;
mod messages;
mod queue;
mod subscriptions;
mod waiter;
mod wake_ups;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::{Clock, Moment};
use crate::error::Error;
use crate::hold::Hold;
use crate::key::{ByKey, LockKey};
use crate::owner::Owner;
use crate::server::Server;

pub use backoff::{Backoff, Wake};
pub(crate) use channel::Heard;
pub(crate) use channel_list::ChannelList;
pub(crate) use listener::Listener;
use locked_shard::LockedShard;
pub(crate) use messages::{MessageConnection, Messages, open as open_messages};
use queue::{Retreat, WaitQueue};
pub(crate) use subscriptions::{Subscription, Subscriptions};
use waiter::Waiter;
pub(crate) use waiter::{Found, HandedOver, Receiver, WaitRequest};

/// Every waiter of one client.
pub(crate) struct Waiters {
    clock: Clock,
    poll_cap: Duration,
    limit: u32,
    next_id: AtomicU64,
    /// Waiters of different locks share no lock, or rarely.
    shards: [Mutex<ByKey<WaitQueue>>; SHARDS],
    waiting: AtomicUsize,
    /// Set once, by the client's shutdown, before it looks at each shard: whoever enters one sees it,
    /// or is seen there.
    closed: AtomicBool,
    subscriptions: Arc<Subscriptions>,
    messages: Messages,
}

impl Waiters {
    pub(crate) fn new(clock: Clock, poll_cap: Duration, limit: u32) -> Self {
        Self {
            clock,
            poll_cap,
            limit,
            next_id: AtomicU64::new(1),
            shards: std::array::from_fn(|_| Mutex::default()),
            waiting: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
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
        request: WaitRequest,
        now: Moment,
    ) -> Result<WaiterGuard, Error> {
        let mut queues = self.queues_of(key)?;
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= self.limit as usize {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(Error::TooManyWaiters { limit: self.limit });
        }
        // Counted with the shard locked, so that the ids of one queue grow.
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let waiter = Arc::new(Waiter::new(id, request, now));
        queues.entry(key.clone()).or_default().push(waiter.clone());
        drop(queues);
        Ok(WaiterGuard {
            waiters: self.clone(),
            key: key.clone(),
            waiter,
            has_lock: AtomicBool::new(false),
        })
    }

    /// The queues that this lock's is among.
    fn shard(&self, key: &LockKey) -> LockedShard<'_> {
        LockedShard::new(self.shards[key.part_of(SHARDS)].lock())
    }

    /// As [`Waiters::shard`], for somebody who enters the queue.
    fn queues_of(&self, key: &LockKey) -> Result<LockedShard<'_>, Error> {
        let queues = self.shard(key);
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        Ok(queues)
    }

    /// Whether anybody of this client waits for the lock.
    pub(crate) fn is_awaited(&self, key: &LockKey) -> bool {
        self.shard(key).get(key).is_some_and(WaitQueue::is_awaited)
    }

    /// Lets the lock's contender try: it may have become free.
    pub(crate) fn wake(&self, key: &LockKey) {
        if let Some((queue, calls)) = self.shard(key).queue(key) {
            queue.wake_contender(calls);
        }
    }

    /// Lets the contender of every lock try.
    pub(crate) fn wake_all(&self) {
        for shard in &self.shards {
            LockedShard::new(shard.lock()).each(WaitQueue::wake_contender);
        }
    }

    /// Lets the lock's contender try, unless this message is one that it leaves to other clients.
    pub(crate) fn hear(&self, key: &LockKey) {
        if let Some((queue, calls)) = self.shard(key).queue(key) {
            queue.hear(self.clock.now(), calls);
        }
    }

    /// Picks the waiter to hand the lock to, and lets it expect that. None if nobody waits who can
    /// take it.
    pub(crate) fn receiver(&self, key: &LockKey, now: Moment) -> Option<Receiver> {
        let overdue = now.minus(self.poll_cap);
        let mut queues = self.shard(key);
        let queue = queues.get_mut(key)?;
        let waiter = queue.receiver(now, overdue, now + self.answer_time())?;
        Some(Receiver::new(waiter))
    }

    /// Leaves a lock that is about to be released to other clients, so many if their number is known:
    /// until they had it, or for a moment.
    pub(crate) fn back_off(&self, key: &LockKey, others: Option<u32>, now: Moment) {
        if let Some(queue) = self.shard(key).get_mut(key) {
            queue.back_off(others, now + LONGEST_RETREAT);
        }
    }

    /// Whether this client hears the lock's messages.
    pub(crate) fn is_listening(&self, key: &LockKey) -> bool {
        self.shard(key)
            .get(key)
            .is_some_and(WaitQueue::is_listening)
    }

    /// An answer may take this long before an acquire counts as left.
    pub(crate) fn answer_time(&self) -> Duration {
        self.poll_cap.max(SLOW_ANSWER)
    }

    /// Lets all waiters of `owner` look: it holds the lock now, so they re-enter.
    pub(crate) fn wake_owner(&self, key: &LockKey, owner: Owner) {
        if let Some((queue, calls)) = self.shard(key).queue(key) {
            queue.wake_owner(owner, calls);
        }
    }

    /// A line for each queue, up to a hundred: the hash of its lock's name, and how its contender is.
    pub(crate) fn shown(&self) -> Vec<String> {
        let now = self.clock.now();
        let mut shown = Vec::new();
        for shard in &self.shards {
            let queues = shard.lock();
            let left = MOST_SHOWN - shown.len();
            let queues = queues.iter().take(left);
            shown.extend(
                queues.map(|(key, queue)| format!("{} {}", key.fingerprint(), queue.shown(now))),
            );
        }
        shown
    }

    /// Ends every wait, and every later one, with `Closed`.
    pub(crate) fn close(&self) {
        self.messages.close();
        self.closed.store(true, Ordering::Release);
        for shard in &self.shards {
            LockedShard::new(shard.lock()).each(|queue, calls| queue.fail(&Error::Closed, calls));
        }
    }
}

/// What a waiter sees of its queue.
#[derive(Clone, Copy, Default)]
pub(crate) struct QueueView {
    /// It is the one that may talk to Redis.
    pub(crate) is_contender: bool,
    /// Every message of the lock is heard.
    pub(crate) is_listening: bool,
    /// This client leaves the lock to others.
    pub(crate) retreat: Option<Retreat>,
}

/// A waiter's place in the queue; left when dropped, and then passed on.
pub(crate) struct WaiterGuard {
    waiters: Arc<Waiters>,
    key: Arc<LockKey>,
    waiter: Arc<Waiter>,
    has_lock: AtomicBool,
}

impl WaiterGuard {
    /// Looks at the queue, which counts as a sign of life.
    pub(crate) fn look(&self, now: Moment) -> QueueView {
        let mut queues = self.waiters.shard(&self.key);
        let Some(queue) = queues.get_mut(&*self.key) else {
            return QueueView::default();
        };
        QueueView {
            is_contender: queue.is_contender(&self.waiter),
            is_listening: queue.is_listening(),
            retreat: queue.backed_off(now),
        }
    }

    /// Waits until it is told to look, but not beyond `until`; at least a millisecond. The error
    /// is one that ends the wait.
    pub(crate) async fn wait(&self, until: Moment) -> Result<(), Error> {
        self.waiter.wait(&self.waiters.clock, until).await
    }

    /// It looks again by then, whatever it does until then.
    pub(crate) fn promise(&self, until: Moment) {
        self.waiter.promise(until);
    }

    /// What has come of a hand-over to this waiter.
    pub(crate) fn found(&self, now: Moment) -> Found {
        self.waiter.look(now, self.waiters.answer_time())
    }

    /// Expects no hand-over any more. What was handed over already is for the caller to undo.
    pub(crate) fn decline(&self) -> Option<HandedOver> {
        self.waiter.decline()
    }

    /// It got the lock: when it leaves, the next in line has nothing to look at.
    pub(crate) fn has_lock(&self) {
        self.has_lock.store(true, Ordering::Relaxed);
    }

    /// Takes the role from a contender that promised to look and has not for a poll cap: its future
    /// was polled once and left. Returns that one's acquire, if one is under way.
    pub(crate) fn take_over(&self, now: Moment) -> Option<Option<Arc<Hold>>> {
        let overdue = now.minus(self.waiters.poll_cap);
        let mut queues = self.waiters.shard(&self.key);
        let queue = queues.get_mut(&*self.key)?;
        queue.take_over(&self.waiter, overdue)
    }

    /// Tells whoever may take over that this acquire is under way. False if it is not needed: the
    /// lock is being handed to this waiter.
    pub(crate) fn attempting(&self, hold: &Arc<Hold>, now: Moment) -> bool {
        let until = now + self.waiters.answer_time();
        self.waiter.attempting(hold, now, until)
    }

    /// The acquire was answered.
    pub(crate) fn attempted(&self) {
        self.waiter.attempted();
    }

    /// The contender's hold, and how long its question will have had no answer by `then`.
    pub(crate) fn silent_contender(&self, then: Moment) -> Option<(Duration, Arc<Hold>)> {
        let queues = self.waiters.shard(&self.key);
        queues.get(&*self.key)?.silent_contender(then)
    }

    /// Tells the queue what became of the contender's question: an outage ends the waits without a
    /// deadline, so that they are not told one after another, each after an outage of its own.
    pub(crate) fn note_outage(&self, outage: Option<&Error>) {
        let mut shard = self.waiters.shard(&self.key);
        if let Some((queue, calls)) = shard.queue(&self.key) {
            queue.note_outage(outage, calls);
        }
    }

    /// As [`WaiterGuard::note_outage`], but ends no wait yet.
    pub(crate) fn remember_outage(&self, outage: Option<&Error>) {
        let mut queues = self.waiters.shard(&self.key);
        if let Some(queue) = queues.get_mut(&*self.key) {
            queue.remember_outage(outage);
        }
    }

    /// What kept the contender from asking when it last tried.
    pub(crate) fn outage(&self) -> Option<Error> {
        let queues = self.waiters.shard(&self.key);
        queues.get(&*self.key)?.outage()
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
    /// The subscription stays, and a connection that is being opened is opened all the same.
    pub(crate) async fn subscribed(&self, server: &Server) {
        self.waiters.subscribed(&self.key, server).await;
    }
}

impl Drop for WaiterGuard {
    fn drop(&mut self) {
        let mut shard = self.waiters.shard(&self.key);
        self.waiters.waiting.fetch_sub(1, Ordering::Relaxed);
        let Some((queue, calls)) = shard.queue(&self.key) else {
            return;
        };
        queue.leave(&self.waiter, *self.has_lock.get_mut(), calls);
        if queue.is_empty() {
            shard.remove(&*self.key);
        }
    }
}

/// Far more than threads that could meet at one.
const SHARDS: usize = 64;

/// An answer may take this long before an acquire counts as left: with a poll cap below the round
/// trip, waiters would take each other's acquires away and none would ever get the lock.
const SLOW_ANSWER: Duration = Duration::from_secs(1);

const MOST_SHOWN: usize = 100;

/// Others have got what they wait for by then, or they do not wait.
const LONGEST_RETREAT: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_os = "linux")]
    use crate::clock::worked;
    use crate::hold::Terms;
    use crate::key::kind;
    use crate::user_code::FreeAtEachCall;

    fn waiting() -> (Arc<Waiters>, Arc<LockKey>, WaiterGuard) {
        let waiters = Waiters::new(Clock::default(), Duration::from_secs(60), 1_000);
        let waiters = Arc::new(waiters);
        let key = Arc::new(LockKey::new(&kind::PLAIN, "l", None).unwrap());
        let terms = Terms {
            lease: Duration::from_secs(10),
            watched: true,
            max_hold: None,
            local: false,
        };
        let request = WaitRequest {
            owner: Owner::new(),
            terms: Some(terms),
            deadline: None,
        };
        let now = waiters.clock.now();
        let place = waiters.enter(&key, request, now).unwrap();
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

    #[cfg(target_os = "linux")]
    /// How long it takes until so many waiters of one lock have left, the last one first.
    fn leaving(waiting: usize) -> Duration {
        let clock = Clock::default();
        let waiters = Waiters::new(clock.clone(), Duration::from_secs(60), waiting as u32);
        let waiters = Arc::new(waiters);
        let key = Arc::new(LockKey::new(&kind::PLAIN, "l", None).unwrap());
        let enter = |_| {
            let request = WaitRequest {
                owner: Owner::new(),
                terms: None,
                deadline: None,
            };
            waiters.enter(&key, request, clock.now()).unwrap()
        };
        let mut places: Vec<WaiterGuard> = (0..waiting).map(enter).collect();
        let began = worked();
        while places.pop().is_some() {}
        worked() - began
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_crowd_that_leaves_takes_as_long_as_it_is_large_and_no_longer() {
        // The quickest of three: the first one pays for the memory.
        let quickest = |waiting| (0..3).map(|_| leaving(waiting)).min().unwrap();
        let [few, many] = [2_000, 20_000].map(quickest);
        println!("2,000 left in {few:?}, 20,000 in {many:?}");
        // Ten times as many take ten times as long; it was a hundred times when each leave went
        // through all that waited.
        assert!(many < few * 35, "{few:?} and {many:?}");
    }

    /// What the wakers of two waiters and an ear see of the shards while this is done.
    fn seen_while(what: impl FnOnce(&Waiters, &LockKey, &mut Option<WaiterGuard>)) -> Vec<bool> {
        let (waiters, key, first) = waiting();
        let owner = first.waiter.request.owner;
        let request = WaitRequest {
            owner,
            terms: None,
            deadline: None,
        };
        let second = waiters.enter(&key, request, waiters.clock.now()).unwrap();
        let ear = waiters.add_listener(&key, owner).unwrap();
        let seen = waiters.clone();
        let free =
            FreeAtEachCall::new(move || seen.shards.iter().all(|it| it.try_lock().is_some()));
        let until = waiters.clock.now() + Duration::from_secs(60);
        let tickets = [&first.waiter, &second.waiter, &ear.waiter].map(Arc::clone);
        let waits = tickets.each_ref().map(|it| it.wait(&waiters.clock, until));
        let mut waits = waits.map(Box::pin);
        for wait in &mut waits {
            assert!(free.poll(wait.as_mut()).is_pending());
        }
        let mut first = Some(first);
        what(&waiters, &key, &mut first);
        free.calls()
    }

    #[tokio::test]
    async fn nobody_is_woken_while_a_shard_is_locked() {
        let note = |_: &Waiters, _: &LockKey, first: &mut Option<WaiterGuard>| {
            first.as_ref().unwrap().note_outage(Some(&Error::Closed));
        };
        for (name, calls, seen) in [
            ("wake", 2, seen_while(|all, key, _| all.wake(key))),
            ("wake_all", 2, seen_while(|all, _, _| all.wake_all())),
            ("hear", 2, seen_while(|all, key, _| all.hear(key))),
            ("leave", 1, seen_while(|_, _, first| *first = None)),
            ("note_outage", 2, seen_while(note)),
            ("close", 3, seen_while(|all, _, _| all.close())),
        ] {
            assert_eq!(seen, vec![true; calls], "{name}");
        }
    }

    #[test]
    fn the_role_of_one_who_is_absent_goes_on_and_comes_back_when_it_looks() {
        let (waiters, key, first) = waiting();
        let request = |owner| WaitRequest {
            owner,
            terms: None,
            deadline: None,
        };
        let now = waiters.clock.now();
        let second = waiters.enter(&key, request(Owner::new()), now).unwrap();
        let later = now + Duration::from_secs(120);
        assert!(second.take_over(later).is_some());
        assert!(!first.look(later).is_contender && second.look(later).is_contender);
        drop(second);
        assert!(first.look(later).is_contender);
        let third = waiters.enter(&key, request(Owner::new()), now).unwrap();
        assert!(third.take_over(later).is_some());
        drop(first);
        assert!(third.look(later).is_contender);
        drop(third);
        assert!(!waiters.is_awaited(&key));
        assert!(waiters.shard(&key).is_empty());
    }

    #[test]
    fn a_grant_wakes_all_waiters_of_its_owner_in_a_crowd_too() {
        let (waiters, key, _first) = waiting();
        let now = waiters.clock.now();
        let owners: Vec<Owner> = (0..50).map(|_| Owner::new()).collect();
        let enter = |number: usize| {
            let request = WaitRequest {
                owner: owners[number % 50],
                terms: None,
                deadline: None,
            };
            waiters.enter(&key, request, now).unwrap()
        };
        let places: Vec<WaiterGuard> = (0..100).map(enter).collect();
        waiters.wake_owner(&key, owners[7]);
        let is_told = |place: &WaiterGuard| {
            let until = now + Duration::from_secs(60);
            let mut wait = std::pin::pin!(place.wait(until));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            wait.as_mut().poll(&mut context).is_ready()
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let _entered = runtime.enter();
        let told: Vec<usize> = (0..100).filter(|it| is_told(&places[*it])).collect();
        assert_eq!(told, [7, 57]);
    }

    #[test]
    fn a_client_stays_out_for_those_it_knows_of_and_for_those_it_cannot_see() {
        let (waiters, key, place) = waiting();
        for (others, known) in [(Some(0), 0), (None, 1), (Some(2), 2)] {
            assert!(place.look(waiters.clock.now()).retreat.is_none());
            waiters.back_off(&key, others, waiters.clock.now());
            let retreat = place.look(waiters.clock.now()).retreat;
            assert_eq!(retreat.map(|retreat| retreat.releases), Some(known));
            std::thread::sleep(LONGEST_RETREAT);
        }
    }
}
