//! The lock, of any kind: its requests, its queries, and the wait for it.

mod acquire;
mod any_lock;
mod contender;
mod group;
mod holder;
mod modes;
mod place_in_queue;
mod preference;
mod query;
mod queue_query;
mod queue_wait;
mod request;
mod unlock;
mod waiters;

use std::fmt;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::guard::{Guard, Held};
use crate::key::{Kind, LockKey, Value, lock_hash};
use crate::lock_request::{FromGuard, LockRequest, OwnerChoice, TryLockRequest};
use crate::session::Session;
use crate::wait::Backoff;

pub(crate) use acquire::{HandleOptions, acquire, released};
pub use any_lock::AnyLock;
pub(crate) use any_lock::{any_lock, sealed::Sealed};
pub(crate) use holder::server_millis;
pub use holder::{HolderInfo, Ttl};
pub use preference::Preference;
pub use query::HoldInfo;
pub(crate) use queue_wait::{QueryResult, QueueCall, QueueWait, next_query};
pub use unlock::ForceUnlockRequest;
pub use waiters::WaiterInfo;

/// A lock on a server, with a lease. Corresponds to Redisson's `RLock`: a lock of lockdog and one of
/// Redisson with the same name exclude each other.
///
/// A `Lock` is a handle. The client sends nothing when it creates or clones a handle. All handles with
/// one name and kind are the same lock. Each handle keeps its client alive.
///
/// The owner of a lock is the tokio task that acquires it, where Redisson's is the thread: see
/// [`Owner`](crate::Owner).
///
/// `G` is what an acquire returns: a [`Guard`], or the guard of one mode of a
/// [`ReadWriteLock`](crate::ReadWriteLock).
///
/// # Panics
///
/// Each call panics on a runtime without timers. On a runtime without I/O the client cannot connect.
/// Build the runtime with `enable_all()`.
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
/// // The same task may lock again: the hold has a count.
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
pub struct Lock<G = Guard> {
    inner: Arc<Inner>,
    /// The owner that acquires, unless a request sets another one.
    owner: OwnerChoice,
    guard: PhantomData<fn() -> G>,
}

/// The state that the handles and requests of one lock share.
struct Inner {
    session: Arc<Session>,
    name: Box<str>,
    /// If the name is invalid, each request returns this error.
    key: Result<Arc<LockKey>>,
    options: HandleOptions,
}

impl<G: FromGuard> Lock<G> {
    pub(crate) fn new(session: Arc<Session>, kind: &'static Kind, name: &str) -> Self {
        let key = session.core().key(kind, name);
        Self::with_key(session, key, name)
    }

    /// The same lock for some values of a group.
    pub(crate) fn of_values(self, values: &[Value]) -> Self {
        let key = self.key().map(|key| LockKey::clone(key));
        let key = key.and_then(|key| key.of_values(values)).map(Arc::new);
        Self::with_key(self.session().clone(), key, self.name())
    }

    fn with_key(session: Arc<Session>, key: Result<Arc<LockKey>>, name: &str) -> Self {
        let inner = Inner {
            session,
            name: name.into(),
            key,
            options: HandleOptions::default(),
        };
        Self::of(Arc::new(inner), OwnerChoice::Current)
    }

    fn of(inner: Arc<Inner>, owner: OwnerChoice) -> Self {
        Self {
            inner,
            owner,
            guard: PhantomData,
        }
    }

    /// A handle of the same lock with other options for its acquires.
    fn with_options(&self, options: HandleOptions) -> Self {
        let inner = Inner {
            session: self.inner.session.clone(),
            name: self.inner.name.clone(),
            key: self.inner.key.clone(),
            options,
        };
        Self::of(Arc::new(inner), self.owner)
    }

    /// The same handle with guards of another type.
    pub(crate) fn with_guards_of<H: FromGuard>(self) -> Lock<H> {
        Lock::of(self.inner, self.owner)
    }

    pub(crate) fn preferring(&self, preference: Preference) -> Self {
        self.with_options(HandleOptions {
            preference,
            ..self.inner.options
        })
    }

    /// The name, as given by the caller. Corresponds to Redisson's `getName()`.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The hash by which logs name this lock: 16 hexadecimal digits, in the field `lock.hash`. It is the same
    /// in each process and version. It is the beginning of the SHA-1 of the key in Redis, so
    /// `printf %s KEY | sha1sum` shows it, too. [`lock_hash`](crate::report::lock_hash) is for other objects
    /// and for keys. [`ClientBuilder::log_names`](crate::ClientBuilder::log_names) adds the name to the logs.
    pub fn hash(&self) -> String {
        let key = self.key().map_or_else(|_| self.name(), |key| key.key());
        lock_hash(key)
    }

    /// A handle of the same lock whose waiters poll with these pauses and use no messages. It is
    /// [`Wake::Poll`](crate::config::Wake::Poll) for this handle only. Corresponds to the `backOff` of
    /// Redisson's `getSpinLock(name, backOff)`.
    ///
    /// No pause is longer than the client's `poll_cap`. A [`MultiLock`](crate::MultiLock) with this handle
    /// uses these pauses while it waits for this member. A [`RedLock`](crate::RedLock) uses the shortest
    /// pause of its instances that poll.
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
    #[must_use = "it returns a new handle and does not change this one"]
    pub fn backoff(&self, backoff: Backoff) -> Self {
        self.with_options(HandleOptions {
            backoff: Some(backoff),
            ..self.inner.options
        })
    }

    /// A handle of the same lock whose acquires never re-enter: each acquire has a new [`Owner`].
    ///
    /// Use it if one task runs several branches that must exclude each other: `join!`, `select!`,
    /// `for_each_concurrent`. Without it the branches are one owner, and they all get the lock at the same
    /// time. Use this handle where Java code used threads. A request's own [`owner`](LockRequest::owner)
    /// replaces the new owner.
    ///
    /// Only a guard can end what this handle acquires. [`unlock`](Self::unlock),
    /// [`is_held`](Self::is_held) and [`hold_count`](Self::hold_count) are about the current owner, and
    /// that owner has no hold through this handle. A nested call through it is a deadlock, as with a
    /// `tokio::sync::Mutex`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: lockdog::Client) -> lockdog::Result<()> {
    /// let lock = client.lock("orders:42").exclusive();
    /// // The second branch waits for the first one, although both run in this task.
    /// let (first, second) = tokio::join!(lock.with(|_| async { 1 }), lock.with(|_| async { 2 }));
    /// assert_eq!(first? + second?, 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [`Owner`]: crate::Owner
    #[must_use = "it returns a new handle and does not change this one"]
    pub fn exclusive(&self) -> Self {
        Self::of(self.inner.clone(), OwnerChoice::New)
    }

    /// Acquires the lock and waits for it without limit. Corresponds to Redisson's `lock()`, and with
    /// [`LockRequest::lease`] to `lock(lease, unit)`.
    ///
    /// Without a lease the watchdog renews the lock until it is unlocked. An owner that already holds the lock
    /// gets another guard immediately.
    ///
    /// # Errors
    ///
    /// - [`Error::Lost`] if this owner held the lock, lost it, and still has a guard of it. Drop that guard
    ///   first.
    /// - [`Error::AlreadyHeld`] if this owner holds the lock, and the lock is not reentrant.
    /// - [`Error::WouldDeadlock`] if this is the write lock of a [`ReadWriteLock`](crate::ReadWriteLock) and
    ///   this owner reads. Only for a call without a limit; others wait until their limit. Also, for each call,
    ///   if this is a lock of values of a group and another lock of this owner holds some of them.
    /// - [`Error::Timeout`], [`Error::Unavailable`] or a retriable [`Error::Refused`] if the server gave no
    ///   usable answer for the whole command timeout.
    /// - [`Error::Refused`] if the server does not permit the command.
    /// - [`Error::NotReplicated`] if too few replicas acknowledged the lock in time
    ///   ([`ReplicaAck::Require`](crate::config::ReplicaAck::Require)).
    /// - [`Error::TooManyWaiters`] if the client has its maximum number of waiters.
    /// - [`Error::Invalid`] for an invalid name or lease, and outside a tokio runtime.
    /// - [`Error::Closed`] if the client is shut down.
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled at any point, the next waiter of the client takes its place in the queue. If the
    /// server granted the lock, the client releases it in the background.
    pub fn lock(&self) -> LockRequest<G> {
        LockRequest::new(self.inner.clone(), self.owner)
    }

    /// Acquires the lock with one attempt, or within [`TryLockRequest::wait`]. Corresponds to Redisson's
    /// `tryLock()`, `tryLock(wait, unit)` and `tryLock(wait, lease, unit)`.
    ///
    /// Returns `None` if another owner has the lock. Keep the guard: `try_lock().await?.is_some()` drops it
    /// immediately, and the work runs without the lock.
    ///
    /// ```no_run
    /// # async fn example(lock: lockdog::Lock) -> lockdog::Result<()> {
    /// if let Some(guard) = lock.try_lock().await? {
    ///     // The work.
    ///     guard.unlock().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Lock::lock`]. If the server cannot be reached, it returns an error, never `None`.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::lock`].
    pub fn try_lock(&self) -> TryLockRequest<G> {
        TryLockRequest::new(self.inner.clone(), self.owner)
    }

    /// Acquires the lock, does the work, and unlocks. If the lock is lost, the work is cancelled: its
    /// future is dropped. Redisson has no such call.
    ///
    /// # Errors
    ///
    /// As [`Lock::lock`]. [`Error::Lost`] if the lock was lost before the unlock: the work was cancelled,
    /// or its output is discarded. An unlock that Redis does not confirm is no error if the lock was still
    /// valid when the work ended.
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled, the work is dropped, and the client releases the lock in the background.
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
        self.inner.options.backoff
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

/// See [`Client`](crate::Client).
impl<G> UnwindSafe for Lock<G> {}
impl<G> RefUnwindSafe for Lock<G> {}

impl<G> Clone for Lock<G> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            owner: self.owner,
            guard: PhantomData,
        }
    }
}

impl<G: FromGuard> fmt::Debug for Lock<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}
