//! This client's waiters: one FIFO queue for each lock.
//!
//! Only the contender, usually the head of the queue, sends attempts to Redis (design: invariant 9). If the
//! contender is a reader, the readers behind it send attempts too. The others wait for the contender's role. The
//! role passes on when the contender leaves for any reason, or misses its check-in. The two modes of a
//! read/write lock share one queue: see [`LockKey::queue_key`].

mod backoff;
mod channel;
mod channel_list;
mod listed;
mod listener;
mod locked_shard;
mod messages;
mod places;
mod queue;
mod queue_entry;
mod queue_listed;
mod queue_listeners;
mod queue_places;
mod queue_receiver;
mod receiver;
mod retreat;
mod server_queue;
mod sign;
mod subscriptions;
mod wait_request;
mod waiter;
mod waiter_guard;
mod waiter_kind;
mod waiting_list;
mod wake_signal;
mod wake_ups;

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use uuid::Uuid;

use crate::clock::{Clock, Moment};
use crate::error::Error;
use crate::key::{ByKey, LockKey, is_of_waiting_list};
use crate::owner::Owner;

pub use backoff::{Backoff, Wake};
pub(crate) use channel::SubscriptionState;
pub(crate) use channel_list::ChannelList;
pub(crate) use listener::Listener;
use locked_shard::LockedShard;
pub(crate) use messages::{MessageConnection, Messages, open as open_messages};
use queue::WaitQueue;
pub(crate) use queue_entry::QueueEntry;
pub(crate) use queue_places::Called;
pub(crate) use receiver::Receiver;
use retreat::Retreat;
pub(crate) use subscriptions::{Subscription, Subscriptions};
pub(crate) use wait_request::WaitRequest;
use waiter::Waiter;
pub(crate) use waiter::{HandOverCheck, HandedOver};
pub(crate) use waiter_guard::{TakeOver, WaiterGuard};
pub(crate) use waiter_kind::WaiterKind;

/// All waiters of one client.
pub(crate) struct Waiters {
    /// The client's id.
    client: Uuid,
    clock: Clock,
    poll_cap: Duration,
    limit: u32,
    next_id: AtomicU64,
    /// Sharded, so that waiters of different locks rarely contend for one mutex.
    shards: [Mutex<ByKey<WaitQueue>>; SHARDS],
    waiting: AtomicUsize,
    /// Set once, by the client's shutdown, before the shutdown goes through the shards. So a waiter
    /// that enters a shard either sees this flag or is found there.
    closed: AtomicBool,
    subscriptions: Arc<Subscriptions>,
    messages: Messages,
    /// A queue without waiters is kept for a while.
    idle: Notify,
    /// Whether waiting lists may be on the server. Not on a cluster: while a slot moves key by key, its lock and its
    /// list could be at two nodes, and the move fails if both nodes have a list.
    has_lists: bool,
    /// 0: the server has refused no waiting list.
    lists_refused_until: AtomicU64,
}

impl Waiters {
    pub(crate) fn new(
        client: Uuid,
        clock: Clock,
        poll_cap: Duration,
        limit: u32,
        has_lists: bool,
    ) -> Self {
        Self {
            client,
            clock,
            poll_cap,
            limit,
            next_id: AtomicU64::new(1),
            shards: std::array::from_fn(|_| Mutex::default()),
            waiting: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            subscriptions: Arc::default(),
            messages: Messages::default(),
            idle: Notify::new(),
            has_lists,
            lists_refused_until: AtomicU64::new(0),
        }
    }

    /// How many calls wait now.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// How many calls may wait.
    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    pub(crate) fn messages(&self) -> &Messages {
        &self.messages
    }

    pub(crate) fn subscriptions(&self) -> &Arc<Subscriptions> {
        &self.subscriptions
    }

    /// Joins the lock's queue at its end.
    pub(crate) fn enter(
        self: &Arc<Self>,
        key: &Arc<LockKey>,
        request: WaitRequest,
        now: Moment,
    ) -> Result<WaiterGuard, Error> {
        let key = match key.queue_key() {
            Cow::Borrowed(_) => key.clone(),
            Cow::Owned(queue_key) => Arc::new(queue_key),
        };
        let mut queues = self.queues_of(&key)?;
        self.count_one()?;
        // Counted while the shard is locked, so that the ids of one queue are increasing.
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let waiter = Arc::new(Waiter::new(id, request, now));
        queues.entry(key.clone()).or_default().push(waiter.clone());
        drop(queues);
        Ok(WaiterGuard::new(self.clone(), key, waiter))
    }

    /// Counts a call that waits in no queue, until the returned value is dropped.
    pub(crate) fn count(self: &Arc<Self>) -> Result<CountedCall, Error> {
        self.count_one()?;
        Ok(CountedCall(self.clone()))
    }

    fn count_one(&self) -> Result<(), Error> {
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= self.limit as usize {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(Error::TooManyWaiters { limit: self.limit });
        }
        Ok(())
    }

    /// Locks the shard with this lock's queue.
    fn shard(&self, key: &LockKey) -> LockedShard<'_> {
        LockedShard::new(self.shards[key.part_of(SHARDS)].lock())
    }

    /// As [`Waiters::shard`], for a caller that enters the queue.
    fn queues_of(&self, key: &LockKey) -> Result<LockedShard<'_>, Error> {
        let queues = self.shard(key);
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed);
        }
        Ok(queues)
    }

    /// Whether a waiter of this client waits for the lock.
    pub(crate) fn is_awaited(&self, key: &LockKey) -> bool {
        let key = &*key.queue_key();
        self.shard(key).get(key).is_some_and(WaitQueue::is_awaited)
    }

    /// Wakes the lock's contender: the lock may be free.
    pub(crate) fn wake(&self, key: &LockKey) {
        let key = &*key.queue_key();
        if let Some((queue, wake_ups)) = self.shard(key).queue(key) {
            queue.wake_contender(wake_ups);
        }
    }

    /// Wakes the contender of every lock.
    pub(crate) fn wake_all(&self) {
        for shard in &self.shards {
            LockedShard::new(shard.lock()).each(WaitQueue::wake_contender);
        }
    }

    /// Wakes the lock's contender, unless the client leaves this release to other clients.
    pub(crate) fn handle_message(&self, key: &LockKey) {
        if let Some((queue, wake_ups)) = self.shard(key).queue(key) {
            queue.handle_message(self.clock.now(), wake_ups);
        }
    }

    /// As [`Waiters::handle_message`], for a message with this text on this channel of the lock. The text matters
    /// for a latch, where 0 means that its count is zero, and on the client's own channel of a waiting list.
    pub(crate) fn handle_message_text(&self, key: &LockKey, channel: &str, text: &[u8]) {
        if is_of_waiting_list(channel) {
            return self.handle_call(key, text);
        }
        if key.kind().is_latch
            && text == b"0"
            && let Some(queue) = self.shard(key).get(key)
            // A message from before the subscription may be about a zero that an earlier wait has seen.
            && queue.is_listening()
        {
            queue.note_zero(self.clock.now());
        }
        self.handle_message(key);
    }

    /// Picks the waiter to hand the lock to, and makes it expect the hand-over. `None` if no waiter can
    /// take the lock.
    pub(crate) fn receiver(
        &self,
        key: &LockKey,
        kind: WaiterKind,
        now: Moment,
    ) -> Option<Receiver> {
        let overdue = now.minus(self.poll_cap);
        let mut queues = self.shard(key);
        let queue = queues.get_mut(key)?;
        let waiter = queue.receiver(
            key.kind().queue,
            now,
            overdue,
            now + self.answer_time(),
            kind,
        )?;
        Some(Receiver::new(waiter))
    }

    /// Makes this client leave a lock, which it is about to release, to other clients: until `others` of them
    /// had it (one, if the number is unknown), for at most [`LONGEST_RETREAT`].
    pub(crate) fn back_off(&self, key: &LockKey, others: Option<u32>, now: Moment) {
        if let Some(queue) = self.shard(key).get_mut(key) {
            let until = now + LONGEST_RETREAT;
            // Releases of several permits make a pause no longer, and the contender asks before the next pause.
            let until = queue.retreat.map_or(until, |begun| begun.until.min(until));
            queue.back_off(others, until);
        }
    }

    /// Whether this client is subscribed to the lock's messages.
    pub(crate) fn is_listening(&self, key: &LockKey) -> bool {
        self.shard(key)
            .get(key)
            .is_some_and(WaitQueue::is_listening)
    }

    /// An acquire counts as abandoned if its answer takes longer than this.
    pub(crate) fn answer_time(&self) -> Duration {
        self.poll_cap.max(SLOW_ANSWER)
    }

    /// Wakes all waiters of `owner`: it holds the lock now, so they re-enter.
    pub(crate) fn wake_owner(&self, key: &LockKey, owner: Owner) {
        let key = &*key.queue_key();
        if let Some((queue, wake_ups)) = self.shard(key).queue(key) {
            queue.wake_owner(owner, wake_ups);
        }
    }

    /// One line for each queue, up to a hundred: the hash of the lock's name, and the state of its
    /// contender.
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
        self.closed.store(true, Ordering::Release);
        self.messages.close();
        for shard in &self.shards {
            LockedShard::new(shard.lock())
                .each(|queue, wake_ups| queue.fail(&Error::Closed, wake_ups));
        }
    }
}

/// One of the calls that wait.
pub(crate) struct CountedCall(Arc<Waiters>);

impl Drop for CountedCall {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a waiter sees of its queue.
#[derive(Clone, Copy, Default)]
pub(crate) struct QueueView {
    /// This waiter may talk to Redis.
    pub(crate) is_contender: bool,
    /// The client is subscribed to the lock's messages.
    pub(crate) is_listening: bool,
    /// A release wakes one of the listed clients, and this waiter's client may be one of them.
    pub(crate) is_listed: bool,
    /// Another client was woken before this one, and is to acquire before this moment.
    pub(crate) second_until: Option<Moment>,
    /// The pause in which this client leaves the lock to other clients.
    pub(crate) retreat: Option<Retreat>,
}

/// Far more than the threads that could contend for one shard.
const SHARDS: usize = 64;

/// An acquire counts as abandoned if its answer takes longer than this. With a poll cap below the
/// round-trip time, waiters would otherwise take each other's acquires over and no waiter would get the
/// lock.
const SLOW_ANSWER: Duration = Duration::from_secs(1);

const MOST_SHOWN: usize = 100;

/// How long a reader waits for a writer of its own client before it asks the server.
pub(crate) const READERS_PATIENCE: Duration = Duration::from_secs(2);

/// By then the other waiting clients have had time to acquire, or there are none.
const LONGEST_RETREAT: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::listed::ListedClient;
    use super::*;
    #[cfg(target_os = "linux")]
    use crate::clock::testing::cpu_time;
    use crate::hold::{Holds, Terms};
    use crate::key::kind;
    use crate::server::Sent;
    use crate::user_code::FreeAtEachCall;

    fn waiting() -> (Arc<Waiters>, Arc<LockKey>, WaiterGuard) {
        let waiters = Waiters::new(
            Uuid::nil(),
            Clock::default(),
            Duration::from_secs(60),
            1_000,
            true,
        );
        let waiters = Arc::new(waiters);
        let key = Arc::new(LockKey::new(&kind::PLAIN, "l", None).unwrap());
        let terms = Terms::new(Duration::from_secs(10), true);
        let request = WaitRequest {
            owner: Owner::new(),
            terms: Some(terms),
            deadline: None,
            kind: WaiterKind::Sole,
        };
        let now = waiters.clock.now();
        let place = waiters.enter(&key, request, now).unwrap();
        (waiters, key, place)
    }

    #[test]
    fn a_leaving_waiter_receives_no_hand_over() {
        let (waiters, key, place) = waiting();
        let now = waiters.clock.now();
        // Called on another thread, between the waiter's last check and the end of its place in the
        // queue.
        assert!(place.decline().is_none());
        assert!(waiters.receiver(&key, WaiterKind::Sole, now).is_none());
        drop(place);
    }

    #[test]
    fn a_client_that_leaves_the_list_listens_to_its_own_channel_until_its_wait_ends() {
        let (waiters, key, place) = waiting();
        let list = key.waiting_list().unwrap();
        let own = format!("{list}:{}", key.listed_as(Uuid::nil()));
        let mut queues = waiters.shard(&key);
        let queue = queues.get_mut(&*key).unwrap();
        let client = key.listed_as(Uuid::nil());
        queue.listed(|| {
            ListedClient::subscribe(&waiters.subscriptions, &key, list.clone(), &client)
        });
        drop(queues);
        let channels = waiters.subscriptions.list();
        channels.set_all(SubscriptionState::Listening);
        assert_eq!(channels.names().len(), 2);
        waiters.refuse_lists();
        assert_eq!(channels.names(), [own]);
        waiters.handle_call(&key, b"1");
        assert!(waiters.shard(&key).get(&key).is_some_and(|it| it.is_called));
        drop(place);
        assert!(channels.is_empty());
    }

    #[cfg(target_os = "linux")]
    /// How long it takes until this many waiters of one lock have left, the last one first.
    fn leaving(waiting: usize) -> Duration {
        let clock = Clock::default();
        let waiters = Waiters::new(
            Uuid::nil(),
            clock.clone(),
            Duration::from_secs(60),
            waiting as u32,
            true,
        );
        let waiters = Arc::new(waiters);
        let key = Arc::new(LockKey::new(&kind::PLAIN, "l", None).unwrap());
        let enter = |_| {
            let request = WaitRequest {
                owner: Owner::new(),
                terms: None,
                deadline: None,
                kind: WaiterKind::Sole,
            };
            waiters.enter(&key, request, clock.now()).unwrap()
        };
        let mut places: Vec<WaiterGuard> = (0..waiting).map(enter).collect();
        let began = cpu_time();
        while places.pop().is_some() {}
        cpu_time() - began
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_cost_of_many_leaving_waiters_is_linear() {
        // The fastest of three runs: the first run pays for allocating the memory.
        let quickest = |waiting| (0..3).map(|_| leaving(waiting)).min().unwrap();
        let [few, many] = [2_000, 20_000].map(quickest);
        println!("2,000 left in {few:?}, 20,000 in {many:?}");
        // Ten times as many waiters take ten times as long. When each leave went through all waiters,
        // it was a hundred times.
        assert!(many < few * 35, "{few:?} and {many:?}");
    }

    /// What the wakers of two waiters and a listener see of the shards while `what` runs.
    fn seen_while(what: impl FnOnce(&Waiters, &LockKey, &mut Option<WaiterGuard>)) -> Vec<bool> {
        let (waiters, key, first) = waiting();
        let owner = first.waiter.request.owner;
        let request = WaitRequest {
            owner,
            terms: None,
            deadline: None,
            kind: WaiterKind::Sole,
        };
        let second = waiters.enter(&key, request, waiters.clock.now()).unwrap();
        let listener = waiters.add_listener(&key, owner).unwrap();
        let seen = waiters.clone();
        let free =
            FreeAtEachCall::new(move || seen.shards.iter().all(|it| it.try_lock().is_some()));
        let until = waiters.clock.now() + Duration::from_secs(60);
        let all = [&first.waiter, &second.waiter, &listener.waiter].map(Arc::clone);
        let waits = all.each_ref().map(|it| it.wait(&waiters.clock, until));
        let mut waits = waits.map(Box::pin);
        for wait in &mut waits {
            assert!(free.poll(wait.as_mut()).is_pending());
        }
        let mut first = Some(first);
        what(&waiters, &key, &mut first);
        free.calls()
    }

    #[tokio::test]
    async fn no_waiter_is_woken_while_a_shard_is_locked() {
        let note = |_: &Waiters, _: &LockKey, first: &mut Option<WaiterGuard>| {
            first.as_ref().unwrap().note_outage(Some(&Error::Closed));
        };
        for (name, calls, seen) in [
            ("wake", 2, seen_while(|all, key, _| all.wake(key))),
            ("wake_all", 2, seen_while(|all, _, _| all.wake_all())),
            (
                "handle_message",
                2,
                seen_while(|all, key, _| all.handle_message(key)),
            ),
            ("leave", 1, seen_while(|_, _, first| *first = None)),
            ("note_outage", 2, seen_while(note)),
            ("close", 3, seen_while(|all, _, _| all.close())),
        ] {
            assert_eq!(seen, vec![true; calls], "{name}");
        }
    }

    /// How often the readers behind these two waiters, a contender and the next one, are woken when the
    /// contender leaves without the lock.
    fn woken_by_leaving(contender: WaiterKind) -> usize {
        let clock = Clock::default();
        let waiters = Arc::new(Waiters::new(
            Uuid::nil(),
            clock.clone(),
            Duration::from_secs(60),
            1_000,
            true,
        ));
        let key = Arc::new(LockKey::new(&kind::WRITE, "l", None).unwrap());
        let reader = WaiterKind::Reader {
            patience: Duration::from_secs(2),
        };
        let enter = |kind| {
            let request = WaitRequest {
                owner: Owner::new(),
                terms: None,
                deadline: None,
                kind,
            };
            waiters.enter(&key, request, clock.now()).unwrap()
        };
        let first = enter(contender);
        let readers: Vec<WaiterGuard> = (0..10).map(|_| enter(reader)).collect();
        let woken = FreeAtEachCall::new(|| true);
        let until = clock.now() + Duration::from_secs(60);
        let waits = readers.iter().map(|it| it.waiter.wait(&clock, until));
        let mut waits: Vec<_> = waits.map(Box::pin).collect();
        for wait in &mut waits {
            assert!(woken.poll(wait.as_mut()).is_pending());
        }
        drop(first);
        woken.calls().len()
    }

    #[tokio::test]
    async fn a_reader_that_leaves_wakes_the_next_one_and_a_writer_wakes_all() {
        let reader = WaiterKind::Reader {
            patience: Duration::from_secs(2),
        };
        assert_eq!(woken_by_leaving(reader), 1);
        assert_eq!(woken_by_leaving(WaiterKind::Writer), 10);
    }

    #[test]
    fn the_role_of_an_absent_waiter_moves_on_and_can_return() {
        let (waiters, key, first) = waiting();
        let request = |owner| WaitRequest {
            owner,
            terms: None,
            deadline: None,
            kind: WaiterKind::Sole,
        };
        let now = waiters.clock.now();
        let second = waiters.enter(&key, request(Owner::new()), now).unwrap();
        let later = now + Duration::from_secs(120);
        let is_taken = |by: &WaiterGuard| matches!(by.take_over(later), TakeOver::Taken(_));
        assert!(is_taken(&second));
        assert!(!first.check_in(later).is_contender && second.check_in(later).is_contender);
        drop(second);
        assert!(first.check_in(later).is_contender);
        let third = waiters.enter(&key, request(Owner::new()), now).unwrap();
        assert!(is_taken(&third));
        drop(first);
        assert!(third.check_in(later).is_contender);
        drop(third);
        assert!(!waiters.is_awaited(&key));
        assert!(waiters.shard(&key).is_empty());
    }

    /// Otherwise permits stay free if the new contender gets a hand-over before it asks.
    #[test]
    fn a_waiter_that_takes_the_role_takes_the_call_too() {
        let (waiters, key, first) = waiting();
        let now = waiters.clock.now();
        let second = waiters.enter(&key, first.waiter.request, now).unwrap();
        waiters.wake(&key);
        assert!(first.waiter.was_called() && !second.waiter.was_called());
        let later = now + Duration::from_secs(120);
        assert!(matches!(second.take_over(later), TakeOver::Taken(_)));
        assert!(!first.waiter.was_called() && second.waiter.was_called());
    }

    /// Whether the next poll of each wait, which lasts until this moment at most, ends it.
    fn are_woken(places: &[WaiterGuard], until: Moment) -> Vec<bool> {
        // The timer of a wait needs a runtime.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let _entered = runtime.enter();
        let is_woken = |place: &WaiterGuard| {
            let mut wait = std::pin::pin!(place.wait(until));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            wait.as_mut().poll(&mut context).is_ready()
        };
        places.iter().map(is_woken).collect()
    }

    /// They did not ask while a writer had the role. When the first reader leaves with the lock, they count as having
    /// asked, and are not woken.
    #[test]
    fn the_readers_ask_with_the_one_that_takes_the_role_from_a_writer() {
        let (waiters, _, _) = waiting();
        let key = Arc::new(LockKey::new(&kind::PLAIN, "r", None).unwrap());
        let now = waiters.clock.now();
        let enter = |kind| {
            let request = WaitRequest {
                owner: Owner::new(),
                terms: None,
                deadline: None,
                kind,
            };
            waiters.enter(&key, request, now).unwrap()
        };
        let reader = WaiterKind::Reader {
            patience: Duration::from_secs(600),
        };
        let _absent = enter(WaiterKind::Writer);
        let places = [reader, reader, WaiterKind::Writer, reader].map(enter);
        let later = now + Duration::from_secs(120);
        assert!(matches!(places[0].take_over(later), TakeOver::Taken(_)));
        let woken = are_woken(&places[1..], now + Duration::from_secs(600));
        assert_eq!(woken, [true, false, false]);
        assert!(places[1].check_in(now).is_contender);
    }

    /// The drop wakes those that wait for the turn of its hold.
    #[tokio::test]
    async fn a_hand_over_to_a_replaced_contender_is_dropped_after_the_shard_is_unlocked() {
        let (waiters, key, first) = waiting();
        let now = waiters.clock.now();
        let request = first.waiter.request;
        let second = waiters.enter(&key, request, now).unwrap();
        let hold = Holds::new(waiters.clock.clone(), false).enter(&key, request.owner);
        let receiver = waiters.receiver(&key, WaiterKind::Sole, now).unwrap();
        assert!(receiver.announce(&hold));
        let command = hold.try_command();
        let sent = Sent::default();
        let handed = HandedOver {
            hold: hold.clone(),
            command,
            sent,
        };
        assert!(receiver.deliver(handed, now).is_none());
        let free =
            FreeAtEachCall::new(move || waiters.shards.iter().all(|it| it.try_lock().is_some()));
        let mut turn = std::pin::pin!(hold.command());
        assert!(free.poll(turn.as_mut()).is_pending());
        let later = now + Duration::from_secs(120);
        assert!(matches!(second.take_over(later), TakeOver::Taken(Some(_))));
        assert_eq!(free.calls(), [true]);
    }

    #[test]
    fn the_outcome_of_a_replaced_contender_says_nothing_about_the_round_of_the_next_one() {
        let (waiters, key, first) = waiting();
        let request = WaitRequest {
            owner: Owner::new(),
            terms: None,
            deadline: None,
            kind: WaiterKind::Sole,
        };
        let now = waiters.clock.now();
        let second = waiters.enter(&key, request, now).unwrap();
        first.note_round(Some(now));
        let later = now + Duration::from_secs(120);
        assert!(matches!(second.take_over(later), TakeOver::Taken(_)));
        assert!(second.round_since().is_none());
        second.note_round(Some(later));
        first.note_round(None);
        assert!(second.round_since() == Some(later));
        second.note_round(None);
        assert!(second.round_since().is_none());
    }

    #[test]
    fn a_grant_wakes_all_waiters_of_its_owner_among_many() {
        let (waiters, key, _first) = waiting();
        let now = waiters.clock.now();
        let owners: Vec<Owner> = (0..50).map(|_| Owner::new()).collect();
        let enter = |number: usize| {
            let request = WaitRequest {
                owner: owners[number % 50],
                terms: None,
                deadline: None,
                kind: WaiterKind::Sole,
            };
            waiters.enter(&key, request, now).unwrap()
        };
        let places: Vec<WaiterGuard> = (0..100).map(enter).collect();
        waiters.wake_owner(&key, owners[7]);
        let are_woken = are_woken(&places, now + Duration::from_secs(60));
        let woken: Vec<usize> = (0..100).filter(|it| are_woken[*it]).collect();
        assert_eq!(woken, [7, 57]);
    }

    #[test]
    fn a_client_that_its_own_release_woke_does_not_leave_the_lock_to_others() {
        let (waiters, key, place) = waiting();
        let request = WaitRequest {
            owner: Owner::new(),
            terms: None,
            deadline: None,
            kind: WaiterKind::Sole,
        };
        let next = waiters.enter(&key, request, waiters.clock.now()).unwrap();
        let leaves = || next.check_in(waiters.clock.now()).retreat.is_some();
        waiters.leave_to_others(&key);
        assert!(leaves());
        waiters.handle_call(&key, b"1");
        assert!(!leaves());
        // The message came before the answer of the unlock.
        waiters.leave_to_others(&key);
        assert!(!leaves());
        // The message counts for one unlock.
        waiters.leave_to_others(&key);
        assert!(leaves());
        waiters.handle_call(&key, b"1");
        place.has_lock();
        drop(place);
        waiters.leave_to_others(&key);
        assert!(leaves());
    }

    #[test]
    fn a_client_backs_off_for_listeners_and_for_clients_that_poll() {
        let (waiters, key, place) = waiting();
        for (others, known) in [(Some(0), 0), (None, 1), (Some(2), 2)] {
            assert!(place.check_in(waiters.clock.now()).retreat.is_none());
            waiters.back_off(&key, others, waiters.clock.now());
            let retreat = place.check_in(waiters.clock.now()).retreat;
            assert_eq!(retreat.map(|retreat| retreat.releases), Some(known));
            std::thread::sleep(LONGEST_RETREAT);
        }
    }

    /// SE6: a client that uses many permits of a semaphore ends their rows of hand-overs one after the other.
    #[test]
    fn a_client_that_backs_off_again_pauses_no_longer() {
        let (waiters, key, place) = waiting();
        let pause_at = |at| place.check_in(at).retreat.map(|retreat| retreat.until);
        let now = waiters.clock.now();
        waiters.back_off(&key, None, now);
        let end = now + LONGEST_RETREAT;
        let meanwhile = now + LONGEST_RETREAT / 2;
        waiters.back_off(&key, None, meanwhile);
        assert!(pause_at(meanwhile) == Some(end));
        // The contender has not seen the end of the pause yet.
        waiters.back_off(&key, None, end);
        assert!(pause_at(end).is_none());
        waiters.back_off(&key, None, end);
        assert!(pause_at(end) == Some(end + LONGEST_RETREAT));
    }
}
