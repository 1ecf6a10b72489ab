//! A lock on several independent instances. The owner that has a quorum of them holds it.

mod acquire;
mod claim;
mod config;
mod contender;
mod deferred;
mod dispatch;
mod instance_acquire;
mod instance_answer;
mod judged_claim;
mod lengthen;
mod listening;
mod lock_instance;
mod observed;
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
use crate::lock_request::{LockRequest, OwnerChoice, TryLockRequest};

use config::RedLockConfig;

/// A lock on several independent instances. The owner that has more than half of them holds the lock.
/// Corresponds to Redisson's `RedissonRedLock`: Java services and this lock exclude each other.
///
/// If a Redis server loses its data, it loses its locks. A RedLock is one lock that is kept on several
/// independent servers, so it survives the loss of some of them. An *instance* is one of its locks, with
/// the server of that lock. A RedLock has the same requests as a [`Lock`], the same
/// [`Guard`](crate::Guard), re-entry and watchdog.
///
/// The clients ask all instances in parallel, each with its own time limit. The answers of a quorum decide.
/// So with five instances an acquire takes the round trip of the third fastest one, independent of slower
/// ones. If a round does not reach a quorum, the clients release immediately what it acquired. The watchdog
/// extends the leases in rounds too, and acquires again the instances that lost the lock.
/// [`Guard::instances`](crate::Guard::instances) returns the state of each instance.
/// [`Guard::margin`](crate::Guard::margin) returns how many of them may lose the lock without harm.
///
/// # Independent instances
///
/// Each lock should come from its own [`Client`](crate::Client), connected to its own server. Instances
/// may share a server, but they fail together with it, so they do not make the lock safer. An even number
/// of instances does not make it safer either: four instances survive the loss of one, as three do.
///
/// Build the clients with [`lazy`](crate::ClientBuilder::lazy), so that the service can start while one of
/// the servers is down. [Shut down](crate::Client::shutdown) each client at the end.
///
/// # Which values are the same RedLock
///
/// For an owner, two `RedLock` values with the same locks of the same clients are the same RedLock. The
/// order of the locks, [`RedLock::max_lease`] and [`RedLock::min_validity`] do not matter. A nested
/// acquire through the other value is a re-entry, and either value can unlock a forgotten hold.
///
/// Two values are different RedLocks if they differ in [`RedLock::masking`] or [`RedLock::fenced`]. A
/// nested acquire through the other value then asks the instances, and needs its own quorum.
///
/// Each client is a separate holder. Two sets of clients exclude each other also in one process, so build
/// one set and clone it. This process counts the re-entries; the count in Redis is 1.
///
/// # What it needs
///
/// The clock rates differ by less than 1 %, and each instance keeps a key until its TTL ends.
///
/// An instance that comes back may have lost the locks that it acknowledged. So it is in quarantine for
/// [`RedLock::max_lease`] after this client has detected that its identity changed: it does not count.
/// [`RedLock::masking`] tolerates losses that no client detected. If a late write must never succeed, use
/// [`RedLock::fenced`] and let the resource refuse smaller tokens. `docs/quorum.md` says what a RedLock
/// guarantees and what it does not.
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
    /// The owner that acquires, unless a request sets another one.
    owner: OwnerChoice,
}

any_lock!(RedLock, local);

impl RedLock {
    /// A RedLock with these locks as its instances. This call sends nothing. Corresponds to Redisson's
    /// `new RedissonRedLock(a, b, c)`.
    ///
    /// Each request returns [`Error::Invalid`](crate::Error::Invalid) if the locks are invalid:
    ///
    /// - there are no locks, or the same lock is given twice,
    /// - only some of their clients use tokio's clock (see [`Time`](crate::config::Time)),
    /// - one of them is a [`Client::non_reentrant_lock`](crate::Client::non_reentrant_lock), because a
    ///   RedLock is reentrant. [`RedLock::exclusive`] returns a handle that never re-enters,
    /// - one of them is a fair lock, because each server has a queue of its own,
    /// - one of them is a fenced lock, because its tokens do not order the holders of a quorum. Use
    ///   [`RedLock::fenced`],
    /// - one of them is a mode of a read/write lock or a lock of values of a group, because the quarantine and
    ///   the fencing tokens know one holder for each name.
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Self {
        Self {
            inner: Arc::new(RedLockConfig::new(locks.into_iter().collect()).identified()),
            owner: OwnerChoice::Current,
        }
    }

    /// Tolerates up to `instances` (`f`) instances that silently lose an acknowledged lock. A quorum is
    /// `(N + f) / 2 + 1` of the N instances instead of `N / 2 + 1`: four of five for one.
    ///
    /// If N instances cannot tolerate `f`, each request returns [`Error::Invalid`](crate::Error::Invalid).
    ///
    /// Defaults to 0. Redisson has no such setting.
    pub fn masking(self, instances: u32) -> Self {
        self.with_settings(|inner| inner.masked = instances as usize)
    }

    /// Gives each acquire a fencing token: [`Guard::token`](crate::Guard::token). The token is larger than
    /// those of all acquires that ended before this one began, and no token is used twice. A re-entry has
    /// the same token. The resource must refuse a token that is smaller than one it has seen.
    ///
    /// It costs one more round trip for each acquire. Each instance keeps a register for each lock until
    /// 30 days after the last token.
    ///
    /// Defaults to no tokens. Redisson's RedLock has no tokens.
    pub fn fenced(self) -> Self {
        // `Client::diagnose` then checks the permissions that the registers need.
        for lock in self.locks() {
            if let Some(expected) = &lock.session().core().settings.expected {
                // An instance without its register takes the token from its clock.
                expected.expect_fencing();
            }
        }
        self.with_settings(|inner| inner.fenced = true)
    }

    /// The longest lease that any service uses for this lock. An instance that came back, perhaps without
    /// its data, does not count for this time, plus 1 % and 2 s for differences of the clocks. A request
    /// with a longer lease returns [`Error::Invalid`](crate::Error::Invalid). So does a request without a lease if
    /// each client's `watchdog_lease` is longer. This time is at least 10 ms.
    ///
    /// Defaults to 120 s. In Redisson, an instance that came back counts immediately.
    pub fn max_lease(self, lease: Duration) -> Self {
        self.with_settings(|inner| inner.max_lease = lease)
    }

    /// The shortest time for which an acquired lock must be valid. A round does not count if less than this
    /// time is left when a quorum has granted. What is left is the lease, minus the time since the round began,
    /// minus the drift of a hundredth of the lease and 2 ms. If the lease minus the drift is not longer than this
    /// time, the request returns [`Error::Invalid`](crate::Error::Invalid).
    ///
    /// Defaults to zero. Redisson has no such setting.
    pub fn min_validity(self, validity: Duration) -> Self {
        self.with_settings(|inner| inner.min_validity = validity)
    }

    /// A handle of the same lock whose acquires never re-enter: see [`Lock::exclusive`]. An exclusive
    /// handle as an instance has no effect on the RedLock.
    #[must_use = "it returns a new handle and does not change this one"]
    pub fn exclusive(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            owner: OwnerChoice::New,
        }
    }

    /// The common name of its locks, or all names if they differ. [`Guard::name`] returns the same.
    /// Redisson's `getName()` does not support RedLocks.
    ///
    /// [`Guard::name`]: crate::Guard::name
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Its locks, in the order in which the caller gave them.
    pub fn locks(&self) -> &[Lock] {
        &self.inner.locks
    }

    /// Acquires the lock and waits for it without limit. Corresponds to Redisson's `lock()`, and with
    /// [`LockRequest::lease`] to `lock(lease, unit)`.
    ///
    /// Without a lease the watchdog extends the lock until it is unlocked. The lease is then the shortest
    /// `watchdog_lease` of the clients.
    ///
    /// # Errors
    ///
    /// - [`Error::NoQuorum`](crate::Error::NoQuorum) if too few instances gave a usable answer for the
    ///   whole command timeout.
    /// - [`Error::Lost`](crate::Error::Lost) if this owner held the lock, lost it, and still has a guard
    ///   of it. Drop that guard first.
    /// - [`Error::Invalid`](crate::Error::Invalid) for invalid locks, names or leases, and outside a tokio
    ///   runtime.
    /// - [`Error::TooManyWaiters`](crate::Error::TooManyWaiters) if a client has its maximum number of
    ///   waiters.
    /// - [`Error::Closed`](crate::Error::Closed) if too many of the clients are shut down, so that no
    ///   quorum is left.
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled at any point, the clients release in the background what they acquired.
    pub fn lock(&self) -> LockRequest {
        LockRequest::new(self.inner.clone(), self.owner)
    }

    /// Acquires the lock with one attempt, or within [`TryLockRequest::wait`]. Corresponds to Redisson's
    /// `tryLock()`, `tryLock(wait, unit)` and `tryLock(wait, lease, unit)`.
    ///
    /// Returns `None` if other owners have too many instances, so that no quorum is left. Keep the guard:
    /// `try_lock().await?.is_some()` drops it immediately. See [`Lock::try_lock`].
    ///
    /// # Errors
    ///
    /// As [`RedLock::lock`]. If too few instances can be reached, it returns an error, never `None`. It is
    /// [`Error::Timeout`](crate::Error::Timeout) if the wait ended before the instances had answered another call of
    /// this process, or before a quorum had extended the lease for a nested acquire.
    ///
    /// # Cancel safety
    ///
    /// As [`RedLock::lock`].
    pub fn try_lock(&self) -> TryLockRequest {
        TryLockRequest::new(self.inner.clone(), self.owner)
    }

    /// Acquires the lock, does the work, and unlocks: see [`Lock::with`].
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

/// See [`Client`](crate::Client).
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
