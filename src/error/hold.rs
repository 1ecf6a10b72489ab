//! The errors about a hold: it is lost, it does not exist, or its end is not confirmed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Error, Instance};

/// Why a hold was lost, from [`Lost::reason`] and [`Verdict::Lost`](crate::report::Verdict::Lost).
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum LostReason {
    /// The lease ended, or the client could not renew it in time. The client does not know the state of
    /// the lock in Redis after that.
    Deadline,
    /// This client freed it by force: [`Lock::force_unlock`](crate::Lock::force_unlock).
    Forced,
    /// The time of the request's [`max_hold`](crate::request::LockRequest::max_hold) ended.
    MaxHold,
    /// Redis answered that the hold does not exist. Its key was deleted or expired early, or another
    /// owner has the lock.
    NotOurs,
    /// It was unlocked. Only a [`Held`](crate::Held) that outlives its guard reports this.
    Released,
    /// The client was shut down: [`Client::shutdown`](crate::Client::shutdown).
    ShutDown,
    /// The watchdog panicked, so the client can no longer renew leases.
    Watchdog,
}

impl LostReason {
    /// The reason as one word, which does not change between versions: `deadline`, `forced`, `max_hold`,
    /// `not_ours`, `released`, `shut_down` or `watchdog`. It is the field `reason` of the logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deadline => "deadline",
            Self::Forced => "forced",
            Self::MaxHold => "max_hold",
            Self::NotOurs => "not_ours",
            Self::Released => "released",
            Self::ShutDown => "shut_down",
            Self::Watchdog => "watchdog",
        }
    }
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deadline => "its deadline passed",
            Self::Forced => "this client freed it by force",
            Self::MaxHold => "its max_hold ended",
            Self::NotOurs => "Redis no longer has this hold",
            Self::Released => "it was released",
            Self::ShutDown => "the client was shut down",
            Self::Watchdog => "the watchdog failed",
        })
    }
}

/// The loss of a hold, from [`Guard::lost`](crate::Guard::lost) and
/// [`Error::Lost`]: its reason, its lock and its times.
#[derive(Clone, Debug)]
pub struct Lost(Arc<LostFacts>);

#[derive(Clone, Debug)]
pub(crate) struct LostFacts {
    pub(crate) reason: LostReason,
    pub(crate) lock: String,
    pub(crate) owner: String,
    pub(crate) held_for: Duration,
    pub(crate) renewed: Duration,
    pub(crate) instances: Vec<Instance>,
}

impl Lost {
    pub(crate) fn new(facts: LostFacts) -> Self {
        Self(Arc::new(facts))
    }

    /// Why the hold was lost.
    pub fn reason(&self) -> LostReason {
        self.0.reason
    }

    /// The lock's name.
    pub fn lock(&self) -> &str {
        &self.0.lock
    }

    /// The owner that lost it, as in the field of the lock's hash in Redis.
    pub fn owner(&self) -> &str {
        &self.0.owner
    }

    /// The time from the acquire to this report.
    pub fn held_for(&self) -> Duration {
        self.0.held_for
    }

    /// The time from the sending of the last successful renewal to this report. If no renewal succeeded,
    /// it counts from the sending of the acquire.
    pub fn since_renewal(&self) -> Duration {
        self.0.renewed
    }

    /// The state of each part of a [`MultiLock`](crate::MultiLock) or [`RedLock`](crate::RedLock) at the
    /// loss, in the order in which the caller gave them: which servers failed, and why. Empty for a
    /// plain lock.
    pub fn instances(&self) -> &[Instance] {
        &self.0.instances
    }

    /// The loss of the composite lock, caused by this loss of one of its parts.
    pub(crate) fn of_whole(&self, instances: Vec<Instance>) -> Self {
        let facts = LostFacts::clone(&self.0);
        Self::new(LostFacts { instances, ..facts })
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = &*self.0;
        write!(
            f,
            "the lock was lost, {}; drop its guard before acquiring it again: lock={:?} owner={} \
             acquired={}ms ago, last good renewal={}ms ago",
            facts.reason,
            facts.lock,
            facts.owner,
            facts.held_for.as_millis(),
            facts.renewed.as_millis(),
        )?;
        for instance in &facts.instances {
            write!(f, "; {instance}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Lost {}

/// A second acquire of a non-reentrant lock by the owner that holds it, from [`Error::AlreadyHeld`].
#[derive(Clone, Debug)]
pub struct AlreadyHeld(Arc<AlreadyHeldFacts>);

#[derive(Debug)]
struct AlreadyHeldFacts {
    lock: String,
    owner: String,
    held: Duration,
}

impl AlreadyHeld {
    pub(crate) fn new(lock: &str, owner: &str, held: Duration) -> Self {
        Self(Arc::new(AlreadyHeldFacts {
            lock: lock.to_owned(),
            owner: owner.to_owned(),
            held,
        }))
    }

    /// The lock's name.
    pub fn lock(&self) -> &str {
        &self.0.lock
    }

    /// The owner, as in the field of the lock's hash in Redis.
    pub fn owner(&self) -> &str {
        &self.0.owner
    }
}

impl fmt::Display for AlreadyHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = &*self.0;
        write!(
            f,
            "this owner already holds the lock, which is not reentrant; use the existing guard: \
             lock={:?} owner={} acquired={}ms ago",
            facts.lock,
            facts.owner,
            facts.held.as_millis(),
        )
    }
}

impl std::error::Error for AlreadyHeld {}

/// An unlock by an owner that has no forgotten hold of the lock, from [`Error::NotHeld`].
#[derive(Clone, Debug)]
pub struct NotHeld(Arc<NotHeldFacts>);

#[derive(Debug)]
struct NotHeldFacts {
    lock: String,
    owner: String,
    /// If the owner holds the lock only through guards: the times since the acquire and since the last
    /// successful renewal.
    guarded: Option<(Duration, Duration)>,
}

impl NotHeld {
    pub(crate) fn nothing(lock: &str, owner: &str) -> Self {
        Self::new(lock, owner, None)
    }

    /// The owner holds the lock, but only through guards.
    pub(crate) fn guarded(lock: &str, owner: &str, held: Duration, renewed: Duration) -> Self {
        Self::new(lock, owner, Some((held, renewed)))
    }

    fn new(lock: &str, owner: &str, guarded: Option<(Duration, Duration)>) -> Self {
        Self(Arc::new(NotHeldFacts {
            lock: lock.to_owned(),
            owner: owner.to_owned(),
            guarded,
        }))
    }

    /// The lock's name.
    pub fn lock(&self) -> &str {
        &self.0.lock
    }

    /// The owner, as in the field of the lock's hash in Redis.
    pub fn owner(&self) -> &str {
        &self.0.owner
    }
}

impl fmt::Display for NotHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = &*self.0;
        let (lock, owner) = (&facts.lock, &facts.owner);
        match facts.guarded {
            None => write!(
                f,
                "this owner has no forgotten hold to unlock; it never had one, or it has ended: \
                 lock={lock:?} owner={owner}"
            ),
            Some((held, renewed)) => write!(
                f,
                "a guard, a MultiLock or a RedLock of this owner has the lock; unlock that instead: \
                 lock={lock:?} owner={owner} acquired={}ms ago, last good renewal={}ms ago",
                held.as_millis(),
                renewed.as_millis(),
            ),
        }
    }
}

impl std::error::Error for NotHeld {}

/// An unlock whose outcome the client does not know, from [`Error::UnlockUnconfirmed`].
#[derive(Clone, Debug)]
pub struct UnlockUnconfirmed {
    lock: Arc<str>,
    waited: Duration,
    cause: Option<Box<Error>>,
    instances: Arc<[Instance]>,
}

impl UnlockUnconfirmed {
    /// For a single lock, after a wait of this time.
    pub(crate) fn new(lock: &str, waited: Duration, cause: Option<Error>) -> Self {
        Self {
            lock: lock.into(),
            waited,
            cause: cause.map(Box::new),
            instances: Arc::default(),
        }
    }

    /// For a multi lock or quorum, after a wait of this time, with the state of each part.
    pub(super) fn of_whole(lock: &str, waited: Duration, instances: Vec<Instance>) -> Self {
        Self {
            lock: lock.into(),
            waited,
            cause: instances.iter().find_map(Instance::failure).map(Box::new),
            instances: instances.into(),
        }
    }

    /// The lock's name.
    pub fn lock(&self) -> &str {
        &self.lock
    }

    /// How long the unlock waited for a confirmation.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Why there was no confirmation. The error's text contains it. For a multi lock or quorum it is the
    /// cause of the first part that did not confirm, with its server.
    ///
    /// `None` if a retried unlock found no hold after the deadline: either an earlier attempt released
    /// the lock, or its lease ended.
    pub fn cause(&self) -> Option<&Error> {
        self.cause.as_deref()
    }

    /// The state of each part of a [`MultiLock`](crate::MultiLock) or [`RedLock`](crate::RedLock), in the
    /// order in which the caller gave them: which servers did not confirm, and why. Empty for a plain
    /// lock.
    pub fn instances(&self) -> &[Instance] {
        &self.instances
    }
}

impl fmt::Display for UnlockUnconfirmed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the server did not confirm the unlock: lock={:?} waited={}ms",
            self.lock,
            self.waited.as_millis()
        )?;
        match &self.cause {
            // The state of its part, below, contains it.
            _ if !self.instances.is_empty() => {}
            Some(cause) => write!(f, "; {cause}")?,
            None => write!(f, "; {FOUND_NOTHING}")?,
        }
        for instance in &*self.instances {
            write!(f, "; {instance}")?;
        }
        Ok(())
    }
}

impl std::error::Error for UnlockUnconfirmed {
    // No `source`: the text already contains the cause.
}

const FOUND_NOTHING: &str = "a retried unlock found no hold, and the lease had ended by then";
