//! The wait for what others have, written once: try, subscribe, try again, then wait for a message, a
//! hand-over or a timer.
//!
//! What is waited for is a [`Contender`]: a lock, all of several locks, a quorum of instances. The loop
//! keeps the invariants 8, 9 and 10 of the design for each of them: every wait has a timer, one contender
//! of a client asks for all, and one deadline bounds the whole call.

mod answer;
mod beside;
mod contest;
mod long_wait;
mod stand_by;

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::error::{Error, Result};
use crate::hold::Hold;
use crate::owner::Owner;
use crate::session::Core;
use crate::wait::{Backoff, HandedOver, WaiterGuard};

pub(crate) use contest::contend;

/// What a call waits for, and how it asks for that.
///
/// A contender may stand in one of several queues, one at a time; `at` says which. The clients of these
/// queues may have clocks of their own, so each moment here is one of the client where the contender
/// stands, or of `core(None)` while it stands nowhere.
pub(crate) trait Contender: Send {
    /// What a call that waited has in the end.
    type Won: Send;

    /// Whether a waiter asks the server itself, just before its deadline, if the contender of its client
    /// has no answer and is not polled. Right where one command is enough to ask.
    const ASKS_BESIDE: bool = false;

    /// An error if a client that it needs was shut down.
    fn ensure_open(&self) -> Result<()>;

    /// The client in whose queue it stands.
    fn core(&self, at: Option<usize>) -> &Arc<Core>;

    /// When the call has to be over; `None` if it may wait for ever.
    fn deadline(&self, at: Option<usize>) -> Option<Moment>;

    /// The pauses after which it asks again; `None` if messages wake it.
    fn backoff(&self, at: usize) -> Option<Backoff>;

    /// Takes the last place in a queue.
    fn enter(&mut self, at: usize, now: Moment) -> Result<WaiterGuard>;

    /// What its owner has already. Sets `now` again if that took time.
    fn own(
        &mut self,
        place: Option<&QueuePlace>,
        now: &mut Moment,
    ) -> impl Future<Output = Result<OwnerHas<Self::Won>>> + Send;

    /// Who wants it.
    fn owner(&self) -> Option<Owner> {
        None
    }

    /// The hold of another owner of the same client that keeps it from this one, if there is one.
    fn local_holder(&self) -> Option<Arc<Hold>> {
        None
    }

    /// Why it is of no use to ask the server now: its own client keeps what it wants, or is about to
    /// release it. `has_waited` if it has just waited for a release.
    fn kept(&mut self, now: Moment, has_waited: bool) -> LocalState;

    /// Asks for it. Before the first command leaves, its place is told what is under way, or up to when
    /// something is ([`WaiterGuard::attempting`], [`WaiterGuard::promise`]), so that others can take over from a
    /// future that is not polled.
    ///
    /// # Cancel safety
    ///
    /// What was asked for is undone in the background.
    fn attempt(
        &mut self,
        place: Option<&QueuePlace>,
        now: Moment,
    ) -> impl Future<Output = Result<Attempted<Self::Won>>> + Send;

    /// Asks once without the contender's role; see [`Contender::ASKS_BESIDE`].
    fn ask_beside(
        &mut self,
        _now: Moment,
    ) -> impl Future<Output = Result<Attempted<Self::Won>>> + Send {
        async { Ok(Attempted::Unasked) }
    }

    /// Takes in what another owner of this client handed to it. Nothing is handed to a waiter whose wish
    /// has no terms.
    fn take_in(
        &mut self,
        _seat: &QueuePlace,
        _handed: HandedOver,
    ) -> impl Future<Output = Result<Attempted<Self::Won>>> + Send {
        async { Ok(Attempted::Unasked) }
    }

    /// Undoes what was handed to a waiter that leaves.
    fn decline(&self, _handed: HandedOver) {}

    /// It leaves with what it waited for.
    fn leave_with(&self, waiter: &WaiterGuard) {
        waiter.has_lock();
    }

    /// Waits in its place until there is something to look at, but not beyond `until`.
    fn park(
        &mut self,
        place: &QueuePlace,
        until: Moment,
    ) -> impl Future<Output = Result<()>> + Send {
        place.waiter.wait(until)
    }

    /// Says of an error of its queue's server where that was, if the caller has to be told.
    fn about(&self, _at: usize, error: Error) -> Error {
        error
    }

    /// The time is over: an error if it is not known that others have what it wants.
    fn give_up(&self, end: TimedOut<'_>) -> Result<()>;
}

/// A contender's place in a queue.
pub(crate) struct QueuePlace {
    /// Which of its queues.
    pub(crate) at: usize,
    pub(crate) waiter: WaiterGuard,
    /// The messages of this queue cannot be had.
    is_deaf: bool,
}

/// What an owner has already of what it waits for.
pub(crate) enum OwnerHas<W> {
    /// All of it: it is acquired once more.
    Has(W),
    /// What it stands in the queue for. It need not wait for its turn to ask for the rest.
    Part,
    Nothing,
}

/// What a client itself does with what one of its callers waits for.
pub(crate) enum LocalState {
    Nothing,
    /// It has it for so long, unless it is released before.
    For {
        at: usize,
        left: Duration,
    },
    /// It is releasing it. It is asked for all the same if that takes longer than `patience`.
    Releasing {
        at: usize,
        patience: Duration,
    },
    /// Something has to be looked at from the beginning.
    Again,
}

/// What came of asking.
pub(crate) enum Attempted<W> {
    Won(W),
    /// Others have it; the TTL of what they have, if it has one. It is waited for in this queue.
    Busy {
        at: usize,
        ttl: Option<Duration>,
    },
    /// Others want the same things in another order. It gets out of their way for this long, in no queue.
    Collided(Duration),
    /// Others have it. The contender hears of that itself, and looks again at this moment, or at once.
    Taken {
        again: Option<Moment>,
    },
    /// It is of no use to ask before this moment.
    NotYet(Moment),
    /// It was granted, and answered after its own deadline: this is no grant. The error is for a caller
    /// that would ask for ever.
    TooLate(Error),
    /// It was answered and has nothing: as if it had not asked yet.
    Again,
    /// There was no reason to ask, or somebody else has asked.
    Unasked,
    Failed(Failed),
}

/// Why a server did not answer, or refused.
pub(crate) struct Failed {
    /// For the others in its queue.
    pub(crate) error: Error,
    /// The same for its caller, with the names of what it is about.
    pub(crate) named: Error,
    /// The server had a whole command timeout. One that had less says that the caller had no more time,
    /// not that the server does not answer.
    pub(crate) was_patient: bool,
    /// The end of the wait cut the attempt off, which had taken so long by then.
    pub(crate) cut_off_after: Option<Duration>,
    /// It is about another server than that of its queue.
    pub(crate) is_elsewhere: bool,
    /// When the contender itself will ask again, with or without a deadline. `None`: after a moment, if
    /// it has a deadline; else its caller has the error.
    pub(crate) again: Option<Moment>,
}

/// What a waiter knows when its time is over.
pub(crate) struct TimedOut<'a> {
    pub(crate) place: Option<&'a QueuePlace>,
    pub(crate) now: Moment,
    /// The server has told this waiter itself, beside its contender, that others have it.
    pub(crate) is_told_busy: bool,
    /// Its own client has been releasing it for longer than a busy server takes.
    pub(crate) is_unreleased: bool,
    /// What this waiter itself met when it asked last.
    pub(crate) outage: Option<Error>,
}

impl TimedOut<'_> {
    /// The hold that the contender of its client asks for, if that has had no answer for most of the
    /// time that this call has `waited`.
    pub(crate) fn silent(&self, waited: Duration) -> Option<Arc<Hold>> {
        silent_contender(self.place?, self.now, waited)
    }
}

/// The hold that the contender of this queue asks for, if by `then` that will have had no answer for more
/// than half of a wait. A question that is younger may still be answered.
fn silent_contender(place: &QueuePlace, then: Moment, wait: Duration) -> Option<Arc<Hold>> {
    let (silence, hold) = place.waiter.silent_contender(then)?;
    (silence >= SILENCE.max(wait / 2)).then_some(hold)
}

/// A question without an answer for this long is more than a busy server.
const SILENCE: Duration = Duration::from_millis(50);

/// With less time than this left, a waiter that knows that others have it asks no more: the answer would
/// come too late, and what it grants would have to be undone.
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(1);

/// The pause after a server that did not answer, or refused.
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
    use crate::background::Background;
    use crate::clock::Clock;
    use crate::hold::HandOverLimits;
    use crate::key::LockKey;
    use crate::server::{Address, Context, Endpoint, Server};
    use crate::session::{Reentry, Settings};
    use crate::wait::{WaitRequest, Wake};

    /// A counter of permits, as a semaphore has it: whoever takes one has no hold, and anybody may give
    /// it back.
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
                core: core(),
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
            let wish = WaitRequest {
                owner: Owner::new(),
                terms: None,
                deadline: self.deadline,
            };
            let counter = &self.counter;
            counter.core.waiters.enter(&counter.key, wish, now)
        }

        async fn own(
            &mut self,
            _seat: Option<&QueuePlace>,
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
            let place = place.expect("it stands in the counter's queue");
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

    fn core() -> Arc<Core> {
        let clock = Clock::of_tokio();
        let context = Context {
            clock: clock.clone(),
            background: Background::here(),
            command_timeout: Duration::from_secs(3),
        };
        // Nothing is sent, so nobody connects.
        let address = Address::parse("redis://localhost").expect("it is a URL");
        let source = Endpoint::new(Some(address), None, None, &context).expect("it is a URL");
        let server = Server::new(source, context, Duration::from_secs(30));
        let settings = Settings {
            watchdog_lease: Duration::from_secs(30),
            poll_cap: POLL_CAP,
            max_lease: Duration::from_secs(60),
            wake: Wake::PubSub,
            hand_overs: HandOverLimits {
                hand_overs: 16,
                time: Duration::from_millis(20),
            },
            reentry: Reentry::Counted,
            name_mapper: None,
            quarantine_on_server: false,
            expected: None,
        };
        Arc::new(Core::new(settings, clock, server, 100).0)
    }

    const POLL_CAP: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_waiter_without_a_hold_is_woken_and_gets_what_it_waits_for() {
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
    async fn of_waiters_without_a_hold_one_asks_and_each_passes_its_turn_on() {
        let counter = Counter::new(0);
        let waiters: Vec<_> = (0..5).map(|_| counter.taken(None)).collect();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(counter.questions(), 1);
        waiters[0].abort();
        tokio::time::sleep(Duration::from_secs(1)).await;
        // The next in line looks, because the one before may have been told something.
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
    async fn a_contender_without_a_hold_that_is_not_polled_loses_its_turn() {
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
