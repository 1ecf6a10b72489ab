//! What can go wrong, and what it means for the lock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What every fallible call returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed.
///
/// A lock that somebody else holds is no error: `try_lock` answers `None`.
/// Each variant says whether the lock is held, and what to do.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The client was shut down. The lock is not held through this call.
    ///
    /// Make a new client.
    #[error("the client is shut down")]
    Closed,

    /// An argument cannot be used; nothing was sent. The lock is not held through this call.
    ///
    /// Mend the call: the message names the argument and its bounds.
    #[error("invalid {what}: {why}")]
    Invalid {
        /// The argument.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },

    /// The lock was held and is no more. Somebody else may hold it by now.
    ///
    /// Stop the work that it protected, drop the guard, and acquire again if there is reason to.
    #[error(transparent)]
    Lost(#[from] Lost),

    /// This owner has nothing to unlock. The lock is not held by it.
    ///
    /// Redisson throws `IllegalMonitorStateException`. Mend the pairing of lock and unlock; a hold
    /// that a living guard stands for is ended through that guard.
    #[error(transparent)]
    NotHeld(#[from] NotHeld),

    /// The server answered with an error, named by its code. An acquire did not take the lock.
    ///
    /// Mend the cause: a permission, a password, the type of the key, the server's memory or disk.
    /// [`Error::is_retriable`] tells the passing ones (`LOADING`, `READONLY`, ...) apart.
    #[error("the server refused the command: {code} {message}")]
    Refused {
        /// The error's code: `WRONGTYPE`, `NOPERM`, `OOM`, ...
        code: String,
        /// The rest of the server's answer.
        message: String,
    },

    /// The server did not answer in time. The lock is not held through this call: if the command
    /// still arrives, the client undoes it in the background.
    ///
    /// Try again later; until the undoing is done the lock may look taken, for one lease at most.
    #[error("no answer from the server in time, waited={}ms", waited.as_millis())]
    Timeout {
        /// How long the call waited for an answer.
        waited: Duration,
    },

    /// This client has as many waiters as it may have. The lock is not held through this call.
    ///
    /// Shed load, or raise `ClientBuilder::max_waiters`.
    #[error("too many waiters, max_waiters={limit}")]
    TooManyWaiters {
        /// The bound, as configured.
        limit: usize,
    },

    /// There is no connection to the server. The lock is not held through this call: if a command
    /// was already on its way, the client undoes it in the background.
    ///
    /// Try again later.
    #[error("no connection to the server: {cause}")]
    Unavailable {
        /// What the connection said, without secrets.
        cause: Arc<str>,
    },

    /// An unlock was sent and its outcome is not known. The lock may still be taken in Redis, for
    /// one lease at most; this owner does not hold it any more, and the client keeps trying to
    /// release it in the background until then.
    ///
    /// Nothing has to be done. Treat the protected work as in doubt if it had to be over before
    /// anybody else began.
    #[error(transparent)]
    UnlockUnconfirmed(#[from] UnlockUnconfirmed),
}

impl Error {
    /// The lock was held and has been lost.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost(_))
    }

    /// The server did not answer in time.
    pub fn is_timeout(&self) -> bool {
        match self {
            Self::Timeout { .. } => true,
            Self::UnlockUnconfirmed(unlock) => unlock.cause().is_some_and(Self::is_timeout),
            _ => false,
        }
    }

    /// The same call may well succeed later, with nothing mended by anybody.
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Timeout { .. } | Self::TooManyWaiters { .. } | Self::Unavailable { .. } => true,
            Self::Refused { code, message } => passes(code, message),
            _ => false,
        }
    }

    /// Redis may still count the lock as held by the owner that made this call, for one lease at
    /// most, though the owner must not act on it.
    pub fn may_be_held(&self) -> bool {
        matches!(
            self,
            Self::Timeout { .. } | Self::Unavailable { .. } | Self::UnlockUnconfirmed(_)
        )
    }

    pub(crate) fn invalid(what: &'static str, why: String) -> Self {
        Self::Invalid { what, why }
    }
}

/// Whether an error answer is about a state of the server that passes by itself.
pub(crate) fn passes(code: &str, message: &str) -> bool {
    matches!(
        code,
        "ASK"
            | "BUSY"
            | "CLUSTERDOWN"
            | "LOADING"
            | "MASTERDOWN"
            | "MOVED"
            | "NOREPLICAS"
            | "READONLY"
            | "TRYAGAIN"
    ) || message.contains("max number of clients")
}

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
        )
    }
}

impl std::error::Error for Lost {}

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
                "this owner holds the lock through a guard, unlock that: lock={lock:?} \
                 owner={owner} acquired={}ms ago, last good renewal={}ms ago",
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
    cause: Option<Box<Error>>,
}

impl UnlockUnconfirmed {
    pub(crate) fn new(lock: &str, cause: Option<Error>) -> Self {
        Self {
            lock: lock.into(),
            cause: cause.map(Box::new),
        }
    }

    /// The lock's name.
    pub fn lock(&self) -> &str {
        &self.lock
    }

    /// What kept the answer away. `None`: a repeated unlock found nothing, and the deadline had
    /// passed meanwhile, so that it may have been the first unlock or the end of the lease.
    pub fn cause(&self) -> Option<&Error> {
        self.cause.as_deref()
    }
}

impl fmt::Display for UnlockUnconfirmed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the unlock could not be confirmed: lock={:?}", self.lock)
    }
}

impl std::error::Error for UnlockUnconfirmed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}
