//! The wait loop, written once for everything that can be waited for: try, subscribe, try again, then
//! wait for a message, a hand-over or a timer.
//!
//! A [`Contender`] says what a call waits for: a lock, all of several locks, or a quorum of instances.
//! The loop keeps invariants 8, 9 and 10 of the design for each of them: every wait has a timer, one
//! contender of a client asks the server for all its waiters, and one deadline bounds the whole call.

mod answer;
mod beside;
mod contest;
mod long_wait;
mod stand_by;
mod woken;

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::hold::Hold;
use crate::observe::{LockRef, Observers};
use crate::owner::Owner;
use crate::session::Core;
use crate::wait::{Backoff, HandedOver, WaiterGuard};

pub(crate) use contest::contend;

/// What a call waits for, and how it asks for that.
///
/// A contender may be in one of several queues, one at a time; `at` is the number of the queue. The
/// clients of these queues may have different clocks. So each moment here is from the clock of the
/// client in whose queue the contender is, or of `core(None)` while it is in no queue.
pub(crate) trait Contender: Send {
    /// The result of a successful wait.
    type Won: Send;

    /// Whether a waiter asks the server itself, shortly before its deadline, if its client's contender has
    /// no answer and is not polled. True for contenders that ask with one command.
    const ASKS_BESIDE: bool = false;

    /// Returns an error if a client that the call needs was shut down.
    fn ensure_open(&self) -> Result<()>;

    /// The client in whose queue the call is.
    fn core(&self, at: Option<usize>) -> &Arc<Core>;

    /// The call's deadline; `None` if it has no time limit.
    fn deadline(&self, at: Option<usize>) -> Option<Moment>;

    /// The pauses between polls; `None` if messages wake the call.
    fn backoff(&self, at: usize) -> Option<Backoff>;

    /// Joins a queue at its end.
    fn enter(&mut self, at: usize, now: Moment) -> Result<WaiterGuard>;

    /// What the owner already has. Updates `now` if this took time.
    fn own(
        &mut self,
        place: Option<&QueuePlace>,
        now: &mut Moment,
    ) -> impl Future<Output = Result<OwnerHas<Self::Won>>> + Send;

    /// The observers of its call.
    fn observers(&self) -> &Observers {
        self.core(None).observers()
    }

    /// How observers see what it waits for.
    fn shown(&self) -> Option<LockRef<'_>> {
        None
    }

    /// The owner that waits.
    fn owner(&self) -> Option<Owner> {
        None
    }

    /// The hold of another owner of the same client that keeps the lock from this one, if there is one.
    fn local_holder(&self) -> Option<Arc<Hold>> {
        None
    }

    /// Why there is no point in asking the server now: the call's own client has the lock, or is about
    /// to release it. `has_waited`: the call has just waited for a release.
    fn kept(&mut self, now: Moment, has_waited: bool) -> LocalState;

    /// Asks the server. Before it sends the first command, it records in the waiter what is in flight
    /// ([`WaiterGuard::attempting`]), or when the waiter checks in next ([`WaiterGuard::promise`]). So other
    /// waiters can take over from a future that is not polled.
    ///
    /// # Cancel safety
    ///
    /// The command is undone in the background.
    fn attempt(
        &mut self,
        place: Option<&QueuePlace>,
        now: Moment,
    ) -> impl Future<Output = Result<Attempted<Self::Won>>> + Send;

    /// Whether the call has to ask although it is not the contender, and although its own client has the
    /// lock. True while it has no place in the server's queue yet.
    fn asks_at_once(&self) -> bool {
        false
    }

    /// Asks once without the contender's role; see [`Contender::ASKS_BESIDE`].
    fn ask_beside(
        &mut self,
        _now: Moment,
    ) -> impl Future<Output = Result<Attempted<Self::Won>>> + Send {
        async { Ok(Attempted::Unasked) }
    }

    /// Completes a hand-over from another owner of this client. A waiter whose request has no terms
    /// gets no hand-over.
    fn accept_hand_over(
        &mut self,
        _place: &QueuePlace,
        _handed: HandedOver,
    ) -> impl Future<Output = Result<Attempted<Self::Won>>> + Send {
        async { Ok(Attempted::Unasked) }
    }

    /// A hand-over to this hold has no answer. Returns true if the contender itself finds out whether it was
    /// granted; otherwise it has to be undone.
    fn resolves_hand_over(&mut self, _hold: &Arc<Hold>) -> bool {
        false
    }

    /// Undoes a hand-over to a waiter that leaves.
    fn decline(&self, _handed: HandedOver) {}

    /// Called when the waiter leaves with what it waited for.
    fn leave_with(&self, waiter: &WaiterGuard) {
        waiter.has_lock();
    }

    /// Waits in the queue until there is something to check, at most until `until`.
    fn park(
        &mut self,
        place: &QueuePlace,
        until: Moment,
    ) -> impl Future<Output = Result<()>> + Send {
        place.waiter.wait(until)
    }

    /// Adds to an error of the queue's server which server that is, if the caller has to know.
    fn about(&self, _at: usize, error: Error) -> Error {
        error
    }

    /// Called at the deadline. Returns an error unless it is certain that others have the lock.
    fn give_up(&self, end: TimedOut<'_>) -> Result<()>;
}

/// A contender's place in a queue.
pub(crate) struct QueuePlace {
    /// The number of the queue.
    pub(crate) at: usize,
    pub(crate) waiter: WaiterGuard,
    /// The next attempt lists the client as waiting.
    pub(crate) is_listed: bool,
    /// For how long a listed client leaves a free lock to others.
    pub(crate) yields: Option<Duration>,
    /// The client could not subscribe to the messages of this queue.
    is_unsubscribed: bool,
}

/// What an owner already has of what it waits for.
pub(crate) enum OwnerHas<W> {
    /// All of it: the hold is acquired once more.
    Has(W),
    /// What it is in the queue for. It can ask for the rest without the contender's role.
    Part,
    Nothing,
}

/// What the client itself does with the lock that one of its callers waits for.
pub(crate) enum LocalState {
    Nothing,
    /// The client has the lock for this long, unless it releases it earlier.
    For {
        at: usize,
        left: Duration,
    },
    /// The client is releasing the lock. If that takes longer than `timeout`, the waiter asks
    /// nevertheless.
    Releasing {
        at: usize,
        timeout: Duration,
    },
    /// Something changed: check from the beginning.
    Again,
}

/// The result of an attempt.
pub(crate) enum Attempted<W> {
    Won(W),
    /// Others have it. `ttl` is the TTL of their hold, if it has one. The call waits in the queue `at`.
    Busy {
        at: usize,
        ttl: Option<Duration>,
    },
    /// Others acquire the same locks in another order. The call backs off for this long, in no queue.
    Collided(Duration),
    /// Others have it. The contender itself is notified of the release. It checks again at this moment, or
    /// immediately.
    Taken {
        again: Option<Moment>,
    },
    /// There is no point in asking before this moment.
    NotYet(Moment),
    /// Granted, but answered after the grant's own deadline, so it does not count. The error is for a
    /// caller without a deadline, which would retry forever.
    TooLate(Error),
    /// Answered, but without a result: start again.
    Again,
    /// There was no reason to ask, or another waiter has asked.
    Unasked,
    Failed(FailedAttempt),
}

/// Why a server did not answer, or refused.
pub(crate) struct FailedAttempt {
    /// For the other waiters in the queue.
    pub(crate) error: Error,
    /// The same error for the caller, with the names of the locks.
    pub(crate) named: Error,
    /// The server had a full command timeout. A shorter timeout only shows that the caller had no more
    /// time, not that the server does not answer.
    pub(crate) had_full_timeout: bool,
    /// How long the attempt had taken when the deadline of the call cut it off.
    pub(crate) cut_off_after: Option<Duration>,
    /// The error is about another server than the queue's.
    pub(crate) is_elsewhere: bool,
    /// When the contender itself retries, with or without a deadline. If `None`, a call with a deadline
    /// retries after a short pause, and a call without one returns the error.
    pub(crate) again: Option<Moment>,
}

/// What a waiter knows at its deadline.
pub(crate) struct TimedOut<'a> {
    pub(crate) place: Option<&'a QueuePlace>,
    pub(crate) now: Moment,
    /// The server answered this waiter itself, not its contender, that another owner has it.
    pub(crate) is_known_busy: bool,
    /// The client has been releasing the lock for longer than a busy server takes to answer.
    pub(crate) is_unreleased: bool,
    /// The outage that this waiter's own last attempt met.
    pub(crate) outage: Option<Error>,
}

impl TimedOut<'_> {
    /// The hold that the client's contender is asking for, if the contender has had no answer for most
    /// of the time that this call has `waited`.
    pub(crate) fn silent(&self, waited: Duration) -> Option<Arc<Hold>> {
        silent_contender(self.place?, self.now, waited)
    }

    /// As [`TimedOut::silent`], for a contender that asks several servers: whether it does not know the outcome.
    pub(crate) fn is_round_silent(&self, waited: Duration) -> bool {
        let since = self.place.and_then(|place| place.waiter.round_since());
        since.is_some_and(|since| self.now.since(since) >= SILENCE.max(waited / 2))
    }
}

/// The hold that the contender of this queue is asking for, if by `then` it will have waited for an
/// answer for more than half of `wait`. A younger command may still be answered.
fn silent_contender(place: &QueuePlace, then: Moment, wait: Duration) -> Option<Arc<Hold>> {
    let (silence, hold) = place.waiter.silent_contender(then)?;
    (silence >= SILENCE.max(wait / 2)).then_some(hold)
}

/// A server that is merely busy answers within this time.
const SILENCE: Duration = Duration::from_millis(50);

/// A waiter that knows that others have the lock asks no more if less time than this is left: the
/// answer would come too late, and a grant would have to be undone.
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(1);

/// The pause after a server did not answer, or refused.
const AFTER_AN_OUTAGE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt;
    use parking_lot::Mutex;
    use tokio::task::JoinHandle;
    use tokio::time::Instant;

    use super::*;
    use crate::clock::Clock;
    use crate::key::LockKey;
    use crate::session::disconnected;
    use crate::wait::{WaitRequest, WaiterKind};

    /// A counter of permits, like a semaphore: a permit is no hold, and any task may release it.
    struct Counter {
        core: Arc<Core>,
        key: Arc<LockKey>,
        free: Mutex<usize>,
        questions: AtomicUsize,
    }

    struct ForPermit {
        counter: Arc<Counter>,
        deadline: Option<Moment>,
        /// How long an answer takes.
        answer_time: Duration,
    }

    impl Counter {
        fn new(free: usize) -> Arc<Self> {
            Arc::new(Self {
                core: disconnected(&Clock::of_tokio()),
                key: Arc::new(LockKey::of_several("permits")),
                free: Mutex::new(free),
                questions: AtomicUsize::new(0),
            })
        }

        fn give(&self) {
            *self.free.lock() += 1;
            self.core.waiters.wake(&self.key);
        }

        fn questions(&self) -> usize {
            self.questions.load(Ordering::Relaxed)
        }

        async fn take(self: &Arc<Self>, wait: Option<Duration>) -> Result<Option<()>> {
            self.take_slowly(wait, Duration::ZERO).await
        }

        async fn take_slowly(
            self: &Arc<Self>,
            wait: Option<Duration>,
            answer_time: Duration,
        ) -> Result<Option<()>> {
            let now = self.core.clock.now();
            let contender = ForPermit {
                counter: self.clone(),
                deadline: wait.map(|wait| now + wait),
                answer_time,
            };
            contend(contender, Some(0), now).await
        }

        fn taken(self: &Arc<Self>, wait: Option<Duration>) -> JoinHandle<Result<Option<()>>> {
            let counter = self.clone();
            tokio::spawn(async move { counter.take(wait).await })
        }
    }

    impl Contender for ForPermit {
        type Won = ();

        fn ensure_open(&self) -> Result<()> {
            self.counter.core.ensure_open()
        }

        fn core(&self, _at: Option<usize>) -> &Arc<Core> {
            &self.counter.core
        }

        fn deadline(&self, _at: Option<usize>) -> Option<Moment> {
            self.deadline
        }

        fn backoff(&self, _at: usize) -> Option<Backoff> {
            Some(Backoff::constant(POLL_CAP))
        }

        fn enter(&mut self, _at: usize, now: Moment) -> Result<WaiterGuard> {
            let request = WaitRequest {
                owner: Owner::new(),
                terms: None,
                deadline: self.deadline,
                kind: WaiterKind::Sole,
            };
            let counter = &self.counter;
            counter.core.waiters.enter(&counter.key, request, now)
        }

        async fn own(
            &mut self,
            _place: Option<&QueuePlace>,
            _now: &mut Moment,
        ) -> Result<OwnerHas<()>> {
            Ok(OwnerHas::Nothing)
        }

        fn kept(&mut self, _now: Moment, _has_waited: bool) -> LocalState {
            LocalState::Nothing
        }

        async fn attempt(
            &mut self,
            place: Option<&QueuePlace>,
            now: Moment,
        ) -> Result<Attempted<()>> {
            let place = place.expect("it is in the counter's queue");
            place.waiter.promise(now);
            self.counter.questions.fetch_add(1, Ordering::Relaxed);
            self.counter
                .core
                .clock
                .sleep_until(now + self.answer_time)
                .await;
            let mut free = self.counter.free.lock();
            if *free == 0 {
                return Ok(Attempted::Busy { at: 0, ttl: None });
            }
            *free -= 1;
            Ok(Attempted::Won(()))
        }

        fn give_up(&self, _end: TimedOut<'_>) -> Result<()> {
            Ok(())
        }
    }

    const POLL_CAP: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_waiter_without_a_hold_is_woken_and_takes_the_permit() {
        let counter = Counter::new(1);
        assert_eq!(counter.take(None).await.unwrap(), Some(()));
        let waiter = counter.taken(None);
        let began = Instant::now();
        tokio::time::sleep(Duration::from_secs(1)).await;
        counter.give();
        assert_eq!(waiter.await.unwrap().unwrap(), Some(()));
        assert_eq!(began.elapsed(), Duration::from_secs(1));
        assert_eq!(counter.questions(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn one_waiter_without_a_hold_contends_and_passes_its_turn_on() {
        let counter = Counter::new(0);
        let waiters: Vec<_> = (0..5).map(|_| counter.taken(None)).collect();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(counter.questions(), 1);
        waiters[0].abort();
        tokio::time::sleep(Duration::from_secs(1)).await;
        // The next waiter checks, because the aborted one may have been woken.
        assert_eq!(counter.questions(), 2);
        for (taken, waiter) in waiters.into_iter().skip(1).enumerate() {
            counter.give();
            assert_eq!(waiter.await.unwrap().unwrap(), Some(()));
            assert_eq!(counter.questions(), 3 + taken);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_without_a_hold_ends_at_its_deadline() {
        let counter = Counter::new(0);
        let began = Instant::now();
        let wait = Duration::from_millis(1500);
        assert_eq!(counter.take(Some(wait)).await.unwrap(), None);
        assert_eq!(began.elapsed(), wait);
        counter.core.close();
        let refused = counter.take(Some(wait)).await;
        assert!(matches!(refused, Err(Error::Closed)), "{refused:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_unpolled_contender_without_a_hold_loses_its_turn() {
        let counter = Counter::new(1);
        let mut left = pin!(counter.take_slowly(None, Duration::from_secs(5)));
        assert!(left.as_mut().now_or_never().is_none());
        let began = Instant::now();
        assert_eq!(counter.take(None).await.unwrap(), Some(()));
        assert!(began.elapsed() >= POLL_CAP);
        counter.give();
        assert_eq!(left.await.unwrap(), Some(()));
    }
}
