//! A lock of several members: either all of them are held, or none.

mod acquire;
mod contender;
mod hold;
mod members;
mod outcome;
mod queue_wait;
mod request;
mod round;
mod round_claims;
mod unlocked;

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use futures_util::future::try_join_all;

use crate::error::{Error, Result};
use crate::guard::Held;
use crate::lock::{Lock, any_lock};
use crate::lock_request::{LockRequest, OwnerChoice, TryLockRequest, UnlockRequest};
use crate::owner::Owner;
use members::MemberGroups;

/// Several locks as one: either all members are held, or none. Corresponds to `RedissonMultiLock`, and to
/// `getMultiLock(locks)`.
///
/// The members may be locks of different clients. In Redis each member is an ordinary lock. The same
/// owner, other owners and Java services can lock a member by itself, and the release of a member wakes
/// its waiters as usual.
///
/// One command acquires all plain, spin and non-reentrant members of one client. A member of another kind has
/// a command of its own. All commands are sent at the same time. If another owner has a member, the clients
/// release immediately what they acquired, and the call waits for that member. It holds nothing while it waits. So
/// multi locks with common members do not deadlock, in any order of the members.
///
/// The watchdog renews the members once all of them are held. If one member is lost, the multi lock is
/// lost: the guard reports it, and the client releases the other members.
/// [`Guard::instances`](crate::Guard::instances) and
/// [`Lost::instances`](crate::error::Lost::instances) show which member it was.
///
/// # Kinds of members
///
/// A member is any [`Lock`](crate::Lock): a plain, spin, non-reentrant, fenced, fair or group lock, or one mode
/// of a [`ReadWriteLock`](crate::ReadWriteLock), as `rw.read().into()`. Permits, latches and elections are not
/// locks. The guard of the whole has no fencing token;
/// [`Instance::token`](crate::error::Instance::token) is that of a fenced member.
///
/// If a fair member is taken, the multi lock waits in its queue, with the callers that wait for that member only,
/// and holds nothing. When it is first, it acquires the fair member and tries the other members. If one of them is
/// taken, it releases the fair member to the next waiter, and waits for the taken member. Then it enters the queue
/// again at its end. This can also happen between multi locks with the same members: the members of one are
/// released at the same time, so the next multi lock may have its turn a moment before the last member is free.
///
/// # Invalid members
///
/// Each request returns [`Error::Invalid`] if there are no members, if one lock of one client is given
/// twice, or if the name of a member is invalid.
///
/// # More members do not make it safer
///
/// Each member protects only the resource that its own name means. All members are needed: with more servers it
/// is more likely that one of them is down, and then the multi lock cannot be acquired. For one resource
/// that must stay locked while a server fails, use [`RedLock`](crate::RedLock).
///
/// Members may share a server. They fail together with that server.
///
/// Two clients in one process are two holders. If a multi lock has the same lock of one server through two
/// clients, it can never acquire both, and its call waits until its limit. The clients cannot detect that.
///
/// # Fairness
///
/// There is no fairness between multi locks and other locks. A multi lock needs a moment at which all
/// members are free. It may wait for a long time while other owners often lock its members one by one. With two
/// fair members it needs a moment when it is first in the queue of one, and no other owner holds the other or waits
/// for it.
///
/// # Examples
///
/// ```no_run
/// use lockdog::MultiLock;
///
/// # async fn example(client: lockdog::Client) -> lockdog::Result<()> {
/// let (from, to) = (client.lock("account:1"), client.lock("account:2"));
/// let guard = MultiLock::new([from, to]).lock().await?;
/// // No other owner has either of them.
/// guard.unlock().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MultiLock {
    inner: Arc<Inner>,
    /// The owner that acquires, unless a request sets another one.
    owner: OwnerChoice,
}

/// The state that the handles and requests of one multi lock share.
struct Inner {
    locks: Vec<Lock>,
    name: Arc<str>,
    /// If the members are invalid, each request returns this error.
    members: Result<Arc<MemberGroups>>,
}

any_lock!(MultiLock, remote);

impl MultiLock {
    /// A multi lock with these members. Their order does not matter. This call sends nothing. Corresponds to
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

    /// The names of its members, in brackets. [`Guard::name`] returns the same. Redisson's `getName()` does
    /// not support multi locks.
    ///
    /// [`Guard::name`]: crate::Guard::name
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Its members, in the order in which the caller gave them.
    pub fn locks(&self) -> &[Lock] {
        &self.inner.locks
    }

    /// A handle of the same locks whose acquires never re-enter: see [`Lock::exclusive`]. An exclusive
    /// handle as a member has no effect on the multi lock.
    #[must_use = "it returns a new handle and does not change this one"]
    pub fn exclusive(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            owner: OwnerChoice::New,
        }
    }

    /// Acquires all members and waits for them without limit. Corresponds to Redisson's `lock()`, and with
    /// [`LockRequest::lease`] to `lock(lease, unit)`.
    ///
    /// # Errors
    ///
    /// As [`Lock::lock`]. If one member fails, the call fails with that error; its text names the member.
    /// [`Error::Invalid`] if the members are invalid.
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled at any point, the clients release in the background what they acquired.
    pub fn lock(&self) -> LockRequest {
        LockRequest::new(self.inner.clone(), self.owner)
    }

    /// Acquires all members with one attempt, or within [`TryLockRequest::wait`]. Corresponds to Redisson's
    /// `tryLock()`, `tryLock(wait, unit)` and `tryLock(wait, lease, unit)`.
    ///
    /// Returns `None` if another owner has a member. No member is held then. Keep the guard:
    /// `try_lock().await?.is_some()` drops it immediately. See [`Lock::try_lock`].
    ///
    /// # Errors
    ///
    /// As [`MultiLock::lock`]. If a server cannot be reached, it returns an error, never `None`.
    ///
    /// # Cancel safety
    ///
    /// As [`MultiLock::lock`].
    pub fn try_lock(&self) -> TryLockRequest {
        TryLockRequest::new(self.inner.clone(), self.owner)
    }

    /// Acquires all members, does the work, and unlocks all members. If a member is lost, the work is
    /// cancelled. See [`Lock::with`].
    ///
    /// # Errors
    ///
    /// As [`Lock::with`] and [`MultiLock::lock`].
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled, the work is dropped, and the clients release the locks in the background.
    pub async fn with<F, Fut>(&self, work: F) -> Result<Fut::Output>
    where
        F: FnOnce(Held) -> Fut,
        Fut: Future,
    {
        self.lock().with(work).await
    }

    /// Ends, for each member, the newest hold of the current owner whose guard was forgotten. Use it for
    /// ported code. Corresponds to Redisson's `unlock()`.
    ///
    /// If a guard of a multi lock is forgotten, each of its members becomes a forgotten hold of its own.
    ///
    /// # Errors
    ///
    /// As [`Lock::unlock`]. If one member fails, the call fails with that error, but it ends the holds of
    /// the other members too. Redisson stops at the first failure.
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled after its first poll, the clients end the holds in the background.
    pub fn unlock(&self) -> UnlockRequest {
        UnlockRequest::new(self.inner.clone())
    }

    /// Whether the current owner holds all members. Corresponds to Redisson's
    /// `isHeldByCurrentThread()`.
    ///
    /// # Errors
    ///
    /// As [`Lock::is_held`]. [`Error::Invalid`] if the members are invalid.
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub async fn is_held(&self) -> Result<bool> {
        self.is_held_by(&Owner::current()).await
    }

    /// Whether this owner holds all members. Corresponds to Redisson's `isHeldByThread(threadId)`.
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

    /// The smallest hold count of any member for the current owner, as Redis counts. 0 if the owner does not
    /// hold all members. See [`Lock::hold_count`]. Redisson's `getHoldCount()` does not support multi
    /// locks.
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

/// See [`Client`](crate::Client).
impl UnwindSafe for MultiLock {}
impl RefUnwindSafe for MultiLock {}

impl fmt::Debug for MultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiLock")
            .field("locks", &self.locks())
            .finish()
    }
}
