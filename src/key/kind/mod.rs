//! The kinds of locks.
//!
//! All code above distinguishes kinds only by these values. A new kind needs one more value and no
//! branch.

mod election;
mod fair;
mod fenced;
mod group;
mod latch;
mod non_reentrant;
mod permit;
mod plain;
mod read_write;
mod script;
mod semaphore;
mod spin;

use std::fmt;
use std::ptr;
use std::time::Duration;

pub(crate) use election::{ELECTION, NEWS, NEWS_PREFIX};
pub(crate) use fair::{FAIR, NON_REENTRANT_FAIR};
pub(crate) use fenced::{FENCED, FENCED_FROM_ONE};
pub(crate) use group::GROUP;
pub(crate) use latch::LATCH;
pub(crate) use non_reentrant::NON_REENTRANT;
pub(crate) use permit::PERMIT;
pub(crate) use plain::{BATCH, PLAIN};
pub(crate) use read_write::{READ, WRITE};
use script::LazyScript;
pub(crate) use script::Script;
pub(crate) use semaphore::SEMAPHORE;
pub(crate) use spin::SPIN;

/// The kinds of locks that may be under one key. Semaphores, latches and group locks are not among them.
pub(super) static ALL: [&Kind; 10] = [
    &PLAIN,
    &SPIN,
    &NON_REENTRANT,
    &FENCED,
    &FENCED_FROM_ONE,
    &FAIR,
    &NON_REENTRANT_FAIR,
    &ELECTION,
    &READ,
    &WRITE,
];

/// The properties of one kind of lock. There is one value for each kind. Each
/// [`LockKey`](super::LockKey) carries it, so every hold, waiter and job knows its kind.
pub(crate) struct Kind {
    /// The name in logs and errors.
    pub(crate) name: &'static str,
    pub(crate) scripts: Scripts,
    /// The prefix of the channel on which a release is published. `None`: nothing is published, and
    /// waiters poll.
    pub(crate) channel: Option<&'static str>,
    /// Where the queue of its waiters is.
    pub(crate) queue: QueueSide,
    /// It is a count-down latch, which has no holder. In the name of its channel, the latch's name is in braces
    /// even if it contains braces, as in Redisson. The text of its messages matters.
    pub(crate) is_latch: bool,
    /// Whether an owner may acquire a lock again while it holds it.
    pub(crate) reentrant: bool,
    /// The counter of its fencing tokens. `None`: it issues none.
    pub(crate) counter: Option<Counter>,
    /// Its holds are permits: several owners may have holds at the same time, and there is a second key,
    /// a sorted set that names the permits in use. `None`: one owner has the lock, and its hold is a field
    /// of the lock's hash.
    pub(crate) permits: Option<PermitKind>,
    /// The mode of its holds. The two kinds of a read/write lock are two kinds of holds under one key, and
    /// their waiters are in one queue. `None`: its holds have no mode.
    pub(crate) mode: Option<Mode>,
    /// The commands that it needs in addition to those of a plain lock. `Client::diagnose` tries them. Each is a
    /// complete command that changes nothing, whatever the server contains: one that would write has an argument
    /// that the server refuses after it has checked the permission. Words are separated by single spaces. `KEY`
    /// in a word stands for an unused key. It is a list of lists, so that kinds can share some of them.
    pub(crate) commands: &'static [&'static [&'static str]],
    /// Its holder publishes a value. The value is stored under a key, and published on a channel of the same
    /// name.
    pub(crate) publishes_value: bool,
}

/// Where the queue of a lock's waiters is. It decides which of one client's waiters ask the server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum QueueSide {
    /// In the client. Its contender asks, which is usually the first waiter in the queue.
    Client,
    /// On the server. Each waiter asks once, to enter the queue. Then the contender asks for all of them: the
    /// first of this client's waiters in that queue.
    Server,
}

/// The timeouts of a queue on the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueTimeouts {
    /// After this time a Redisson client drops the first waiter if it does not acquire the lock.
    pub(crate) fair_wait: Duration,
    /// How long a waiter keeps its place without a query.
    pub(crate) fair_absence: Duration,
}

impl Default for QueueTimeouts {
    fn default() -> Self {
        Self {
            fair_wait: Duration::from_secs(300),
            fair_absence: Duration::from_secs(10),
        }
    }
}

/// What a hold of a semaphore is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PermitKind {
    /// One permit with a lease. Its id and the end of its lease are in Redisson's set.
    Leased,
    /// Any number of permits without a lease. Its field and that number are in lockdog's ledger.
    Counted,
}

/// The mode of a hold of a read/write lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Mode {
    /// Several owners may read at the same time.
    Read,
    /// One owner writes, and no other owner reads.
    Write,
}

impl Mode {
    /// The name in the lock's hash, which is Redisson's.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }

    /// The kind of the same lock in the other mode.
    pub(super) fn other_kind(self) -> &'static Kind {
        match self {
            Self::Read => &WRITE,
            Self::Write => &READ,
        }
    }
}

/// Redisson's suffix for the field of a writer.
pub(crate) const WRITER: &str = ":write";

/// What counts the fencing tokens of a kind. The scripts that grant such a lock have the counter's key
/// and `from` as their last key and argument, and return the token.
#[derive(Clone, Copy)]
pub(crate) struct Counter {
    /// The prefix of the counter's key.
    pub(crate) prefix: &'static str,
    /// Where the tokens begin, as the scripts take it.
    pub(crate) from: &'static str,
}

impl Kind {
    /// Whether its holds are counts of permits without a lease.
    pub(crate) fn is_counted(&self) -> bool {
        self.permits == Some(PermitKind::Counted)
    }

    /// Whether the server ends its holds by itself.
    pub(crate) fn has_lease(&self) -> bool {
        !self.is_counted()
    }

    /// Whether each unlock frees something that others can acquire. Otherwise only the last unlock of a hold
    /// does.
    pub(crate) fn is_freed_in_parts(&self) -> bool {
        self.is_counted()
    }

    /// Whether its holds share a TTL that other holders set too, so that it may become shorter than the lease of
    /// a hold.
    pub(crate) fn has_shared_ttl(&self) -> bool {
        self.mode == Some(Mode::Read)
    }

    /// Whether the server may keep a hold longer than its lease, because another hold of its owner keeps the
    /// key.
    pub(crate) fn may_outlive_its_lease(&self) -> bool {
        self.mode == Some(Mode::Write)
    }
}

const CLOCK: &str = "clock";

/// The scripts of a lock's transitions. The plain lock's files document their arguments and
/// answers.
#[derive(Clone, Copy)]
pub(crate) struct Scripts {
    pub(crate) acquire: &'static LazyScript,
    /// Acquires all of several locks, or none. Kinds with the same script can share one command.
    /// `None`: a lock of this kind among several is acquired by a command of its own.
    pub(crate) acquire_all: Option<&'static LazyScript>,
    /// Acquires for a waiting client, and lists the client if it has to wait. `None`: a release wakes all waiting
    /// clients.
    pub(crate) contend: Option<&'static LazyScript>,
    /// Acquires as a member of a quorum with a quarantine or fencing.
    pub(crate) acquire_member: &'static LazyScript,
    pub(crate) unlock: &'static LazyScript,
    pub(crate) settle: &'static LazyScript,
    pub(crate) touch: &'static LazyScript,
    /// Renews many holds. Kinds with the same script can share one command.
    pub(crate) renew: &'static LazyScript,
    /// `None`: a lock of this kind is released instead of handed from owner to owner.
    pub(crate) transfer: Option<&'static LazyScript>,
    pub(crate) force_unlock: &'static LazyScript,
}

/// Differs from the plain lock in everything that tests check.
#[cfg(test)]
pub(crate) static OTHER: Kind = Kind {
    name: "other",
    scripts: Scripts {
        // Never sent.
        renew: PLAIN.scripts.touch,
        ..PLAIN.scripts
    },
    ..PLAIN
};

/// There is one value for each kind, so the address identifies the kind.
impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self, other)
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
