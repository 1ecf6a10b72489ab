//! Several locks that are held together, or not at all.

mod acquire;
mod contender;
mod hold;
mod members;
mod outcome;
mod request;
mod round;

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use futures_util::future::try_join_all;

use crate::error::{Error, Result};
use crate::guard::Held;
use crate::lock::{Lock, any_lock};
use crate::owner::Owner;
use crate::request::{LockRequest, OwnerChoice, TryLockRequest, UnlockRequest};
use members::MemberGroups;

/// Several locks as one: all of them are held, or none is. Corresponds to `RedissonMultiLock`, and to
/// `getMultiLock(locks)`.
///
/// The members may be locks of any clients. For Redis each is an ordinary lock: it may be locked by
/// itself too, by the same owner or by others, by services in Java as well, and what waits for it is
/// woken as always.
///
/// Members of one client are acquired by one command; those of several clients by one command each,
/// all at the same time. Where one of them is taken, what was acquired is given back at once, and the
/// wait is for that one. Nothing is held while it waits, so multi locks that overlap, whatever the
/// order of their members, do not block each other for ever.
///
/// The watchdog renews the members once all of them are held. The loss of one is the loss of the
/// whole: the guard is told, and the members that are left are given back right after. A guard's
/// [`Guard::instances`](crate::Guard::instances) and [`Lost::instances`](crate::error::Lost::instances) say
/// which one it was.
///
/// No lock at all, one lock of one client given twice, and a member whose name cannot be used are
/// errors of each request.
///
/// # More members do not make it safer
///
/// Each member protects what is named by it, and no other. Several members on servers of their own
/// are all needed: the more there are, the sooner one of them is away, and then the whole cannot be
/// had. For one thing that shall stay locked though a server fails, [`RedLock`](crate::RedLock) is the
/// one.
///
/// Members that share a server are allowed, and fail with it together: they protect more names, not
/// more surely.
///
/// Two clients in one process are two holders. One lock through two clients of the same server, in one
/// multi lock, waits for itself for ever: that cannot be seen from here.
///
/// # Fairness
///
/// None is promised. A multi lock needs a moment at which all members are free: under a crowd of
/// owners that take its members one by one, it may wait for long.
///
/// # Examples
///
/// ```no_run
/// use lockdog::MultiLock;
///
/// # async fn example(client: lockdog::Client) -> lockdog::Result<()> {
/// let (from, to) = (client.lock("account:1"), client.lock("account:2"));
/// let guard = MultiLock::new([from, to]).lock().await?;
/// // Nobody else has either of them.
/// guard.unlock().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MultiLock {
    inner: Arc<Inner>,
    /// Who acquires, unless a request says otherwise.
    owner: OwnerChoice,
}

/// What the handles and requests of one multi lock share.
struct Inner {
    locks: Vec<Lock>,
    name: Arc<str>,
    /// Members that cannot be used are an error of each request.
    members: Result<Arc<MemberGroups>>,
}

any_lock!(MultiLock, asks);

impl MultiLock {
    /// All of these as one; their order does not matter. Corresponds to
    /// `new RedissonMultiLock(locks...)`.
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Self {
        let locks: Vec<Lock> = locks.into_iter().collect();
        let names: Vec<&str> = locks.iter().map(Lock::name).collect();
        let inner = Inner {
            name: format!("[{}]", names.join(", ")).into(),
            members: MemberGroups::of(&locks).map(Arc::new),
            locks,
        };
        Self {
            inner: Arc::new(inner),
            owner: OwnerChoice::Current,
        }
    }

    /// The names of its members, in brackets. [`Guard::name`] is this. Redisson's `getName()` is
    /// not supported for multi locks.
    ///
    /// [`Guard::name`]: crate::Guard::name
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// What it is made of, in the order in which it was given.
    pub fn locks(&self) -> &[Lock] {
        &self.inner.locks
    }

    /// A handle of the same locks whose acquires never re-enter: see [`Lock::exclusive`]. That a member
    /// was given as an exclusive handle does not matter.
    #[must_use = "the handle that it was called on is as it was"]
    pub fn exclusive(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            owner: OwnerChoice::New,
        }
    }

    /// Acquires all, waiting for them as long as it takes. Corresponds to Redisson's `lock()`, and
    /// with [`LockRequest::lease`] to `lock(lease, unit)`.
    ///
    /// # Errors
    ///
    /// As [`Lock::lock`], where the failure of one member is that of the whole; its text says which
    /// member. [`Error::Invalid`] if the members cannot be used.
    ///
    /// # Cancel safety
    ///
    /// Cancelled at any point, what was acquired is given back in the background.
    pub fn lock(&self) -> LockRequest {
        LockRequest::new(self.inner.clone(), self.owner)
    }

    /// Acquires all if that can be done at once, or within [`TryLockRequest::wait`]. Corresponds to
    /// Redisson's `tryLock()`, `tryLock(wait, unit)` and `tryLock(wait, lease, unit)`.
    ///
    /// Answers `None` if somebody else has one of them; then none is held.
    ///
    /// # Errors
    ///
    /// As [`MultiLock::lock`]. A server that cannot be asked is an error, never `None`.
    ///
    /// # Cancel safety
    ///
    /// As [`MultiLock::lock`].
    pub fn try_lock(&self) -> TryLockRequest {
        TryLockRequest::new(self.inner.clone(), self.owner)
    }

    /// Acquires all, does the work, unlocks all. The work is cancelled if one of them is lost. See
    /// [`Lock::with`].
    ///
    /// # Errors
    ///
    /// As [`Lock::with`].
    ///
    /// # Cancel safety
    ///
    /// The work is dropped and the locks are given back in the background.
    pub async fn with<F, Fut>(&self, work: F) -> Result<Fut::Output>
    where
        F: FnOnce(Held) -> Fut,
        Fut: Future,
    {
        self.lock().with(work).await
    }

    /// Ends, of each member, the newest hold of the current owner whose guard was forgotten.
    /// Corresponds to Redisson's `unlock()`; meant for ported code. Of a guard of this lock that was
    /// forgotten, each member goes on as a forgotten hold of its own.
    ///
    /// # Errors
    ///
    /// As [`Lock::unlock`], where the failure of one member is that of the whole; the holds of the
    /// other members are ended all the same. Redisson stops at the first failure.
    ///
    /// # Cancel safety
    ///
    /// Cancelled after its first poll, the holds are ended in the background.
    pub fn unlock(&self) -> UnlockRequest {
        UnlockRequest::new(self.inner.clone())
    }

    /// Whether the current owner holds all of them. Corresponds to Redisson's
    /// `isHeldByCurrentThread()`.
    ///
    /// # Errors
    ///
    /// As [`Lock::is_held`], and [`Error::Invalid`] if the members cannot be used.
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub async fn is_held(&self) -> Result<bool> {
        self.is_held_by(&Owner::current()).await
    }

    /// Whether this owner holds all of them. Corresponds to Redisson's `isHeldByThread(threadId)`.
    ///
    /// # Errors
    ///
    /// As [`MultiLock::is_held`].
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub async fn is_held_by(&self, owner: &Owner) -> Result<bool> {
        self.inner.members()?;
        let asked = self.locks().iter().map(|lock| lock.is_held_by(owner));
        let held = try_join_all(asked).await?;
        Ok(held.into_iter().all(|held| held))
    }

    /// How often the current owner holds all of them, as Redis counts: the least count of any
    /// member, and 0 if it does not hold them all. See [`Lock::hold_count`]. Redisson's
    /// `getHoldCount()` is not supported for multi locks.
    ///
    /// # Errors
    ///
    /// As [`MultiLock::is_held`].
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub async fn hold_count(&self) -> Result<u32> {
        self.inner.members()?;
        let counts = try_join_all(self.locks().iter().map(Lock::hold_count)).await?;
        Ok(counts.into_iter().min().unwrap_or(0))
    }
}

impl Inner {
    fn members(&self) -> Result<&Arc<MemberGroups>> {
        self.members.as_ref().map_err(Error::clone)
    }
}

/// As [`Client`](crate::Client).
impl UnwindSafe for MultiLock {}
impl RefUnwindSafe for MultiLock {}

impl fmt::Debug for MultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiLock")
            .field("locks", &self.locks())
            .finish()
    }
}
