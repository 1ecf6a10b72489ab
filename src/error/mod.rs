//! The errors of all calls, and what each of them means for the lock.

mod hold;
mod members;
mod replicas;
mod report;
mod word;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use hold::LostFacts;
pub use hold::{AlreadyHeld, Lost, LostReason, NotHeld, UnlockUnconfirmed};
pub use replicas::NotReplicated;
pub use report::{Instance, InstanceState, NoQuorum};

/// The result of every fallible call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed.
///
/// A busy lock is no error: `try_lock` returns `None`.
/// The documentation of each variant says whether the lock is held, and what the caller must do.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This owner already holds the lock, which is not reentrant, and keeps it. The call sent nothing and
    /// acquired nothing.
    ///
    /// Redisson throws `IllegalMonitorStateException`. Use the existing guard, or do not nest the calls.
    #[error(transparent)]
    AlreadyHeld(#[from] AlreadyHeld),

    /// The client was shut down. This call does not hold the lock.
    ///
    /// Redisson throws `RedissonShutdownException`. Build a new client.
    #[error("the client is shut down")]
    Closed,

    /// An argument is not valid, or there is no tokio runtime. The client sent nothing. This call does not
    /// hold the lock.
    ///
    /// Redisson throws `IllegalArgumentException`. Fix the call. The message names the argument and its
    /// limits.
    #[error("invalid {what}: {why}")]
    #[non_exhaustive]
    Invalid {
        /// The argument.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },

    /// The owner held the lock and lost it. Another owner may hold it now.
    ///
    /// Redisson reports no loss; its `unlock()` then throws `IllegalMonitorStateException`. Stop the
    /// protected work and drop the guard. Then acquire the lock again if the work must continue.
    #[error(transparent)]
    Lost(#[from] Lost),

    /// Too few instances of a quorum granted the lock in time, and not because another owner holds it.
    /// This call does not hold the lock. The client releases in the background what it acquired, also on
    /// instances that did not answer.
    ///
    /// Retry later. An instance that did not answer may count the lock as taken for at most one lease.
    /// [`NoQuorum::instances`] has the state of each instance.
    #[error(transparent)]
    NoQuorum(#[from] NoQuorum),

    /// This owner has nothing to unlock: it has no forgotten hold of the lock.
    ///
    /// Redisson throws `IllegalMonitorStateException`. Fix the pairing of lock and unlock. If a guard of
    /// the hold exists, unlock that guard.
    #[error(transparent)]
    NotHeld(#[from] NotHeld),

    /// Too few replicas acknowledged the lock in time
    /// ([`ReplicaAck::Require`](crate::config::ReplicaAck::Require)). This call does not hold the lock. The
    /// master granted it, and the client released it before it returned this error. If the master did
    /// not confirm the release in time, the client continues in the background
    /// ([`NotReplicated::is_undone`]).
    ///
    /// Redisson throws an exception if the master has replicas, none of them acknowledged, and
    /// `checkLockSyncedSlaves` is set. Retry later, or check the replicas.
    #[error(transparent)]
    NotReplicated(#[from] NotReplicated),

    /// A permit is not in use: it was released before, its lease ended, or it is of another semaphore.
    /// The call released nothing.
    ///
    /// Redisson throws a `RedisException` whose cause is an `IllegalArgumentException`. Another owner may have
    /// the permit now.
    #[error(
        "a permit is not in use: it was released before, its lease ended, or it is of another semaphore, semaphore={semaphore:?}"
    )]
    #[non_exhaustive]
    PermitNotInUse {
        /// The name of the semaphore.
        semaphore: String,
    },

    /// The server answered with an error code. An acquire did not take the lock.
    ///
    /// Redisson throws `RedisException` or a class derived from it. Fix the cause: a permission, a
    /// password, the type of the key, the server's memory or disk. [`Error::is_retriable`] is true for
    /// transient codes (`LOADING`, `READONLY`, ...).
    #[error("the server refused the command: {code} {message}")]
    #[non_exhaustive]
    Refused {
        /// The error's code: `WRONGTYPE`, `NOPERM`, `OOM`, ...
        code: String,
        /// The rest of the server's answer.
        message: String,
    },

    /// The server did not answer in time. This call does not hold the lock. If the command of an acquire
    /// still arrives, the client undoes it in the background.
    ///
    /// Redisson throws `RedisTimeoutException` or `RedisResponseTimeoutException`. Retry later. Until the
    /// client has undone the command, the lock may look taken, for at most one lease; a permit without a
    /// lease, until the server answers.
    #[error(
        "no answer from the server in time, waited={}ms{}",
        waited.as_millis(),
        part.as_deref().unwrap_or_default()
    )]
    #[non_exhaustive]
    Timeout {
        /// How long the call took since its first poll. In the report on one part of a multi lock or
        /// quorum: how long the client waited for that part.
        waited: Duration,
        /// What did not answer, as text. For a part of a multi lock or quorum: the lock's name and
        /// server. For a failed `build`, and for a call with Sentinel or a cluster: the
        /// server. `None` for a call on a single server, and if no server was asked.
        part: Option<Arc<str>>,
    },

    /// The client already has its maximum number of waiters. Or it has that many calls without an answer
    /// (`count_down`, `add_permits`, and releases of a number of permits), which it counts separately. The client
    /// sent nothing. This call does not hold the lock.
    ///
    /// Start fewer calls at the same time, or raise `ClientBuilder::max_waiters`.
    #[error(
        "too many waiters, max_waiters={limit}; start fewer calls at the same time, or raise max_waiters"
    )]
    #[non_exhaustive]
    TooManyWaiters {
        /// The configured maximum.
        limit: u32,
    },

    /// There is no connection to the server. This call does not hold the lock. If the command of an
    /// acquire was already sent, the client undoes it in the background.
    ///
    /// Redisson throws `RedisConnectionException`. Retry later.
    #[error("no connection to the server: {cause}")]
    #[non_exhaustive]
    Unavailable {
        /// The error of the connection, without secrets.
        cause: Arc<str>,
    },

    /// The client has no answer to a call that changes a count: `count_down`, `add_permits`, or the release
    /// of a number of permits. The call may have counted, or counts later: the client sends it again in the
    /// background until the server answers, for as long as the documentation of the call says. It counts at
    /// most once.
    ///
    /// Redisson throws `RedisTimeoutException` or `RedisConnectionException`, and sends nothing more. Do not
    /// repeat the call: the second one would count too.
    #[error(
        "no answer yet to {call}, which the client continues to send; do not repeat it: {cause}"
    )]
    #[non_exhaustive]
    Unconfirmed {
        /// The call.
        call: &'static str,
        /// Why there is no answer yet.
        cause: Box<Self>,
    },

    /// The client sent an unlock and does not know its outcome. This owner no longer holds the lock. The
    /// lock may remain in Redis for at most one lease, and the client retries the release in the
    /// background until then. A permit without a lease stays in use until the server answers.
    ///
    /// Redisson throws `RedisTimeoutException`. The caller need not do anything. If two owners must never
    /// work at the same time, treat the result of the work as unsafe: only a confirmed unlock shows that the
    /// owner held the lock to the end.
    #[error(transparent)]
    UnlockUnconfirmed(#[from] UnlockUnconfirmed),

    /// The call would cause a deadlock. Either the owner reads and requested the write lock, or two readers
    /// requested an upgrade, or another group lock of the owner holds some of the requested values. The call
    /// acquired nothing, and the owner keeps what it holds. Acquire all values of a group through one lock.
    ///
    /// Redisson waits forever. Use [`ReadGuard::upgrade`](crate::ReadGuard::upgrade), or release the read hold.
    #[error(
        "the call would cause a deadlock: its owner already has a read hold, or holds some of the values through another lock; release that hold first, lock={lock:?} owner={owner}"
    )]
    #[non_exhaustive]
    WouldDeadlock {
        /// The lock's name.
        lock: String,
        /// The owner that called, as text.
        owner: String,
    },
}

impl Error {
    /// Whether the owner held the lock and lost it: [`Error::Lost`].
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost(_))
    }

    /// Whether the server did not answer in time: [`Error::Timeout`], or [`Error::Unconfirmed`] or
    /// [`Error::UnlockUnconfirmed`] with that cause.
    pub fn is_timeout(&self) -> bool {
        match self {
            Self::Timeout { .. } => true,
            Self::Unconfirmed { cause, .. } => cause.is_timeout(),
            Self::UnlockUnconfirmed(unlock) => unlock.cause().is_some_and(Self::is_timeout),
            _ => false,
        }
    }

    /// Whether the failure is transient: a retry may succeed without any change. False for
    /// [`Error::Unconfirmed`] and [`Error::UnlockUnconfirmed`]: the client itself continues these calls.
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

    /// Whether the lock may remain in Redis for at most one lease, with the caller's owner as its holder; a
    /// permit without a lease until the server answers. The owner does not hold it and must not act on it.
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

    /// Adds the lock and server to the failure of one part of a multi lock or quorum.
    pub(crate) fn of_part(self, locks: &str, server: &str) -> Self {
        self.with_place(&format!("; lock={locks} server={server}"))
    }

    /// Adds the server where the failure occurred.
    pub(crate) fn of_server(self, server: &str) -> Self {
        self.with_place(&format!("; server={server}"))
    }

    /// Adds the server where the failure occurred, if the client knows it.
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

    /// The text for the log. It contains no lock names, because these may be personal data.
    pub(crate) fn unnamed(&self) -> String {
        match self {
            Self::Lost(lost) => format!("the lock was lost: {}", lost.reason()),
            Self::Invalid { what, .. } => format!("invalid {what}"),
            Self::AlreadyHeld(_) => "this owner already holds the lock".to_owned(),
            Self::PermitNotInUse { .. } => "a permit is not in use".to_owned(),
            Self::WouldDeadlock { .. } => "the call would cause a deadlock".to_owned(),
            Self::NotHeld(_) => "this owner has no forgotten hold to unlock".to_owned(),
            Self::NotReplicated(_) => "too few replicas acknowledged the lock in time".to_owned(),
            Self::NoQuorum(_) => "no quorum".to_owned(),
            Self::Unconfirmed { call, cause } => {
                format!("no answer yet to {call}: {}", cause.unnamed())
            }
            Self::UnlockUnconfirmed(_) => "the unlock was not confirmed".to_owned(),
            Self::Timeout { waited, .. } => Self::timeout(*waited).to_string(),
            Self::Closed
            | Self::Refused { .. }
            | Self::TooManyWaiters { .. }
            | Self::Unavailable { .. } => self.to_string(),
        }
    }

    /// Sets how long the call waited, if this is a timeout.
    pub(crate) fn after(self, waited: Duration) -> Self {
        match self {
            Self::Timeout { part, .. } => Self::Timeout { waited, part },
            other => other,
        }
    }

    pub(crate) fn timeout(waited: Duration) -> Self {
        Self::Timeout { waited, part: None }
    }

    /// The error of a call that the client continues to send.
    pub(crate) fn unconfirmed_call(call: &'static str, cause: Self) -> Self {
        let cause = Box::new(cause);
        Self::Unconfirmed { call, cause }
    }

    /// The error of a multi lock or quorum whose unlock was not confirmed. `instances` has the state of each part.
    pub(crate) fn unconfirmed(lock: &str, waited: Duration, instances: Vec<Instance>) -> Self {
        UnlockUnconfirmed::of_whole(lock, waited, instances).into()
    }

    pub(crate) fn invalid(what: &'static str, why: String) -> Self {
        Self::Invalid { what, why }
    }

    pub(crate) fn would_deadlock(lock: &str, owner: &str) -> Self {
        let (lock, owner) = (lock.to_owned(), owner.to_owned());
        Self::WouldDeadlock { lock, owner }
    }
}

/// Whether an error answer reports a transient state of the server.
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
