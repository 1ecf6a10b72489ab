//! A lock on many independent instances, held by whoever has a quorum of them.

mod acquire;
mod claim;
mod config;
mod contender;
mod deferred;
mod dispatch;
mod instance_answer;
mod lengthen;
mod listening;
mod lock_instance;
mod pending_query;
mod query;
mod quorum_hold;
mod registry;
mod renewal;
mod report;
mod state_guard;
mod unlock;
mod validity;

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::guard::Held;
use crate::lock::{Lock, any_lock};
use crate::request::{LockRequest, OwnerChoice, TryLockRequest};

use config::RedLockConfig;

/// A lock on many independent instances: whoever has more than half of them has it.
///
/// One Redis server that loses its data loses its locks. A RedLock is one lock kept on several servers
/// that have nothing to do with each other, so that it outlives the loss of some
/// of them. An *instance* is one of its locks on the server where that is. It behaves as a [`Lock`]
/// does: the same requests, the same [`Guard`](crate::Guard), re-entry, watchdog and
/// [`Guard::lost`](crate::Guard::lost). Corresponds to Redisson's `RedissonRedLock`, whose locks it
/// shares: Java services and this one exclude each other.
///
/// Every instance is asked in parallel, with a time limit of its own, and the answers of a quorum
/// decide: the round trip of the third-fastest of five, however slow the others are. What a round
/// acquired without a quorum is given back at once. The watchdog extends the leases in rounds, too,
/// and takes again what an instance has lost.
/// [`Guard::instances`](crate::Guard::instances) tells how each instance stands,
/// [`Guard::margin`](crate::Guard::margin) how many of them may forget it.
///
/// # Independent instances
///
/// Each lock should come from a [`Client`](crate::Client) of its own, connected to a server of its
/// own. Instances that share a server are allowed, and go down together: they make the lock no safer.
/// So is an even number of them: four instances survive the loss of one, as three do.
///
/// Build the clients with [`lazy`](crate::ClientBuilder::lazy), so that the service starts while one of
/// the servers is down, and [shut down](crate::Client::shutdown) each of them at its end.
///
/// # What is one RedLock
///
/// To an owner, the same locks of the same clients are the same RedLock, in whatever order and in
/// whatever `RedLock` value, with whatever [`RedLock::max_lease`] and [`RedLock::min_validity`]: a
/// nested acquire is a re-entry, and a forgotten hold is unlocked through any of them. With another
/// [`RedLock::masking`], or [`RedLock::fenced`] and not, they are different ones: a nested acquire
/// asks the instances, and needs its own quorum.
///
/// Each client is a holder of its own. Two sets of clients exclude each other in one process, too, so
/// make one set, and clone it. Re-entries are counted by this process; Redis shows 1.
///
/// # What it needs
///
/// Clocks that run at rates less than 1 % apart, and instances that keep a key until its TTL is over.
/// An instance that comes back may have lost what it acknowledged, so it does not count for
/// [`RedLock::max_lease`] after this client has seen that it is another than before.
/// [`RedLock::masking`] tolerates losses that no client saw. Where a late write must never get through,
/// whatever happens, take [`RedLock::fenced`] and let the resource refuse smaller tokens:
/// `docs/quorum.md` says what can and what cannot be promised.
///
/// # Examples
///
/// ```no_run
/// use lockdog::{Client, RedLock};
///
/// # async fn example() -> lockdog::Result<()> {
/// let mut locks = Vec::new();
/// for host in ["redis-a", "redis-b", "redis-c"] {
///     let url = format!("redis://{host}:6379");
///     let client = Client::builder().url(url).lazy(true).build().await?;
///     locks.push(client.lock("orders:42"));
/// }
/// let lock = RedLock::new(locks);
///
/// let guard = lock.lock().await?;
/// assert_eq!(guard.instances().len(), 3);
/// guard.unlock().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedLock {
    inner: Arc<RedLockConfig>,
    /// Who acquires, unless a request says otherwise.
    owner: OwnerChoice,
}

any_lock!(RedLock, knows);

impl RedLock {
    /// The lock that these locks make together. No locks, the same one twice, or clients of which only
    /// some have tokio's clock (see [`Time`](crate::config::Time)) are an error of each request. Corresponds to
    /// Redisson's `new RedissonRedLock(a, b, c)`.
    ///
    /// A RedLock is reentrant. A lock of
    /// [`Client::non_reentrant_lock`](crate::Client::non_reentrant_lock) among its instances is an error
    /// of each request, too. [`RedLock::exclusive`] gives a handle that never re-enters.
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Self {
        Self {
            inner: Arc::new(RedLockConfig::new(locks.into_iter().collect()).identified()),
            owner: OwnerChoice::Current,
        }
    }

    /// Tolerates up to `instances` (`f`) instances that silently lose an acknowledged lock. A quorum is
    /// `(N + f) / 2 + 1` of the N instances instead of `N / 2 + 1`: four of five for one.
    ///
    /// If N instances cannot tolerate `f`, each request returns an error. Defaults to 0. Redisson has no
    /// such setting.
    pub fn masking(self, instances: u32) -> Self {
        self.with_settings(|inner| inner.masked = instances as usize)
    }

    /// Has every acquire bring a fencing token: [`Guard::token`](crate::Guard::token), larger than
    /// those of all acquires that ended before this one began, and never the same twice. A re-entry
    /// keeps it. The resource has to refuse a token smaller than one it has seen.
    ///
    /// Costs one round trip more for each acquire. Each instance keeps a register for each lock, for
    /// 30 days after its last token.
    ///
    /// Defaults to none. Redisson's RedLock has nothing like it.
    pub fn fenced(self) -> Self {
        // So that `Client::diagnose` asks for what the registers need.
        for lock in self.locks() {
            if let Some(expected) = &lock.session().core().settings.expected {
                expected.expect_fencing();
            }
        }
        self.with_settings(|inner| inner.fenced = true)
    }

    /// The longest lease that anybody takes this lock for, in this service or another: an instance
    /// that came back, perhaps without its data, does not count until it is over, with 1 % and 2 s
    /// for clocks. Also the longest that can be asked for.
    ///
    /// Defaults to 120 s.
    pub fn max_lease(self, lease: Duration) -> Self {
        self.with_settings(|inner| inner.max_lease = lease)
    }

    /// The least validity of an acquire: a round does not count if less than this is left of the lease,
    /// minus the drift, when a quorum has granted. The drift is a hundredth of the lease and 2 ms.
    ///
    /// Defaults to nothing.
    pub fn min_validity(self, validity: Duration) -> Self {
        self.with_settings(|inner| inner.min_validity = validity)
    }

    /// A handle of the same lock whose acquires never re-enter: see [`Lock::exclusive`]. That an instance
    /// was given as an exclusive handle does not matter.
    #[must_use = "the handle that it was called on is as it was"]
    pub fn exclusive(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            owner: OwnerChoice::New,
        }
    }

    /// The names of its locks; one, if they all have the same. [`Guard::name`] is this.
    /// Redisson's `getName()` is not supported for its RedLock.
    ///
    /// [`Guard::name`]: crate::Guard::name
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// What it is made of, in the order in which it was given.
    pub fn locks(&self) -> &[Lock] {
        &self.inner.locks
    }

    /// Acquires the lock, waiting for it as long as it takes. Corresponds to Redisson's `lock()`, and
    /// with [`LockRequest::lease`] to `lock(lease, unit)`.
    ///
    /// Without a lease the watchdog extends the lock until it is unlocked; the lease is the shortest
    /// `watchdog_lease` of the clients.
    ///
    /// # Errors
    ///
    /// [`Error::NoQuorum`](crate::Error::NoQuorum) if too few instances could be asked for the whole
    /// command timeout. [`Error::Lost`](crate::Error::Lost) if this owner held the lock, has a guard of
    /// it still, and lost it. [`Error::Invalid`](crate::Error::Invalid) for locks, names or leases that
    /// cannot be used; [`Error::TooManyWaiters`](crate::Error::TooManyWaiters),
    /// [`Error::Closed`](crate::Error::Closed).
    ///
    /// # Cancel safety
    ///
    /// Cancelled at any point, what was acquired is given back in the background.
    pub fn lock(&self) -> LockRequest {
        LockRequest::new(self.inner.clone(), self.owner)
    }

    /// Acquires the lock if that can be done at once, or within
    /// [`TryLockRequest::wait`]. Corresponds to Redisson's `tryLock()`, `tryLock(wait, unit)` and
    /// `tryLock(wait, lease, unit)`.
    ///
    /// Answers `None` if others have so many instances that no quorum is left.
    ///
    /// # Errors
    ///
    /// As [`RedLock::lock`]. Too few instances that could be asked are an error, never `None`.
    ///
    /// # Cancel safety
    ///
    /// As [`RedLock::lock`].
    pub fn try_lock(&self) -> TryLockRequest {
        TryLockRequest::new(self.inner.clone(), self.owner)
    }

    /// Acquires the lock, does the work, unlocks: see [`Lock::with`].
    ///
    /// # Errors
    ///
    /// As [`Lock::with`] and [`RedLock::lock`].
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::with`].
    pub async fn with<F, Fut>(&self, work: F) -> Result<Fut::Output>
    where
        F: FnOnce(Held) -> Fut,
        Fut: Future,
    {
        self.lock().with(work).await
    }

    fn with_settings(self, change: impl FnOnce(&mut RedLockConfig)) -> Self {
        let mut inner = (*self.inner).clone();
        change(&mut inner);
        Self {
            inner: Arc::new(inner.identified()),
            ..self
        }
    }
}

/// As [`Client`](crate::Client).
impl UnwindSafe for RedLock {}
impl RefUnwindSafe for RedLock {}

impl fmt::Debug for RedLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedLock")
            .field("name", &self.name())
            .field("locks", &self.locks().len())
            .field("masking", &self.inner.masked)
            .field("fenced", &self.inner.fenced)
            .finish_non_exhaustive()
    }
}
