//! The lock on a server, and the wait for it.

mod acquire;
mod any_lock;
mod contender;
mod holder;
mod query;
mod request;
mod unlock;

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::guard::Held;
use crate::key::{Kind, LockKey};
use crate::request::{LockRequest, OwnerChoice, TryLockRequest};
use crate::session::Session;
use crate::wait::Backoff;

pub(crate) use acquire::released;
pub use any_lock::AnyLock;
pub(crate) use any_lock::{any_lock, sealed::Sealed};
pub use holder::{HolderInfo, Ttl};
pub use query::HoldInfo;
pub use unlock::ForceUnlockRequest;

/// A lock on a server: reentrant, leased, shared with Redisson's `RLock` of the same name.
///
/// A handle: making and cloning it costs nothing on the server, any number of handles of one name
/// are the same lock, and each keeps its client alive.
///
/// # Panics
///
/// On a runtime without timers every call panics, and on one without I/O it cannot connect: build it
/// with `enable_all()`.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
///
/// # async fn example(client: lockdog::Client) -> lockdog::Result<()> {
/// let lock = client.lock("orders:42");
///
/// let guard = lock.lock().await?;
/// // The same task may lock again: the hold counts.
/// let again = lock.lock().await?;
/// assert_eq!(again.hold_count(), 2);
/// again.unlock().await?;
/// guard.unlock().await?;
///
/// match lock.try_lock().wait(Duration::from_secs(1)).await? {
///     Some(guard) => drop(guard),
///     None => println!("busy"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Lock {
    inner: Arc<Inner>,
    /// Who acquires, unless a request says otherwise.
    owner: OwnerChoice,
}

/// What the handles and requests of one lock share.
struct Inner {
    session: Arc<Session>,
    name: Box<str>,
    /// A name that cannot be used is an error of each request.
    key: Result<Arc<LockKey>>,
    /// How its waiters ask again, if not as the client's do.
    backoff: Option<Backoff>,
}

impl Lock {
    pub(crate) fn new(session: Arc<Session>, kind: &'static Kind, name: &str) -> Self {
        let mapper = session.core().settings.name_mapper.as_ref();
        let is_cluster = session.core().server.is_cluster();
        let key = LockKey::new(kind, name, mapper).and_then(|key| match is_cluster {
            true => key.check_slot(),
            false => Ok(key),
        });
        let key = key.map(Arc::new);
        let name = name.into();
        Self {
            inner: Arc::new(Inner {
                session,
                name,
                key,
                backoff: None,
            }),
            owner: OwnerChoice::Current,
        }
    }

    /// The name, as it was asked for. Corresponds to Redisson's `getName()`.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// A handle of the same lock whose waiters ask again and again, with these pauses, and listen for no
    /// message: as [`Wake::Poll`](crate::config::Wake::Poll), for this handle alone.
    ///
    /// No pause is longer than the client's `poll_cap`. A [`MultiLock`](crate::MultiLock) of this handle
    /// takes the pauses over while it waits for this member. A [`RedLock`](crate::RedLock) takes the
    /// shortest pause of its instances that poll. Corresponds to the back-off of Redisson's
    /// `getSpinLock(name, backOff)`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use lockdog::config::Backoff;
    ///
    /// # async fn example(client: lockdog::Client) -> lockdog::Result<()> {
    /// let lock = client.lock("orders:42").backoff(Backoff::constant(Duration::from_millis(64)));
    /// lock.lock().await?.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "the handle that it was called on is as it was"]
    pub fn backoff(&self, backoff: Backoff) -> Self {
        Self {
            inner: Arc::new(Inner {
                session: self.inner.session.clone(),
                name: self.inner.name.clone(),
                key: self.inner.key.clone(),
                backoff: Some(backoff),
            }),
            owner: self.owner,
        }
    }

    /// A handle of the same lock whose acquires never re-enter: each has an [`Owner`] of its own.
    ///
    /// Use it where one task runs several branches that must exclude each other: `join!`, `select!`,
    /// `for_each_concurrent`. Without it they are one owner, and all of them get the lock at once.
    /// A request's own [`owner`](LockRequest::owner) goes before it.
    ///
    /// Only guards end what this handle acquires: [`unlock`](Self::unlock), [`is_held`](Self::is_held)
    /// and [`hold_count`](Self::hold_count) are about the current owner, which holds nothing through it.
    /// Nested calls through it wait for themselves, as with a `tokio::sync::Mutex`. Redisson has no
    /// such handle: its threads exclude each other.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: lockdog::Client) -> lockdog::Result<()> {
    /// let lock = client.lock("orders:42").exclusive();
    /// // One after the other, though both run in this task.
    /// let (first, second) = tokio::join!(lock.with(|_| async { 1 }), lock.with(|_| async { 2 }));
    /// assert_eq!(first? + second?, 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [`Owner`]: crate::Owner
    #[must_use = "the handle that it was called on is as it was"]
    pub fn exclusive(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            owner: OwnerChoice::New,
        }
    }

    /// Acquires the lock, waiting for it as long as it takes. Corresponds to Redisson's `lock()`,
    /// and with [`LockRequest::lease`] to `lock(lease, unit)`.
    ///
    /// Without a lease the watchdog renews the lock until it is unlocked.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] if this owner held the lock, has a guard of it still, and lost it: drop that
    /// guard first.
    /// [`Error::Timeout`], [`Error::Unavailable`] or a retriable [`Error::Refused`] if the server
    /// could not be asked for the whole command timeout; [`Error::NotReplicated`] if too few replicas
    /// have it in time ([`ReplicaAck::Require`](crate::config::ReplicaAck::Require)).
    /// [`Error::Refused`] if it does not allow it, [`Error::Invalid`] for a bad name or lease and
    /// outside a tokio runtime,
    /// [`Error::AlreadyHeld`] if this owner holds a lock of a kind that does not re-enter;
    /// [`Error::TooManyWaiters`], [`Error::Closed`].
    ///
    /// # Cancel safety
    ///
    /// Cancelled at any point, the place in the queue is passed on, and a lock that was granted
    /// unseen is given back in the background.
    pub fn lock(&self) -> LockRequest {
        LockRequest::new(self.inner.clone(), self.owner)
    }

    /// Acquires the lock if that can be done at once, or within [`TryLockRequest::wait`].
    /// Corresponds to Redisson's `tryLock()`, `tryLock(wait, unit)` and `tryLock(wait, lease, unit)`.
    ///
    /// Answers `None` if somebody else has it.
    ///
    /// # Errors
    ///
    /// As [`Lock::lock`]. A server that cannot be asked is an error, never `None`.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::lock`].
    pub fn try_lock(&self) -> TryLockRequest {
        TryLockRequest::new(self.inner.clone(), self.owner)
    }

    /// Acquires the lock, does the work, unlocks. The work is cancelled (its future is dropped) if
    /// the lock is lost. Redisson has no such call.
    ///
    /// # Errors
    ///
    /// As [`Lock::lock`]; [`Error::Lost`] if the lock was lost before the unlock: then the work was
    /// cancelled, or its output is discarded.
    /// An unlock that nobody confirmed is no error where the lock was still valid when the work
    /// was done.
    ///
    /// # Cancel safety
    ///
    /// The work is dropped and the lock given back in the background.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: lockdog::Client) -> lockdog::Result<()> {
    /// let lock = client.lock("orders:42");
    /// let total = lock.with(|_held| async { 6 * 7 }).await?;
    /// assert_eq!(total, 42);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn with<F, Fut>(&self, work: F) -> Result<Fut::Output>
    where
        F: FnOnce(Held) -> Fut,
        Fut: Future,
    {
        self.lock().with(work).await
    }

    /// The pauses that [`Lock::backoff`] gave this handle.
    pub(crate) fn own_backoff(&self) -> Option<Backoff> {
        self.inner.backoff
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.inner.session
    }

    pub(crate) fn key(&self) -> Result<&Arc<LockKey>> {
        self.inner.key()
    }
}

impl Inner {
    fn key(&self) -> Result<&Arc<LockKey>> {
        self.key.as_ref().map_err(Error::clone)
    }
}

/// As [`Client`](crate::Client).
impl UnwindSafe for Lock {}
impl RefUnwindSafe for Lock {}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}
