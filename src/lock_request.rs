//! The requests for a lock of any kind. A request does nothing until it is awaited.

mod debug;
mod from_guard;
mod not_a_future;
mod options;
mod span;
mod wait_limit;
mod watched_call;

use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;

use crate::background::ensure_runtime;
use crate::error::{Error, Result};
use crate::guard::{Guard, Held};
use crate::owner::Owner;
use crate::session::{Reentry, Unlocked};

pub use from_guard::FromGuard;
pub(crate) use from_guard::sealed::Sealed;
pub(crate) use not_a_future::not_a_future;
pub(crate) use not_a_future::sealed::IntoFutureIsCalled;
pub(crate) use options::{AcquireOptions, OwnerChoice};
pub(crate) use span::{acquire_span, record, record_server};
use span::{hold_span, record_loss};
pub(crate) use wait_limit::WaitLimit;
pub(crate) use watched_call::WatchedCall;

/// A pending acquire that waits without limit, from [`Lock::lock`](crate::Lock::lock),
/// [`MultiLock::lock`](crate::MultiLock::lock) or [`RedLock::lock`](crate::RedLock::lock). It does
/// nothing until it is awaited. The method that returns it has its errors and its cancel safety. Its
/// methods are the arguments of Redisson's `lock(lease, unit)` and `lockAsync(lease, unit, threadId)`.
///
/// A request is not a future itself: `.await` makes it one. `tokio::spawn`, `join_all` and the like need
/// a future, which [`into_future`](IntoFuture::into_future) returns. A crate of edition 2021 has to import
/// [`IntoFuture`] for that.
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: lockdog::Client) -> Result<(), Box<dyn std::error::Error>> {
/// // A task that acquires. The guard belongs to that task's owner.
/// let task = tokio::spawn(client.lock("orders:1").lock().into_future());
/// let guard = task.await??;
///
/// // Many acquires at the same time, in one task.
/// let names = ["orders:2", "orders:3"];
/// let requests = names.map(|name| client.lock(name).lock().into_future());
/// for guard in futures_util::future::join_all(requests).await {
///     guard?.unlock().await?;
/// }
/// # guard.unlock().await?;
/// # Ok(())
/// # }
/// ```
///
/// Without `into_future` it does not compile, and the compiler says what to add:
///
/// ```compile_fail,E0277
/// # fn example(client: lockdog::Client) {
/// tokio::spawn(client.lock("orders:1").lock());
/// # }
/// ```
#[must_use = "add `.await`: a request does nothing before it; and keep the guard that it returns"]
pub struct LockRequest<G = Guard> {
    lock: Arc<dyn Acquire>,
    options: AcquireOptions,
    guard: PhantomData<fn() -> G>,
}

/// A pending acquire that makes one attempt or waits for a limited time, from
/// [`Lock::try_lock`](crate::Lock::try_lock), [`MultiLock::try_lock`](crate::MultiLock::try_lock) or
/// [`RedLock::try_lock`](crate::RedLock::try_lock). It does nothing until it is awaited. The method that
/// returns it has its errors and its cancel safety. Its methods are the arguments of Redisson's
/// `tryLock(wait, lease, unit)` and `tryLockAsync(wait, lease, unit, threadId)`.
///
/// `tokio::spawn` and `join_all` take `lock.try_lock().into_future()`, as with [`LockRequest`].
#[must_use = "add `.await`: a request does nothing before it; and keep the guard that it returns"]
pub struct TryLockRequest<G = Guard> {
    lock: Arc<dyn Acquire>,
    options: AcquireOptions,
    wait: Option<Duration>,
    guard: PhantomData<fn() -> G>,
}

/// A pending unlock of a forgotten hold, from [`Lock::unlock`](crate::Lock::unlock),
/// [`MultiLock::unlock`](crate::MultiLock::unlock) or [`RedLock::unlock`](crate::RedLock::unlock). It
/// does nothing until it is awaited. The method that returns it has its errors and its cancel safety.
/// Corresponds to Redisson's `unlockAsync(threadId)`.
#[derive(Clone)]
#[must_use = "a request does nothing unless it is awaited"]
pub struct UnlockRequest {
    lock: Arc<dyn Acquire>,
    owner: Option<Owner>,
}

/// What a request needs from a lock of any kind.
///
/// The futures that it returns do nothing before their first poll. They determine the owner then.
pub(crate) trait Acquire: Send + Sync + 'static {
    /// The lock's name.
    fn name(&self) -> &str;

    /// Acquires it and waits without limit.
    fn lock(self: Arc<Self>, options: AcquireOptions) -> Boxed<Guard>;

    /// Acquires it within `wait`. Returns `None` if another owner has it.
    fn acquire(self: Arc<Self>, options: AcquireOptions, wait: WaitLimit) -> Boxed<Option<Guard>>;

    /// Ends the newest forgotten hold of `owner`, or of the current owner if it is `None`.
    fn unlock(self: Arc<Self>, owner: Option<Owner>) -> Boxed<Unlocked>;
}

/// The future of a request.
pub(crate) type Boxed<T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'static>>;

/// The owner that unlocks: `owner`, or the current one if it is `None`. Called at the first poll of an
/// unlock. Fails outside a tokio runtime.
pub(crate) fn unlocker(owner: Option<Owner>) -> Result<Owner> {
    ensure_runtime()?;
    Ok(owner.unwrap_or_else(Owner::current))
}

macro_rules! options {
    () => {
        /// Acquires the lock with a fixed lease: the watchdog does not renew it, and Redis frees it when
        /// this time ends. From 10 ms up to the client's `max_lease`, for a
        /// [`RedLock`](crate::RedLock) up to [its own](crate::RedLock::max_lease), in whole milliseconds.
        /// Any other lease is [`Error::Invalid`](crate::Error::Invalid). Corresponds to Redisson's
        /// `leaseTime`. For Redisson's -1, do not call this.
        ///
        /// The watchdog does not check such a lock either. The client detects a deleted key only at the
        /// deadline, at the unlock, or at its next acquire of the lock.
        pub fn lease(mut self, lease: Duration) -> Self {
            self.options.lease = Some(lease);
            self
        }

        /// Limits how long the watchdog renews the lock, counted from this acquire. At least 10 ms; a
        /// longer lease is shortened to it. After that time the lock is lost, with
        /// [`LostReason::MaxHold`](crate::error::LostReason::MaxHold). Use it for work that may hang. If
        /// several acquires of one hold set a limit, the earliest one counts. Redisson has no such option.
        pub fn max_hold(mut self, max_hold: Duration) -> Self {
            self.options.max_hold = Some(max_hold);
            self
        }

        /// Keeps the lock for this time at least, counted from the acquire. If the guard ends earlier, the lock
        /// stays in Redis for the rest of the time: no owner holds it then, and none can acquire it. Use it for a
        /// job that all nodes of a fleet start by their own clocks. A job of 50 ms then does not run again on a node
        /// whose clock is 2 s behind. From 10 ms up to the client's `max_lease`, and not longer than `max_hold`.
        ///
        /// - It applies to each end of the guard: unlock, drop, panic, and a shutdown of the client. An unlock
        ///   returns [`Unlocked::Kept`](crate::Unlocked::Kept) once Redis confirmed it, or
        ///   [`Error::Lost`](crate::Error::Lost) as any unlock. The lock is handed to no waiter. `force_unlock`
        ///   frees the lock.
        /// - The lease of the acquire is this time or longer. So a process that dies also keeps the lock for
        ///   this time, and the watchdog renews a lock with a longer time only when the lease is nearly over:
        ///   until then the client does not detect a deleted key.
        /// - If the server does not answer the command of that end, the client retries, and the lock may stay for
        ///   its whole lease.
        /// - If the end makes the lock free earlier than a waiter of Redisson expects, a message wakes that waiter.
        ///
        /// Redisson has no such option. Read/write locks, locks of a group, [`MultiLock`](crate::MultiLock) and
        /// [`RedLock`](crate::RedLock) do not support it: [`Error::Invalid`].
        pub fn hold_at_least(mut self, time: Duration) -> Self {
            self.options.hold_at_least = Some(time);
            self
        }

        /// Acquires for this owner instead of the current one. Corresponds to the `threadId` of
        /// Redisson's `lockAsync(threadId)` and `tryLockAsync(threadId)`.
        pub fn owner(mut self, owner: &Owner) -> Self {
            self.options.owner = OwnerChoice::Given(*owner);
            self
        }

        /// Where the acquire is counted if the owner already holds the lock.
        ///
        /// Defaults to [`ClientBuilder::reentry`](crate::ClientBuilder::reentry). Redisson always counts in
        /// Redis. Re-entries of a [`RedLock`](crate::RedLock) are always counted in this process.
        pub fn reentry(mut self, reentry: Reentry) -> Self {
            self.options.reentry = Some(reentry);
            self
        }
    };
}

impl<G: FromGuard> LockRequest<G> {
    pub(crate) fn new(lock: Arc<dyn Acquire>, owner: OwnerChoice) -> Self {
        Self {
            lock,
            options: AcquireOptions::of(owner),
            guard: PhantomData,
        }
    }

    options!();

    /// As [`Lock::with`](crate::Lock::with), with the options of this request.
    ///
    /// # Errors
    ///
    /// As [`Lock::with`](crate::Lock::with).
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::with`](crate::Lock::with).
    pub async fn with<F, Fut>(self, work: F) -> Result<Fut::Output>
    where
        F: FnOnce(Held) -> Fut,
        Fut: Future,
    {
        run(self.await?.into(), work).await
    }
}

impl<G: FromGuard> TryLockRequest<G> {
    pub(crate) fn new(lock: Arc<dyn Acquire>, owner: OwnerChoice) -> Self {
        Self {
            lock,
            options: AcquireOptions::of(owner),
            wait: None,
            guard: PhantomData,
        }
    }

    options!();

    /// Limits the time of the whole call. Without it, or with zero, the call makes one attempt, which
    /// takes at most the command timeout. Corresponds to Redisson's `waitTime`.
    ///
    /// The call ends when this time ends, also if the server does not answer; on an idle machine one or
    /// two milliseconds later. If the server grants the lock after that, the client undoes the grant in
    /// the background. Two calls may take longer:
    ///
    /// - A wait below 10 ms gets 10 ms, from the first poll, for its first attempt. With less, even a
    ///   free lock would be a timeout.
    /// - With [`ReplicaAck::Require`](crate::config::ReplicaAck::Require), the undo of an acquire that the
    ///   replicas did not acknowledge in time may take 100 ms more.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// As [`Lock::with`](crate::Lock::with), with the options of this request. Returns `None` if another
    /// owner has the lock; the work does not run then.
    ///
    /// # Errors
    ///
    /// As [`Lock::with`](crate::Lock::with).
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::with`](crate::Lock::with).
    pub async fn with<F, Fut>(self, work: F) -> Result<Option<Fut::Output>>
    where
        F: FnOnce(Held) -> Fut,
        Fut: Future,
    {
        match self.await? {
            Some(guard) => run(guard.into(), work).await.map(Some),
            None => Ok(None),
        }
    }
}

impl UnlockRequest {
    pub(crate) fn new(lock: Arc<dyn Acquire>) -> Self {
        Self { lock, owner: None }
    }

    /// Ends a forgotten hold of this owner instead of one of the current owner. Corresponds to Redisson's
    /// `unlockAsync(threadId)`.
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.owner = Some(*owner);
        self
    }
}

impl<G: FromGuard> IntoFuture for LockRequest<G> {
    type Output = Result<G>;
    type IntoFuture = Boxed<G>;

    fn into_future(self) -> Self::IntoFuture {
        G::acquired(self.lock.lock(self.options))
    }
}

impl<G: FromGuard> IntoFuture for TryLockRequest<G> {
    type Output = Result<Option<G>>;
    type IntoFuture = Boxed<Option<G>>;

    fn into_future(self) -> Self::IntoFuture {
        let wait = WaitLimit::of_try(self.wait);
        G::acquired_in_time(self.lock.acquire(self.options, wait))
    }
}

impl IntoFuture for UnlockRequest {
    type Output = Result<Unlocked>;
    type IntoFuture = Boxed<Unlocked>;

    fn into_future(self) -> Self::IntoFuture {
        self.lock.unlock(self.owner)
    }
}

not_a_future!(LockRequest<G>, Result<G>, G);
not_a_future!(TryLockRequest<G>, Result<Option<G>>, G);
not_a_future!(UnlockRequest, Result<Unlocked>);

/// Does the work while the lock is held. Returns its output only if the lock was valid until the unlock.
async fn run<F, Fut>(guard: Guard, work: F) -> Result<Fut::Output>
where
    F: FnOnce(Held) -> Fut,
    Fut: Future,
{
    let held = guard.held();
    let span = hold_span(&held);
    let work = span.in_scope(|| work(held)).instrument(span.clone());
    let output = tokio::select! {
        biased;
        lost = guard.lost() => {
            let lost = Error::Lost(lost);
            record_loss(&span, &lost);
            return Err(lost);
        }
        output = work => output,
    };
    match guard.unlock().await {
        // The lock was valid until the unlock, so the output counts even if the unlock is not confirmed.
        Ok(_) | Err(Error::UnlockUnconfirmed(_)) => Ok(output),
        Err(error) => {
            record_loss(&span, &error);
            Err(error)
        }
    }
}

/// The time for the first attempt of a call with a shorter wait. With less, a free lock would be a
/// timeout.
pub(crate) const FIRST_ATTEMPT: Duration = Duration::from_millis(10);
