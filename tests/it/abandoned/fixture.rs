//! The clients and locks of one case.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::{join_all, try_join_all};
use lockdog::request::{LockRequest, TryLockRequest, UnlockRequest};
use lockdog::{
    Client, CountDownLatch, Election, Guard, Held, Lock, MultiLock, Owner, PermitSemaphore,
    ReadWriteLock, RedLock, Result, Semaphore, Value,
};

use super::site::Site;
use super::{LEASE, TIMEOUT};
use crate::support::{Cell, Redis};

/// The parts of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// One key on one server.
    Plain,
    /// One key on one server, with a queue on the server.
    Fair,
    /// Two values of a group on one server.
    Group,
    /// Two keys on one server.
    Multi,
    /// One key on three servers.
    Quorum,
}

/// A lock of any of these shapes.
#[derive(Clone)]
pub(super) enum AnyLock {
    Plain(Lock),
    Multi(MultiLock),
    Quorum(RedLock),
}

/// The clients and keys of a case.
pub(super) struct Fixture {
    pub(super) site: Arc<Site>,
    pub(super) shape: Shape,
    /// The prefix of all its keys, and the name of its connections.
    pub(super) name: String,
    pub(super) clients: Vec<Client>,
    /// Written by the holder of the lock.
    cell: Cell,
    written: AtomicI64,
    /// The number of owners that have seen themselves hold the lock.
    inside: AtomicUsize,
}

/// An owner holds the lock until this is dropped.
pub(super) struct Inside(Arc<Fixture>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

pub(super) type Checked<T> = std::result::Result<T, String>;

impl Fixture {
    pub(super) async fn new(site: Arc<Site>, shape: Shape, name: String) -> Checked<Arc<Self>> {
        let clients = site.builders(&name).into_iter().map(|it| it.build());
        let clients = try_join_all(clients).await;
        Ok(Arc::new(Self {
            clients: clients.map_err(|error| format!("no client: {error}"))?,
            site,
            shape,
            name,
            cell: Cell::new(),
            written: AtomicI64::new(0),
            inside: AtomicUsize::new(0),
        }))
    }

    /// The lock that the case is about.
    pub(super) fn lock(&self) -> AnyLock {
        self.lock_named("it")
    }

    /// A lock of the case's shape.
    pub(super) fn lock_named(&self, name: &str) -> AnyLock {
        let at = |client: &Client, name: &str| client.lock(self.key(name));
        match self.shape {
            Shape::Plain => AnyLock::Plain(at(&self.clients[0], name)),
            Shape::Fair => AnyLock::Plain(self.clients[0].fair_lock(self.key(name))),
            Shape::Group => {
                let values = VALUES.map(|(value, _)| Value::utf8(value));
                AnyLock::Plain(self.clients[0].group_lock(self.key(name), values))
            }
            Shape::Multi => {
                let names = [format!("{name}.1"), format!("{name}.2")];
                let locks = names.iter().map(|name| at(&self.clients[0], name));
                AnyLock::Multi(MultiLock::new(locks))
            }
            Shape::Quorum => {
                let locks = self.clients.iter().map(|client| at(client, name));
                AnyLock::Quorum(RedLock::new(locks))
            }
        }
    }

    /// The lock as a plain lock.
    pub(super) fn plain(&self) -> Lock {
        self.clients[0].lock(self.key("it"))
    }

    /// A fenced lock of another name.
    pub(super) fn fenced(&self) -> Lock {
        self.clients[0].fenced_lock(self.key("fenced"))
    }

    /// A spin lock of another name.
    pub(super) fn spin(&self) -> Lock {
        self.clients[0].spin_lock(self.key("spin"))
    }

    /// A non-reentrant lock of another name.
    pub(super) fn non_reentrant(&self) -> Lock {
        self.clients[0].non_reentrant_lock(self.key("non-reentrant"))
    }

    /// A read/write lock of another name.
    pub(super) fn read_write(&self) -> ReadWriteLock {
        self.clients[0].read_write_lock(self.key("rw"))
    }

    /// A semaphore with this many free permits, all of which are released at the end.
    pub(super) async fn seats(&self, free: u32) -> PermitSemaphore {
        self.semaphore(SEATS, free).await
    }

    /// A semaphore whose permits may stay in use.
    pub(super) async fn left_seats(&self, free: u32) -> PermitSemaphore {
        self.semaphore(LEFT_SEATS, free).await
    }

    /// A semaphore without leases that has this many free permits, all of which are released at the end.
    pub(super) async fn counted(&self, free: u32) -> Semaphore {
        let name = self.set(COUNTED, free).await;
        self.clients[0].semaphore(name)
    }

    /// A latch whose count may be above zero at the end.
    pub(super) fn latch(&self) -> CountDownLatch {
        self.clients[0].count_down_latch(self.key(LATCH))
    }

    /// An election of another name.
    pub(super) fn election(&self) -> Election {
        self.clients[0].election(self.key("election"))
    }

    async fn semaphore(&self, name: &str, free: u32) -> PermitSemaphore {
        let name = self.set(name, free).await;
        self.clients[0].permit_semaphore(name)
    }

    async fn set(&self, name: &str, free: u32) -> String {
        let name = self.key(name);
        for view in &self.site.views {
            view.cmd(&["SET", &name, &free.to_string()]).await;
        }
        name
    }

    fn key(&self, name: &str) -> String {
        format!("{}:{name}", self.name)
    }

    /// The keys of the lock that the case is about.
    fn keys(&self) -> Vec<String> {
        match self.shape {
            Shape::Plain | Shape::Fair | Shape::Group | Shape::Quorum => vec![self.key("it")],
            Shape::Multi => vec![self.key("it.1"), self.key("it.2")],
        }
    }

    /// Another process acquires the lock.
    pub(super) async fn take_by_another(&self) {
        for view in &self.site.views {
            for key in self.keys() {
                view.cmd(&["HSET", &key, "somebody:1", "1"]).await;
                view.cmd(&["PEXPIRE", &key, "120000"]).await;
                if self.shape == Shape::Group {
                    // Behind `somebody:1`, which is not a value, so that its release is like that of the
                    // others.
                    let [ends, count] =
                        ["expire_time", "lock_count"].map(|it| format!("{NAME}:somebody:1:{it}"));
                    let fields = [NAME, "somebody:1", &ends, "9000000000000", &count, "1"];
                    view.cmd(&[&["HSET", &*key][..], &fields].concat()).await;
                }
            }
        }
    }

    /// The other process releases the lock, if it still holds it.
    pub(super) async fn release_by_another(&self) {
        for view in &self.site.views {
            for key in self.keys() {
                let script = "if redis.call('hdel', KEYS[1], 'somebody:1') == 1 then \
                              for _, it in ipairs({ '', ':somebody:1:expire_time', ':somebody:1:lock_count' }) \
                              do redis.call('hdel', KEYS[1], ARGV[2] .. it) end \
                              redis.call('publish', ARGV[1], '0') end return 0";
                let channel = format!("redisson_lock__channel:{{{key}}}");
                view.cmd(&["EVAL", script, "1", &key, &channel, NAME]).await;
            }
        }
    }

    pub(super) fn enter(self: &Arc<Self>) -> Inside {
        self.inside.fetch_add(1, Ordering::SeqCst);
        Inside(self.clone())
    }

    pub(super) fn is_inside(&self) -> bool {
        self.inside.load(Ordering::SeqCst) > 0
    }

    /// Reads, sleeps and writes, as the holder of the lock.
    pub(super) async fn write(self: &Arc<Self>) {
        let _inside = self.enter();
        self.cell.bump(Duration::from_millis(3)).await;
        self.written.fetch_add(1, Ordering::SeqCst);
    }

    /// Uses an acquired lock, checks in Redis who holds it, and unlocks it.
    pub(super) async fn use_once(self: &Arc<Self>, guard: Guard) -> Checked<()> {
        if !guard.is_valid() {
            return Err("the guard is not valid".to_owned());
        }
        self.write().await;
        let mut granted = 0;
        for (view, client) in self.site.views.iter().zip(&self.clients) {
            let mut is_ours = true;
            for key in self.keys() {
                let fields = view.hash(&key).await;
                let begin = format!("{}:", client.id());
                is_ours &= match self.shape {
                    Shape::Group => VALUES.iter().all(|(_, name)| {
                        let owner = fields.get(*name);
                        owner.is_some_and(|owner| owner.starts_with(&begin))
                    }),
                    _ => fields.len() == 1 && fields.keys().all(|it| it.starts_with(&begin)),
                };
            }
            granted += usize::from(is_ours);
        }
        if granted <= self.clients.len() / 2 && guard.is_valid() {
            return Err(format!(
                "a valid guard, and {granted} servers have its field"
            ));
        }
        let unlocked = guard.unlock().await;
        unlocked
            .map(drop)
            .map_err(|error| format!("unlock: {error}"))
    }

    /// Acquires the lock with a new owner, uses it and releases it.
    pub(super) async fn take(self: Arc<Self>) -> Checked<()> {
        let guard = tokio::time::timeout(PASSED_ON, self.acquire("it")).await;
        let guard = guard.map_err(|_| format!("not acquired within {PASSED_ON:?}"))?;
        self.use_once(guard?).await
    }

    /// Acquires a lock with a new owner. It repeats attempts that a busy machine answers too late: the
    /// servers of a quorum have 200 ms.
    pub(super) async fn acquire(&self, name: &str) -> Checked<Guard> {
        let began = Instant::now();
        loop {
            match self.lock_named(name).lock().owner(&Owner::new()).await {
                Ok(guard) => return Ok(guard),
                Err(error) if error.is_retriable() && began.elapsed() < PASSED_ON => {}
                Err(error) => return Err(format!("{name:?} not acquired: {error}")),
            }
        }
    }

    /// Acquires a free lock some times. Each acquire must succeed, and one must be quick.
    pub(super) async fn take_other(self: Arc<Self>, name: &str) -> Checked<()> {
        let mut quickest = Duration::MAX;
        for _ in 0..3 {
            let before = Instant::now();
            let unlocked = self.acquire(name).await?.unlock().await;
            unlocked.map_err(|error| format!("unlock of another lock: {error}"))?;
            quickest = quickest.min(before.elapsed());
            if quickest < TIMEOUT / 2 {
                return Ok(());
            }
        }
        Err(format!("another lock took {quickest:?} at least"))
    }

    /// No other owner acquires the lock while it is held. Repeated until its servers answer.
    pub(super) async fn is_kept(&self, is_held: impl Fn() -> bool) -> Checked<()> {
        let began = Instant::now();
        loop {
            match self.lock().try_lock().owner(&Owner::new()).await {
                Ok(None) => return Ok(()),
                Ok(Some(_)) if !is_held() => return Ok(()),
                Ok(Some(_)) => return Err("the lock is held, and another got it".to_owned()),
                // A lock of several servers fails early while the client reconnects to them.
                Err(error) if error.is_retriable() && began.elapsed() < PASSED_ON => {}
                Err(error) => return Err(format!("try_lock of a held lock: {error}")),
            }
        }
    }

    /// The keys of the case on the servers.
    pub(super) async fn left_behind(&self) -> Vec<String> {
        let pattern = format!("{}:", self.name);
        for view in &self.site.views {
            // An expired permit stays in the set until the next acquire.
            let now: Vec<u64> = view.ask(&["TIME"]).await;
            let now = (now[0] * 1_000 + now[1] / 1_000).to_string();
            let in_use = format!("{{{}}}:timeout", self.key(SEATS));
            view.cmd(&["ZREMRANGEBYSCORE", &in_use, "-inf", &now]).await;
        }
        let keys = join_all(self.site.views.iter().map(Redis::keys)).await;
        let mut keys: Vec<String> = keys.into_iter().flatten().collect();
        // The number of a semaphore's permits stays. The key of the set of permits in use begins with a
        // brace.
        let [seats, left_seats, counted, latch] =
            [SEATS, LEFT_SEATS, COUNTED, LATCH].map(|it| self.key(it));
        keys.retain(|key| {
            let is_ours = key.trim_start_matches('{').starts_with(&pattern)
                || LINES
                    .iter()
                    .any(|line| key.starts_with(&format!("{line}:{{{pattern}")));
            is_ours && ![&seats, &counted, &latch].contains(&key) && !key.contains(&left_seats)
        });
        // The ledger stays for an hour. No request in it may have permits.
        let ledger = format!("lockdog_ledger:{{{counted}}}");
        for view in &self.site.views {
            let shares = ["ZRANGEBYSCORE", &ledger, "1", "2147483647"];
            keys.extend(view.ask::<Vec<String>>(&shares).await);
        }
        keys
    }

    /// No owner wrote while another did.
    pub(super) fn check_exclusion(&self) -> Checked<()> {
        let (written, value) = (self.written.load(Ordering::SeqCst), self.cell.value());
        if value != written {
            return Err(format!(
                "two held the lock: {written} wrote, and {value} is seen"
            ));
        }
        Ok(())
    }
}

/// The prefixes of the keys of a queue, of a leader's value, and of an announcement.
const LINES: [&str; 5] = [
    "redisson_lock_queue",
    "redisson_lock_timeout",
    "lockdog_fair",
    "lockdog_leader",
    "lockdog_writer",
];

pub(super) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl AnyLock {
    pub(super) fn lock(&self) -> LockRequest {
        match self {
            Self::Plain(lock) => lock.lock(),
            Self::Multi(lock) => lock.lock(),
            Self::Quorum(lock) => lock.lock(),
        }
    }

    pub(super) fn try_lock(&self) -> TryLockRequest {
        match self {
            Self::Plain(lock) => lock.try_lock(),
            Self::Multi(lock) => lock.try_lock(),
            Self::Quorum(lock) => lock.try_lock(),
        }
    }

    pub(super) fn unlock(&self) -> UnlockRequest {
        match self {
            Self::Plain(lock) => lock.unlock(),
            Self::Multi(lock) => lock.unlock(),
            Self::Quorum(lock) => lock.unlock(),
        }
    }

    pub(super) fn with(self, test: Arc<Fixture>) -> Boxed<Result<()>> {
        Box::pin(async move {
            let work = |_: Held| async move { test.write().await };
            match &self {
                Self::Plain(lock) => lock.with(work).await,
                Self::Multi(lock) => lock.with(work).await,
                Self::Quorum(lock) => lock.with(work).await,
            }
        })
    }
}

/// Values of a group, and their names in the hash.
const VALUES: [(&str, &str); 2] = [("Jack", NAME), ("Mary", "sjTXY8l/3Co3g7TNLma+qg")];
/// The value that another process acquires.
const NAME: &str = "r4Izj6gYWbW5+IXpDzUSZA";

const SEATS: &str = "seats";
const LEFT_SEATS: &str = "left-seats";
const COUNTED: &str = "counted";
const LATCH: &str = "latch";

/// A role or a grant that no waiter reads passes on after the poll cap and a second, and a grant that the
/// client cannot read after its lease. This is far longer than both.
const PASSED_ON: Duration = LEASE.saturating_mul(4);
