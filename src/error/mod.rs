//! What can go wrong, and what it means for the lock; the facts that an error carries.

mod hold;
mod replicas;
mod report;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use hold::LostFacts;
pub use hold::{AlreadyHeld, Lost, LostReason, NotHeld, UnlockUnconfirmed};
pub use replicas::NotReplicated;
pub use report::{Instance, InstanceState, NoQuorum};

/// What every fallible call returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed.
///
/// A lock that somebody else holds is no error: `try_lock` answers `None`.
/// Each variant says whether the lock is held, and what to do.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This owner holds the lock, which is not reentrant, and goes on holding it. Nothing was sent, and
    /// nothing was taken by this call.
    ///
    /// Redisson throws `IllegalMonitorStateException`. Use the guard that is there, or fix the nesting of
    /// the calls.
    #[error(transparent)]
    AlreadyHeld(#[from] AlreadyHeld),

    /// The client was shut down. The lock is not held through this call.
    ///
    /// Make a new client.
    #[error("the client is shut down")]
    Closed,

    /// An argument cannot be used; nothing was sent. The lock is not held through this call.
    ///
    /// Mend the call: the message names the argument and its bounds.
    #[error("invalid {what}: {why}")]
    #[non_exhaustive]
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

    /// Too few of a quorum's instances could be had in time, and not because somebody else holds the
    /// lock. It is not held through this call: what was acquired is given back in the background, on
    /// the instances that did not answer too.
    ///
    /// Try again later; until an instance that did not answer has been told, it may look taken, for
    /// one lease at most. [`NoQuorum::instances`] says what each of them was.
    #[error(transparent)]
    NoQuorum(#[from] NoQuorum),

    /// This owner has nothing to unlock. The lock is not held by it.
    ///
    /// Redisson throws `IllegalMonitorStateException`. Mend the pairing of lock and unlock; a hold
    /// that a living guard stands for is ended through that guard.
    #[error(transparent)]
    NotHeld(#[from] NotHeld),

    /// Too few replicas acknowledged the lock in time
    /// ([`ReplicaAck::Require`](crate::config::ReplicaAck::Require)). It is not held through this call: the
    /// master granted it, and it was given back before this was told, or is in the background where
    /// the master did not answer that in time ([`NotReplicated::is_undone`]).
    ///
    /// Try again later, or see to the replicas.
    #[error(transparent)]
    NotReplicated(#[from] NotReplicated),

    /// The server answered with an error, named by its code. An acquire did not take the lock.
    ///
    /// Mend the cause: a permission, a password, the type of the key, the server's memory or disk.
    /// [`Error::is_retriable`] tells the passing ones (`LOADING`, `READONLY`, ...) apart.
    #[error("the server refused the command: {code} {message}")]
    #[non_exhaustive]
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
    #[error(
        "no answer from the server in time, waited={}ms{}",
        waited.as_millis(),
        part.as_deref().unwrap_or_default()
    )]
    #[non_exhaustive]
    Timeout {
        /// How long the call took, from its first poll; in the report on one part of a lock of
        /// several, how long that part was asked.
        waited: Duration,
        /// Who did not answer, in words: the lock's name and its server for a part of a lock of
        /// several, the server for a client that could not be built, and the server that was asked for
        /// a call on a cluster or behind sentinels. `None` for a call on a single server, and where
        /// nobody was asked.
        part: Option<Arc<str>>,
    },

    /// This client has as many waiters as it may have. The lock is not held through this call.
    ///
    /// Shed load, or raise `ClientBuilder::max_waiters`.
    #[error("too many waiters, max_waiters={limit}")]
    #[non_exhaustive]
    TooManyWaiters {
        /// The bound, as configured.
        limit: u32,
    },

    /// There is no connection to the server. The lock is not held through this call: if a command
    /// was already on its way, the client undoes it in the background.
    ///
    /// Try again later.
    #[error("no connection to the server: {cause}")]
    #[non_exhaustive]
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
            Self::NoQuorum(_)
            | Self::NotReplicated(_)
            | Self::Timeout { .. }
            | Self::TooManyWaiters { .. }
            | Self::Unavailable { .. } => true,
            Self::Refused { code, message } => passes(code, message),
            _ => false,
        }
    }

    /// Redis may still count the lock as held by the owner that made this call, for one lease at
    /// most, though the owner must not act on it.
    pub fn may_be_held(&self) -> bool {
        match self {
            Self::NoQuorum(_)
            | Self::Timeout { .. }
            | Self::Unavailable { .. }
            | Self::UnlockUnconfirmed(_) => true,
            Self::NotReplicated(acquire) => !acquire.is_undone(),
            _ => false,
        }
    }

    /// The same failure, of one part of a lock of several.
    pub(crate) fn of_part(self, locks: &str, server: &str) -> Self {
        self.with_place(&format!("; lock={locks} server={server}"))
    }

    /// The same failure, of this server.
    pub(crate) fn of_server(self, server: &str) -> Self {
        self.with_place(&format!("; server={server}"))
    }

    /// The same failure, of this server where it is known which one it was.
    pub(crate) fn at(self, server: Option<&str>) -> Self {
        match server {
            Some(server) => self.of_server(server),
            None => self,
        }
    }

    fn with_place(self, place: &str) -> Self {
        match self {
            Self::Refused { code, message } => Self::Refused {
                code,
                message: message + place,
            },
            Self::Timeout { waited, part } => Self::Timeout {
                waited,
                part: Some([part.as_deref().unwrap_or_default(), place].concat().into()),
            },
            Self::Unavailable { cause } => Self::Unavailable {
                cause: [&cause, place].concat().into(),
            },
            other => other,
        }
    }

    /// For the log: as it is shown, without the names of locks, which may be personal data.
    pub(crate) fn unnamed(&self) -> String {
        match self {
            Self::Lost(lost) => format!("the lock was lost: {}", lost.reason()),
            Self::Invalid { what, .. } => format!("invalid {what}"),
            Self::AlreadyHeld(_) => "the lock is held already".to_owned(),
            Self::NotHeld(_) => "the lock is not held".to_owned(),
            Self::NotReplicated(_) => "too few replicas acknowledged the lock in time".to_owned(),
            Self::NoQuorum(_) => "no quorum".to_owned(),
            Self::UnlockUnconfirmed(_) => "the unlock was not confirmed".to_owned(),
            Self::Timeout { waited, .. } => Self::timeout(*waited).to_string(),
            Self::Closed
            | Self::Refused { .. }
            | Self::TooManyWaiters { .. }
            | Self::Unavailable { .. } => self.to_string(),
        }
    }

    /// The same failure, of a call that waited so long.
    pub(crate) fn after(self, waited: Duration) -> Self {
        match self {
            Self::Timeout { part, .. } => Self::Timeout { waited, part },
            other => other,
        }
    }

    pub(crate) fn timeout(waited: Duration) -> Self {
        Self::Timeout { waited, part: None }
    }

    /// The unlock of a lock of several, of whose parts this became.
    pub(crate) fn unconfirmed(lock: &str, instances: Vec<Instance>) -> Self {
        UnlockUnconfirmed::of_whole(lock, instances).into()
    }

    pub(crate) fn invalid(what: &'static str, why: String) -> Self {
        Self::Invalid { what, why }
    }

    /// A lock of several was made of none.
    pub(crate) fn no_locks() -> Self {
        Self::invalid("locks", "there are none".to_owned())
    }

    /// A lock of several was made of one lock twice.
    pub(crate) fn same_lock(name: &str) -> Self {
        let why = format!("one lock of one client is given twice, lock={name:?}");
        Self::invalid("locks", why)
    }

    /// The same mistake, in one of several locks, counted from 0.
    pub(crate) fn in_lock(self, place: usize) -> Self {
        match self {
            Self::Invalid { what, why } => Self::Invalid {
                what,
                why: format!("{why}, place={}", place + 1),
            },
            other => other,
        }
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
