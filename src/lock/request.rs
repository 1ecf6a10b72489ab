//! What a caller asks for; nothing happens before it is awaited.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::time::Duration;

use super::acquire::{self, Wait};
use super::{Boxed, Lock};
use crate::error::{Error, Result};
use crate::guard::{Guard, Held};
use crate::hold::Terms;
use crate::lease;
use crate::owner::Owner;
use crate::session::{Claim, Reentry};

/// A wish to hold a lock, from [`Lock::lock`]. Await it.
///
/// Where a `Future` is asked for, as by `tokio::spawn`, write `lock.lock().into_future()`.
#[derive(Clone)]
#[must_use = "a request does nothing unless it is awaited"]
pub struct LockRequest {
    wish: Wish,
}

/// A wish to hold a lock if it can be had in time, from [`Lock::try_lock`]. Await it.
///
/// Where a `Future` is asked for, as by `tokio::spawn`, write `lock.try_lock().into_future()`.
#[derive(Clone)]
#[must_use = "a request does nothing unless it is awaited"]
pub struct TryLockRequest {
    wish: Wish,
    wait: Option<Duration>,
}

/// What both requests share.
#[derive(Clone)]
struct Wish {
    lock: Lock,
    lease: Option<Duration>,
    max_hold: Option<Duration>,
    owner: Option<Owner>,
    reentry: Reentry,
}

macro_rules! options {
    () => {
        /// Takes the lock for this long, without a watchdog: it is not renewed and frees itself when
        /// the time is over. From 10 ms up to the client's `max_lease`, in whole milliseconds.
        /// Corresponds to Redisson's `leaseTime`; its -1 is no lease here.
        ///
        /// Nor is it looked after: that its key was deleted is noticed at its deadline, at its
        /// unlock, or when this client next asks for the lock.
        pub fn lease(mut self, lease: Duration) -> Self {
            self.wish.lease = Some(lease);
            self
        }

        /// Bounds how long the watchdog may keep the lock, counted from this acquire; then it is
        /// lost, with [`LostReason::MaxHold`](crate::LostReason::MaxHold). For work that may hang.
        /// Where several acquires of one hold set a bound, the earliest holds. Redisson has no such
        /// thing.
        pub fn max_hold(mut self, max_hold: Duration) -> Self {
            self.wish.max_hold = Some(max_hold);
            self
        }

        /// Acquires as this owner instead of the current one. Corresponds to the `threadId` of
        /// Redisson's `lockAsync(threadId)`.
        pub fn owner(mut self, owner: &Owner) -> Self {
            self.wish.owner = Some(*owner);
            self
        }

        /// Who counts the acquire, should the owner hold the lock already.
        ///
        /// Defaults to what [`ClientBuilder::reentry`](crate::ClientBuilder::reentry) says. Redisson
        /// counts in Redis always.
        pub fn reentry(mut self, reentry: Reentry) -> Self {
            self.wish.reentry = reentry;
            self
        }
    };
}

impl LockRequest {
    pub(super) fn new(lock: Lock) -> Self {
        let wish = Wish::new(lock);
        Self { wish }
    }

    options!();

    /// As [`Lock::with`], on the terms of this request.
    ///
    /// # Errors
    ///
    /// As [`Lock::with`].
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::with`].
    pub async fn with<F, Fut>(self, work: F) -> Result<Fut::Output>
    where
        F: FnOnce(Held) -> Fut,
        Fut: Future,
    {
        run(self.await?, work).await
    }
}

impl TryLockRequest {
    pub(super) fn new(lock: Lock) -> Self {
        let wish = Wish::new(lock);
        Self { wish, wait: None }
    }

    options!();

    /// Waits for the lock at most this long, all included. Zero is one attempt, as without.
    /// Corresponds to Redisson's `waitTime`.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// As [`Lock::with`], on the terms of this request; `None` if somebody else has the lock.
    ///
    /// # Errors
    ///
    /// As [`Lock::with`].
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::with`].
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

impl Wish {
    fn new(lock: Lock) -> Self {
        Self {
            reentry: lock.session.core().settings.reentry,
            lock,
            lease: None,
            max_hold: None,
            owner: None,
        }
    }

    /// Checks everything that can be checked before a command is sent.
    fn terms(&self) -> Result<Terms> {
        let settings = &self.lock.session.core().settings;
        if let Some(lease) = self.lease {
            lease::check("lease", lease, settings.max_lease)?;
        }
        if let Some(max_hold) = self.max_hold {
            lease::check("max_hold", max_hold, Duration::MAX)?;
        }
        let lease = self.lease.unwrap_or(settings.watchdog_lease);
        Ok(Terms {
            lease: lease::whole(lease.min(self.max_hold.unwrap_or(lease))),
            watched: self.lease.is_none(),
            max_hold: self.max_hold,
            local: self.reentry == Reentry::Local && self.max_hold.is_none(),
        })
    }

    /// What the request becomes. `told` makes its answer out of a guard, or none.
    fn call<T: 'static>(mut self, wait: Wait, told: fn(Option<Guard>) -> Result<T>) -> Boxed<T> {
        if self.reentry == Reentry::Counted {
            return Box::pin(async move { told(self.acquire(wait).await?) });
        }
        Box::pin(async move {
            let owner = *self.owner.get_or_insert_with(Owner::current);
            // A loop of calls that wait for nothing must let other tasks run, too.
            tokio::task::consume_budget().await;
            match self.again(owner)? {
                Some(guard) => told(Some(guard)),
                // Large, so that it is made only if Redis has to be asked.
                None => told(Box::pin(self.acquire(wait)).await?),
            }
        })
    }

    /// A guard more of what `owner` holds, if Redis need not count it.
    fn again(&self, owner: Owner) -> Result<Option<Guard>> {
        let terms = self.terms()?;
        let claim = Claim::again(&self.lock.session, self.lock.key()?, owner, &terms);
        Ok(claim.map(Guard::new))
    }

    async fn acquire(self, wait: Wait) -> Result<Option<Guard>> {
        let owner = self.owner.unwrap_or_else(Owner::current);
        let terms = self.terms()?;
        let key = self.lock.key()?;
        acquire::acquire(&self.lock.session, key, owner, &terms, wait).await
    }
}

impl IntoFuture for LockRequest {
    type Output = Result<Guard>;
    type IntoFuture = Boxed<Guard>;

    fn into_future(self) -> Self::IntoFuture {
        // A wait without end ends with a guard or an error.
        let told = |guard: Option<Guard>| guard.ok_or(Error::Closed);
        self.wish.call(Wait::ForEver, told)
    }
}

impl IntoFuture for TryLockRequest {
    type Output = Result<Option<Guard>>;
    type IntoFuture = Boxed<Option<Guard>>;

    fn into_future(self) -> Self::IntoFuture {
        let wait = match self.wait {
            None | Some(Duration::ZERO) => Wait::Not,
            Some(wait) => Wait::AtMost(wait),
        };
        self.wish.call(wait, Ok)
    }
}

impl fmt::Debug for LockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.wish.fmt("LockRequest", f).finish()
    }
}

impl fmt::Debug for TryLockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.wish
            .fmt("TryLockRequest", f)
            .field("wait", &self.wait)
            .finish()
    }
}

impl Wish {
    fn fmt<'a, 'b>(&self, name: &str, f: &'a mut fmt::Formatter<'b>) -> fmt::DebugStruct<'a, 'b> {
        let mut debug = f.debug_struct(name);
        debug
            .field("lock", &self.lock.name())
            .field("lease", &self.lease)
            .field("max_hold", &self.max_hold)
            .field("owner", &self.owner)
            .field("reentry", &self.reentry);
        debug
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
