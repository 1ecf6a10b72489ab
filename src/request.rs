//! What a caller asks of a lock of any kind; nothing happens before it is awaited.

mod debug;

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::background::ensure_runtime;
use crate::error::{Error, Result};
use crate::guard::{Guard, Held};
use crate::hold::Terms;
use crate::lease;
use crate::owner::Owner;
use crate::session::{Reentry, Settings, Unlocked};

/// A wish to hold a lock, from [`Lock::lock`](crate::Lock::lock),
/// [`MultiLock::lock`](crate::MultiLock::lock) or [`RedLock::lock`](crate::RedLock::lock). Await it.
///
/// A request is not a future itself: `.await` makes it one. `tokio::spawn`, `join_all` and the like ask
/// for a future, which [`into_future`](IntoFuture::into_future) returns.
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
#[derive(Clone)]
#[must_use = "a request does nothing unless it is awaited"]
pub struct LockRequest {
    lock: Arc<dyn Acquire>,
    options: AcquireOptions,
}

/// A wish to hold a lock if it can be had in time, from
/// [`Lock::try_lock`](crate::Lock::try_lock), [`MultiLock::try_lock`](crate::MultiLock::try_lock) or
/// [`RedLock::try_lock`](crate::RedLock::try_lock). Await it.
///
/// `tokio::spawn` and `join_all` take `lock.try_lock().into_future()`, as with [`LockRequest`].
#[derive(Clone)]
#[must_use = "a request does nothing unless it is awaited"]
pub struct TryLockRequest {
    lock: Arc<dyn Acquire>,
    options: AcquireOptions,
    wait: Option<Duration>,
}

/// A wish to end a forgotten hold, from [`Lock::unlock`](crate::Lock::unlock),
/// [`MultiLock::unlock`](crate::MultiLock::unlock) or [`RedLock::unlock`](crate::RedLock::unlock).
/// Await it.
#[derive(Clone)]
#[must_use = "a request does nothing unless it is awaited"]
pub struct UnlockRequest {
    lock: Arc<dyn Acquire>,
    owner: Option<Owner>,
}

/// A lock of any kind, as its requests see it.
///
/// What it gives does nothing before its first poll; the owner, too, is found then.
pub(crate) trait Acquire: Send + Sync + 'static {
    /// What the lock is called.
    fn name(&self) -> &str;

    /// Acquires it, waiting as long as it takes.
    fn lock(self: Arc<Self>, options: AcquireOptions) -> Boxed<Guard>;

    /// Acquires it within `wait`; `None` if somebody else has it.
    fn acquire(self: Arc<Self>, options: AcquireOptions, wait: WaitLimit) -> Boxed<Option<Guard>>;

    /// Ends the newest hold of this owner, else of the current one, whose guard was forgotten.
    fn unlock(self: Arc<Self>, owner: Option<Owner>) -> Boxed<Unlocked>;
}

/// What a request becomes when it is awaited.
pub(crate) type Boxed<T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'static>>;

/// How long a caller is ready to wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitLimit {
    ForEver,
    AtMost(Duration),
    Not,
}

/// What a caller said about the acquire; what it left out, the lock decides. Checked by
/// [`AcquireOptions::terms`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AcquireOptions {
    pub(crate) lease: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) owner: OwnerChoice,
    pub(crate) reentry: Option<Reentry>,
}

/// Who acquires.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum OwnerChoice {
    /// Whoever makes the first poll.
    #[default]
    Current,
    /// An owner of its own, so that no acquire re-enters.
    New,
    Given(Owner),
}

/// Who unlocks: this owner, else the current one. A call asks for it at its first poll, which fails
/// outside a tokio runtime.
pub(crate) fn unlocker(owner: Option<Owner>) -> Result<Owner> {
    ensure_runtime()?;
    Ok(owner.unwrap_or_else(Owner::current))
}

impl AcquireOptions {
    /// Who acquires, the same at each call. A call asks for it at its first poll, which fails outside a
    /// tokio runtime.
    pub(crate) fn owner(&mut self) -> Result<Owner> {
        ensure_runtime()?;
        let owner = match self.owner {
            OwnerChoice::Current => Owner::current(),
            OwnerChoice::New => Owner::new(),
            OwnerChoice::Given(owner) => owner,
        };
        self.owner = OwnerChoice::Given(owner);
        Ok(owner)
    }

    /// What it means for a lock of the client with these settings. Checks everything that can be
    /// checked before a command is sent.
    pub(crate) fn terms(&self, settings: &Settings) -> Result<Terms> {
        if let Some(lease) = self.lease {
            lease::check_lease("lease", lease, settings.max_lease)?;
        }
        if let Some(max_hold) = self.max_hold {
            lease::check("max_hold", max_hold, Duration::MAX)?;
        }
        let lease = self.lease.unwrap_or(settings.watchdog_lease);
        let reentry = self.reentry.unwrap_or(settings.reentry);
        Ok(Terms {
            lease: lease::whole(lease.min(self.max_hold.unwrap_or(lease))),
            watched: self.lease.is_none(),
            max_hold: self.max_hold,
            local: reentry == Reentry::Local && self.max_hold.is_none(),
        })
    }
}

macro_rules! options {
    () => {
        /// Takes the lock for this long, without a watchdog: it is not renewed and frees itself when
        /// the time is over. From 10 ms up to the client's `max_lease`, for a
        /// [`RedLock`](crate::RedLock) up to [its own](crate::RedLock::max_lease), in whole milliseconds.
        /// Corresponds to Redisson's `leaseTime`; its -1 is no lease here.
        ///
        /// Nor is it looked after: that its key was deleted is noticed at its deadline, at its
        /// unlock, or when this client next asks for the lock.
        pub fn lease(mut self, lease: Duration) -> Self {
            self.options.lease = Some(lease);
            self
        }

        /// Bounds how long the watchdog may keep the lock, counted from this acquire; then it is
        /// lost, with [`LostReason::MaxHold`](crate::error::LostReason::MaxHold). For work that may hang.
        /// At least 10 ms; a longer lease is shortened to it. Where several acquires of one hold set a
        /// bound, the earliest applies. Redisson has no such setting.
        pub fn max_hold(mut self, max_hold: Duration) -> Self {
            self.options.max_hold = Some(max_hold);
            self
        }

        /// Acquires as this owner instead of the current one. Corresponds to the `threadId` of
        /// Redisson's `lockAsync(threadId)`.
        pub fn owner(mut self, owner: &Owner) -> Self {
            self.options.owner = OwnerChoice::Given(*owner);
            self
        }

        /// Who counts the acquire, should the owner hold the lock already.
        ///
        /// Defaults to what [`ClientBuilder::reentry`](crate::ClientBuilder::reentry) says. Redisson
        /// counts in Redis always. A [`RedLock`](crate::RedLock) is counted by this process in any case.
        pub fn reentry(mut self, reentry: Reentry) -> Self {
            self.options.reentry = Some(reentry);
            self
        }
    };
}

impl LockRequest {
    pub(crate) fn new(lock: Arc<dyn Acquire>, owner: OwnerChoice) -> Self {
        let options = AcquireOptions {
            owner,
            ..AcquireOptions::default()
        };
        Self { lock, options }
    }

    options!();

    /// As [`Lock::with`](crate::Lock::with), on the terms of this request.
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
        run(self.await?, work).await
    }
}

impl TryLockRequest {
    pub(crate) fn new(lock: Arc<dyn Acquire>, owner: OwnerChoice) -> Self {
        let LockRequest { lock, options } = LockRequest::new(lock, owner);
        Self {
            lock,
            options,
            wait: None,
        }
    }

    options!();

    /// Waits for the lock at most this long, all included. Zero is one attempt, as without, within the
    /// command timeout. Corresponds to Redisson's `waitTime`.
    ///
    /// The call is over at the end of the wait, whatever the server does; on an idle machine one or two
    /// milliseconds later. What the server grants after that is undone in the background. Two things
    /// take longer: a wait below 10 ms has 10 ms, from the first poll, for its first attempt, since a
    /// free lock would be a timeout otherwise; and with
    /// [`ReplicaAck::Require`](crate::config::ReplicaAck::Require) an acquire that the replicas do not have in
    /// time may take 100 ms more to be undone.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// As [`Lock::with`](crate::Lock::with), on the terms of this request; `None` if somebody else has the lock.
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
            Some(guard) => run(guard, work).await.map(Some),
            None => Ok(None),
        }
    }
}

impl UnlockRequest {
    pub(crate) fn new(lock: Arc<dyn Acquire>) -> Self {
        Self { lock, owner: None }
    }

    /// Ends a hold of this owner instead of the current one. Corresponds to Redisson's
    /// `unlockAsync(threadId)`.
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.owner = Some(*owner);
        self
    }
}

impl IntoFuture for LockRequest {
    type Output = Result<Guard>;
    type IntoFuture = Boxed<Guard>;

    fn into_future(self) -> Self::IntoFuture {
        self.lock.lock(self.options)
    }
}

impl IntoFuture for TryLockRequest {
    type Output = Result<Option<Guard>>;
    type IntoFuture = Boxed<Option<Guard>>;

    fn into_future(self) -> Self::IntoFuture {
        let wait = match self.wait {
            None | Some(Duration::ZERO) => WaitLimit::Not,
            Some(wait) => WaitLimit::AtMost(wait),
        };
        self.lock.acquire(self.options, wait)
    }
}

impl IntoFuture for UnlockRequest {
    type Output = Result<Unlocked>;
    type IntoFuture = Boxed<Unlocked>;

    fn into_future(self) -> Self::IntoFuture {
        self.lock.unlock(self.owner)
    }
}

/// Does the work while the lock is held, and only then lets its output out.
async fn run<F, Fut>(guard: Guard, work: F) -> Result<Fut::Output>
where
    F: FnOnce(Held) -> Fut,
    Fut: Future,
{
    let work = work(guard.held());
    let output = tokio::select! {
        biased;
        lost = guard.lost() => return Err(Error::Lost(lost)),
        output = work => output,
    };
    match guard.unlock().await {
        // The lock was valid up to here; who confirms its end does not matter to the output.
        Ok(_) | Err(Error::UnlockUnconfirmed(_)) => Ok(output),
        Err(error) => Err(error),
    }
}

/// A call whose wait is shorter has this long for its first attempt: with less, a free lock would be a
/// timeout.
pub(crate) const FIRST_ATTEMPT: Duration = Duration::from_millis(10);
