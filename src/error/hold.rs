//! What can go wrong with a hold: it is lost, it was never there, or its end was not confirmed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Error, Instance};

/// Why a hold was lost.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum LostReason {
    /// Its lease ran out, or could not be renewed in time: nothing is known of it since.
    Deadline,
    /// This client freed it by force.
    Forced,
    /// The request's `max_hold` is over.
    MaxHold,
    /// Redis says that the hold is not there: deleted, expired early, or taken by another.
    NotOurs,
    /// It was unlocked; only a view that outlived its guard sees this.
    Released,
    /// The client was shut down.
    ShutDown,
    /// The watchdog failed from within, so that nobody watched the lease any more.
    Watchdog,
}

impl LostReason {
    /// One word for this reason, the same in all versions: `deadline`, `forced`, `max_hold`, `not_ours`,
    /// `released`, `shut_down` or `watchdog`. The logs have it as `reason`.
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
            Self::MaxHold => "its max_hold is over",
            Self::NotOurs => "it is not ours any more",
            Self::Released => "it was released",
            Self::ShutDown => "the client was shut down",
            Self::Watchdog => "the watchdog failed",
        })
    }
}

/// How a hold was lost.
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

    /// Why.
    pub fn reason(&self) -> LostReason {
        self.0.reason
    }

    /// The lock's name.
    pub fn lock(&self) -> &str {
        &self.0.lock
    }

    /// The owner, as in the hash field.
    pub fn owner(&self) -> &str {
        &self.0.owner
    }

    /// The time from the acquire to the moment at which this was made.
    pub fn held_for(&self) -> Duration {
        self.0.held_for
    }

    /// The time since the last good renewal, or the acquire if there was none, was sent.
    pub fn since_renewal(&self) -> Duration {
        self.0.renewed
    }

    /// What each part of a lock of several was to the whole at its end, in the order in which they
    /// were given: which servers failed, and why. Empty for a plain lock.
    pub fn instances(&self) -> &[Instance] {
        &self.0.instances
    }

    /// The same loss, as that of the whole of which it was a part.
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

/// What an owner asked for once more, though it is not reentrant.
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

    /// The owner, as in the hash field.
    pub fn owner(&self) -> &str {
        &self.0.owner
    }
}

impl fmt::Display for AlreadyHeld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = &*self.0;
        write!(
            f,
            "this owner already holds the lock, which is not reentrant: lock={:?} owner={} \
             acquired={}ms ago",
            facts.lock,
            facts.owner,
            facts.held.as_millis(),
        )
    }
}

impl std::error::Error for AlreadyHeld {}

/// What an owner tried to unlock without holding it.
#[derive(Clone, Debug)]
pub struct NotHeld(Arc<NotHeldFacts>);

#[derive(Debug)]
struct NotHeldFacts {
    lock: String,
    owner: String,
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

    /// The owner, as in the hash field.
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
                "this owner has no hold to unlock: lock={lock:?} owner={owner}, never acquired or \
                 already ended"
            ),
            Some((held, renewed)) => write!(
                f,
                "this owner holds the lock through a guard or a lock of several, unlock that: \
                 lock={lock:?} owner={owner} acquired={}ms ago, last good renewal={}ms ago",
                held.as_millis(),
                renewed.as_millis(),
            ),
        }
    }
}

impl std::error::Error for NotHeld {}

/// An unlock whose outcome nobody saw.
#[derive(Clone, Debug)]
pub struct UnlockUnconfirmed {
    lock: Arc<str>,
    waited: Option<Duration>,
    cause: Option<Box<Error>>,
    instances: Arc<[Instance]>,
}

impl UnlockUnconfirmed {
    /// Of a plain lock, after this time.
    pub(crate) fn new(lock: &str, waited: Duration, cause: Option<Error>) -> Self {
        Self {
            lock: lock.into(),
            waited: Some(waited),
            cause: cause.map(Box::new),
            instances: Arc::default(),
        }
    }

    /// Of a lock of several, by what became of each part.
    pub(super) fn of_whole(lock: &str, instances: Vec<Instance>) -> Self {
        Self {
            lock: lock.into(),
            waited: None,
            cause: instances.iter().find_map(Instance::failure).map(Box::new),
            instances: instances.into(),
        }
    }

    /// The lock's name.
    pub fn lock(&self) -> &str {
        &self.lock
    }

    /// What kept the answer away, as the text says too; of a lock of several, that of the first part which did not confirm,
    /// with its server. `None`: a repeated unlock found nothing, and the deadline had
    /// passed meanwhile, so that it may have been the first unlock or the end of the lease.
    pub fn cause(&self) -> Option<&Error> {
        self.cause.as_deref()
    }

    /// What became of each part of a lock of several, in the order in which they were given: which
    /// servers did not confirm, and why. Empty for a plain lock.
    pub fn instances(&self) -> &[Instance] {
        &self.instances
    }
}

impl fmt::Display for UnlockUnconfirmed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the unlock could not be confirmed: lock={:?}", self.lock)?;
        if let Some(waited) = self.waited {
            write!(f, " waited={}ms; ", waited.as_millis())?;
            match &self.cause {
                Some(cause) => write!(f, "{cause}")?,
                None => f.write_str(FOUND_NOTHING)?,
            }
        }
        for instance in &*self.instances {
            write!(f, "; {instance}")?;
        }
        Ok(())
    }
}

impl std::error::Error for UnlockUnconfirmed {
    // The text has the cause, so that it is no source.
}

const FOUND_NOTHING: &str = "a repeated unlock found nothing, and the lease was over by then";
