//! The guards and views of held locks.

mod composite;
mod held;
mod verdict;

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::background::ensure_runtime;
use crate::error::{Instance, Lost, Result};
use crate::hold::Dependant;
use crate::owner::Owner;
use crate::session::{Claim, Unlocked};

use composite::CompositeClaim;
pub(crate) use composite::CompositeHold;
pub use held::Held;
pub use verdict::Verdict;

/// A held lock.
///
/// [`Guard::unlock`] releases the lock and waits until Redis has confirmed it. Dropping the guard
/// releases it without waiting: the hold ends immediately, and the client's own thread sends the
/// release to Redis. A guard keeps its owner when it is moved. It can be dropped anywhere: outside a
/// runtime, in another runtime, during a panic.
///
/// A lock can be lost: its lease ran out, or its key was deleted. As long as the server keeps the key
/// until its TTL, [`Guard::lost`], [`Guard::lost_token`] and [`Guard::is_valid`] report the loss before
/// another owner can get the lock. If the server does not, they report it at the next renewal (one is
/// sent every third of the lease); with a fixed lease, they report it when the lease ends. Time always
/// passes between a check of the guard and the work that relies on it. If that matters, let the
/// resource reject late writes by a fencing token ([`Guard::token`]) or a version number of its own.
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: lockdog::Client) -> lockdog::Result<()> {
/// let guard = client.lock("orders:42").lock().await?;
/// tokio::select! {
///     lost = guard.lost() => eprintln!("stop: {lost}"),
///     () = work() => { guard.unlock().await?; }
/// }
/// # Ok(())
/// # }
/// # async fn work() {}
/// ```
#[must_use = "keep it in a variable, `let guard = ..`: `let _ = ..` drops the guard immediately, and that releases the lock"]
pub struct Guard {
    kind: GuardKind,
}

enum GuardKind {
    One(Claim),
    Several(CompositeClaim),
}

impl Guard {
    pub(crate) fn new(claim: Claim) -> Self {
        let kind = GuardKind::One(claim);
        Self { kind }
    }

    /// A guard of a lock of several parts. It has one claim on the lock.
    pub(crate) fn several(lock: Arc<dyn CompositeHold>) -> Self {
        let kind = GuardKind::Several(CompositeClaim::new(lock));
        Self { kind }
    }

    /// A view with the same facts, for work that must not unlock.
    pub(crate) fn held(&self) -> Held {
        match &self.kind {
            GuardKind::One(claim) => Held::one(claim),
            GuardKind::Several(claim) => Held::several(claim.lock().clone()),
        }
    }

    /// Notifies `dependant` when the lock is lost. Not for a lock of several parts.
    pub(crate) fn add_dependant(&self, dependant: Weak<dyn Dependant>) {
        if let GuardKind::One(claim) = &self.kind {
            claim.hold().add_dependant(dependant);
        }
    }

    /// Stops the notification of `dependant`, which is identified by its address.
    pub(crate) fn remove_dependant(&self, dependant: *const ()) {
        if let GuardKind::One(claim) = &self.kind {
            claim.hold().remove_dependant(dependant);
        }
    }

    /// The id of the client that has the lock. `None` for a lock of several parts.
    pub(crate) fn client_id(&self) -> Option<Uuid> {
        match &self.kind {
            GuardKind::One(claim) => Some(claim.session().core().id),
            GuardKind::Several(_) => None,
        }
    }

    /// The claim of a guard of one lock. `None` for a lock of several parts.
    pub(crate) fn claim(&self) -> Option<&Claim> {
        match &self.kind {
            GuardKind::One(claim) => Some(claim),
            GuardKind::Several(_) => None,
        }
    }

    /// The field in Redis of a single lock; empty for a lock of several parts.
    #[cfg(test)]
    pub(crate) fn field(&self) -> String {
        match &self.kind {
            GuardKind::One(claim) => claim.session().core().field(claim.hold()),
            GuardKind::Several(_) => String::new(),
        }
    }

    /// Waits until the lock is lost and returns how. It returns no later than the deadline up to which
    /// the lock may be used. Redisson reports no loss.
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub async fn lost(&self) -> Lost {
        self.held().lost().await
    }

    /// A token that is cancelled when the lock is lost. If you cancel it yourself, no other token is
    /// affected.
    pub fn lost_token(&self) -> CancellationToken {
        self.held().lost_token()
    }

    /// Whether the lock may be used now. Exact at the moment of the call, without asking Redis, even
    /// after the process or the machine was suspended for longer than the lease. Redisson's
    /// `isHeldByCurrentThread()` asks Redis; [`Lock::is_held`](crate::Lock::is_held) does that.
    pub fn is_valid(&self) -> bool {
        self.held().is_valid()
    }

    /// How long the lock may be used without a further renewal. Zero if it is lost. Redisson's
    /// `remainTimeToLive()` asks Redis; [`Lock::remaining_ttl`](crate::Lock::remaining_ttl) does that.
    pub fn remaining(&self) -> Duration {
        self.held().remaining()
    }

    /// Checks that the lock may be used now, and for `margin` more without a further renewal. Call it right
    /// before a step that cannot be undone, such as a `COMMIT` or a request to another service, with the
    /// time that the step takes. The client does not ask Redis.
    ///
    /// It is the place for `?`, where [`Guard::is_valid`] needs an `if`. The watchdog renews a lock when a third
    /// of its lease is over, or up to an eighth of the lease later if many are due together. So a healthy
    /// lock has more than half of its lease left. Redisson has no such call.
    ///
    /// # Errors
    ///
    /// A [`Lost`] if the lock was lost, or if less than `margin` is left. In the second case the reason is
    /// [`LostReason::Deadline`](crate::error::LostReason::Deadline) or
    /// [`LostReason::MaxHold`](crate::error::LostReason::MaxHold), and the lock is still held: the guard stays
    /// valid until its deadline, and a renewal or [`Guard::extend`] may lengthen it.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn example(client: lockdog::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let guard = client.lock("orders:42").lock().await?;
    /// // ... statements of a transaction ...
    /// guard.ensure(Duration::from_secs(2))?; // the commit takes at most 2 s
    /// // transaction.commit().await?;
    /// guard.unlock().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn ensure(&self, margin: Duration) -> std::result::Result<(), Lost> {
        self.held().ensure(margin)
    }

    /// Whether the lock is held, in jeopardy because its renewals fail, or lost. Use it in a service that
    /// stops early or shows the state. The client does not ask Redis. A lock with a fixed lease is not
    /// renewed, so it is never in jeopardy. Redisson has no such call.
    pub fn verdict(&self) -> Verdict {
        self.held().verdict()
    }

    /// The number of acquires of this owner that are not unlocked yet. The client does not ask Redis.
    /// Redisson's `getHoldCount()` asks Redis; [`Lock::hold_count`](crate::Lock::hold_count) does that.
    pub fn hold_count(&self) -> u32 {
        self.held().hold_count()
    }

    /// The owner that holds the lock. A guard keeps its owner when it is moved into another task.
    pub fn owner(&self) -> Owner {
        match &self.kind {
            GuardKind::One(claim) => claim.hold().owner(),
            GuardKind::Several(claim) => claim.lock().owner(),
        }
    }

    /// The lock's name, as given by the caller. Corresponds to Redisson's `getName()`.
    pub fn name(&self) -> &str {
        match &self.kind {
            GuardKind::One(claim) => claim.hold().key().name(),
            GuardKind::Several(claim) => claim.lock().name(),
        }
    }

    /// The fencing token, for a lock that issues tokens; `None` for every other lock. It is larger than
    /// that of every earlier holder, and the same for all acquires of one hold. A resource that
    /// stores the largest token it has seen, and rejects smaller ones, is safe from late writes.
    /// Corresponds to the result of `lockAndGetToken()` of Redisson's `RFencedLock`; its RedLock has no tokens.
    pub fn token(&self) -> Option<u64> {
        self.held().token()
    }

    /// The current state of each part of a lock of several parts, in the order in which they were
    /// given. Empty for a plain lock. Right after an acquire of a [`RedLock`](crate::RedLock) only a
    /// quorum is known; the other answers arrive later.
    pub fn instances(&self) -> Vec<Instance> {
        self.held().instances()
    }

    /// How many of the instances that hold the lock may lose its data early without another owner
    /// being able to get a quorum. An instance counts until the lease that it granted ends. This is not
    /// the number of instances that may be down: the lock is kept as long as a quorum answers, for
    /// example three of five. 0 for a lock that needs every part, and for a plain lock. Redisson has no such call.
    pub fn margin(&self) -> u32 {
        self.held().margin()
    }

    /// Releases the lock. Corresponds to Redisson's `unlock()`.
    ///
    /// # Errors
    ///
    /// - [`Error::Lost`](crate::Error::Lost) if it was lost before. Another owner may have held it since.
    /// - [`Error::UnlockUnconfirmed`](crate::Error::UnlockUnconfirmed) if Redis did not confirm within the
    ///   command timeout, or refused. The client retries in the background. If an earlier command for the
    ///   same hold is still unanswered, `unlock` waits for it first: three command timeouts in all.
    /// - [`Error::Invalid`](crate::Error::Invalid) outside a tokio runtime. The client then releases the
    ///   lock in the background.
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled at any point, the lock is released in the background, as by a drop.
    pub async fn unlock(self) -> Result<Unlocked> {
        // After this error the guard is dropped, so the background releases it.
        ensure_runtime()?;
        match self.kind {
            GuardKind::One(claim) => claim.unlock().await,
            GuardKind::Several(claim) => claim.unlock().await,
        }
    }

    /// Leaves the hold for a later `lock.unlock()` by its owner, as code ported from Java does:
    /// [`Lock::unlock`](crate::Lock::unlock), [`MultiLock::unlock`](crate::MultiLock::unlock),
    /// [`RedLock::unlock`](crate::RedLock::unlock).
    ///
    /// A hold without a fixed lease is renewed until then, or until the client ends. A hold with a
    /// fixed lease ends with its lease.
    pub fn forget(self) {
        match self.kind {
            GuardKind::One(claim) => claim.forget(),
            GuardKind::Several(claim) => claim.forget(),
        }
    }

    /// Ends the guard and leaves the lock in Redis until its lease ends. A throttle uses it:
    /// `try_lock().lease(d)`, then this. The client sends nothing, so the call cannot fail. Corresponds
    /// to Redisson's `tryLock(0, lease, unit)` without an `unlock`.
    ///
    /// After that no owner holds the lock. The owner of this guard has to wait for the end of the lease
    /// like any other owner, and `lock.unlock()` does not end the lock. Neither
    /// [`Client::shutdown`](crate::Client::shutdown) nor a drop of the client releases the lock. The
    /// report of the shutdown does not count it. `force_unlock` frees it.
    ///
    /// The watchdog no longer renews a lock that was acquired without a lease. So the lock stays for the rest of
    /// its lease, at most the watchdog's lease. To set that rest, call [`Guard::extend`] first. While other
    /// guards of the same hold live, the watchdog renews the hold for them. When the last of them ends,
    /// the lock is still left to its lease. A guard of a lost lock leaves nothing.
    ///
    /// Two limits: for a [`RedLock`](crate::RedLock) with other guards of the same hold, a shutdown of its
    /// clients releases the lock. A nested acquire with a longer lease that is in flight at the same time
    /// may lengthen the lease of the lock that is left.
    pub fn leave_to_lease(self) {
        match self.kind {
            GuardKind::One(claim) => claim.leave(),
            GuardKind::Several(claim) => claim.leave(),
        }
    }

    /// Extends the lease, so that it ends `lease` from now or later. Use it for work that takes longer
    /// than expected. `lease` is from 10 ms up to the client's `max_lease`, for a
    /// [`RedLock`](crate::RedLock) up to [its own](crate::RedLock::max_lease).
    ///
    /// The call never shortens a lease, and does not extend it beyond a `max_hold`. The watchdog still
    /// renews a guard without a lease, once no more than the watchdog's lease is left. All guards of the
    /// hold have the longer lease, also after this guard ended.
    ///
    /// The call takes at most a command timeout. For a `RedLock` it takes at most one round. In Redisson, a
    /// nested `lock(lease, unit)` gives a longer lease.
    ///
    /// # Errors
    ///
    /// - [`Error::Lost`](crate::Error::Lost) if the lock was lost before.
    /// - [`Error::Invalid`](crate::Error::Invalid) if the lease is out of bounds, and outside a tokio runtime. The
    ///   client sends nothing.
    /// - After any other error the lock is held as before, up to [`Guard::remaining`]. Redis may keep it
    ///   for the longer lease.
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled, the lock may or may not be held for longer.
    pub fn extend(&self, lease: Duration) -> impl Future<Output = Result<()>> + Send + use<> {
        let held = self.held();
        async move { held.extend(lease).await }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("lock", &self.name())
            .field("owner", &self.owner())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
