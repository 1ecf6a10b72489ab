//! The measurements of `benches/micro.rs`: the parts of lockdog that need no server.
//!
//! Built with `--cfg lockdog_bench` only, as `make micro` does. Not part of the crate's interface.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockdog_quorum::{Answer, Event, Quorum, Rules};
use tokio::sync::mpsc::UnboundedReceiver;
use uuid::Uuid;

use crate::background::{Background, Thread};
use crate::clock::testing::ShiftedClock;
use crate::clock::{Clock, Moment};
use crate::guard::Guard;
use crate::hold::{ClaimFlags, HandOverLimits, Hold, HoldState, Holds, Terms};
use crate::key::{LockKey, QueueTimeouts, kind};
use crate::observe::Observers;
use crate::owner::Owner;
use crate::server::{Address, Context, Endpoint, Server};
use crate::session::{Claim, ClientSettings, Core, Job, Reentry, Session};
use crate::wait::{WaitRequest, WaiterGuard, WaiterKind, Waiters, Wake};

/// The holds of one client, under its watchdog.
pub struct Watched {
    holds: Holds,
    clock: Clock,
    ahead: Arc<AtomicU64>,
    locks: u64,
}

impl Watched {
    /// Acquires `locks` locks, whose renewals are spread evenly over the period.
    pub fn new(locks: u64) -> Self {
        let ahead = Arc::new(AtomicU64::new(0));
        let clock = Clock::of(ShiftedClock(ahead.clone()));
        let watched = Self {
            holds: Holds::new(clock.clone(), false),
            clock,
            ahead,
            locks,
        };
        for number in 0..locks {
            watched.acquire(&key(number));
            watched.pass(1);
        }
        watched
    }

    /// Acquires one more lock and releases it.
    pub fn pair(&self) {
        let hold = self.acquire(&key(self.locks));
        self.holds.change(&hold, HoldState::end);
        self.holds.remove(&hold);
    }

    /// Renews the hundred locks that are due next. Returns how many they were.
    pub fn renew(&self) -> usize {
        self.pass(100);
        let batch = self.holds.due(LEASE, 100, Moment(0), Duration::ZERO).renew;
        let now = self.clock.now();
        for (hold, lease) in &batch {
            self.holds
                .change(hold, |state| state.renew(now, *lease, now));
        }
        batch.len()
    }

    fn acquire(&self, key: &Arc<LockKey>) -> Arc<Hold> {
        let hold = self.holds.enter(key, Owner::new());
        let now = self.clock.now();
        self.holds
            .change(&hold, |state| state.grant(now, &TERMS, now));
        hold
    }

    /// Advances the clock until this many renewals are due.
    fn pass(&self, renewals: u64) {
        let period = LEASE.as_nanos() as u64 / 3;
        self.ahead
            .fetch_add(renewals * period / self.locks, Ordering::Relaxed);
    }
}

/// One acquire of a lock on many instances.
pub struct Rounds {
    rules: Rules,
    clock: Clock,
}

impl Rounds {
    pub fn new(members: usize) -> Self {
        let rules = Rules {
            members,
            need: Rules::need(members, 0),
            reads: 0,
            lease: LEASE,
            renewed: true,
            min_validity: Duration::ZERO,
            max_until: Moment::NEVER,
        };
        let clock = Clock::default();
        Self { rules, clock }
    }

    /// Every instance grants, and then every grant is released.
    pub fn pair(&self) -> usize {
        let now = self.clock.now();
        let (mut quorum, asked) = Quorum::begin(self.rules.clone(), now);
        for member in 0..asked.len() {
            let event = Event::Answered {
                member,
                round: 1,
                answer: Answer::Taken(None),
            };
            quorum.step(event, now);
        }
        quorum.step(Event::Unlock, now).len()
    }
}

/// A client whose background does nothing.
pub struct Idle {
    session: Arc<Session>,
    jobs: UnboundedReceiver<Job>,
    _thread: Thread,
    locks: u64,
}

impl Default for Idle {
    fn default() -> Self {
        let clock = Clock::default();
        let (background, thread) = Background::start().expect("there is room for a thread");
        let context = Context {
            clock: clock.clone(),
            background,
            command_timeout: Duration::from_secs(3),
            watchdog_lease: LEASE,
            observers: Observers::default(),
        };
        // No command is sent, so no connection is opened.
        let endpoint = Endpoint::new(
            Some(Address::parse("redis://localhost").expect("it is a URL")),
            None,
            None,
            &context,
        )
        .expect("it is a URL");
        let server = Server::new(endpoint, context);
        let settings = ClientSettings {
            watchdog_lease: LEASE,
            poll_cap: Duration::from_secs(1),
            max_lease: LEASE,
            wake: Wake::PubSub,
            hand_overs: HandOverLimits {
                hand_overs: 16,
                time: Duration::from_millis(20),
            },
            queue_timeouts: QueueTimeouts::default(),
            reentry: Reentry::Counted,
            name_mapper: None,
            log_names: false,
            lock_group: None,
            quarantine_on_server: false,
            expected: None,
        };
        let (core, jobs) = Core::new(Uuid::new_v4(), settings, clock, server, 1);
        Self {
            session: Arc::new(Session::new(Arc::new(core))),
            jobs,
            _thread: thread,
            locks: 0,
        }
    }
}

impl Idle {
    /// A guard of a new lock. The jobs of the previous guard are discarded.
    pub fn guard(&mut self) -> Guard {
        while self.jobs.try_recv().is_ok() {}
        self.locks += 1;
        let core = self.session.core();
        let hold = core.holds.enter(&key(self.locks), Owner::new());
        let now = core.clock.now();
        core.holds
            .change(&hold, |state| state.grant(now, &TERMS, now));
        let share = ClaimFlags {
            watched: true,
            local: false,
            part: false,
            weight: 1,
        };
        Guard::new(Claim::new(self.session.clone(), hold, share))
    }
}

/// The waiters of one lock.
pub struct Queue {
    clock: Clock,
    waiters: Arc<Waiters>,
    key: Arc<LockKey>,
    places: VecDeque<WaiterGuard>,
}

impl Queue {
    /// A queue with this many waiters.
    pub fn new(waiting: usize) -> Self {
        let cap = Duration::from_secs(1);
        let clock = Clock::default();
        let mut queue = Self {
            waiters: Arc::new(Waiters::new(
                Uuid::nil(),
                clock.clone(),
                cap,
                waiting as u32,
                true,
            )),
            clock,
            key: key(0),
            places: VecDeque::new(),
        };
        for _ in 0..waiting {
            queue.enter();
        }
        queue
    }

    /// The first waiter leaves, the next one gets the role, and the first one joins at the end.
    pub fn hand_over(&mut self) {
        drop(self.places.pop_front());
        let now = self.clock.now();
        let is_next = |place: &WaiterGuard| place.check_in(now).is_contender;
        assert!(self.places.front().is_some_and(is_next));
        self.enter();
    }

    fn enter(&mut self) {
        let request = WaitRequest {
            owner: Owner::new(),
            terms: Some(TERMS),
            deadline: None,
            kind: WaiterKind::Sole,
        };
        let place = self.waiters.enter(&self.key, request, self.clock.now());
        self.places.push_back(place.expect("there is room"));
    }
}

fn key(number: u64) -> Arc<LockKey> {
    let key = LockKey::new(&kind::PLAIN, &format!("orders:{number}"), None);
    Arc::new(key.expect("it is a name"))
}

const LEASE: Duration = Duration::from_secs(30);

const TERMS: Terms = Terms {
    lease: LEASE,
    watched: true,
    max_hold: None,
    local: false,
    at_least: None,
};
