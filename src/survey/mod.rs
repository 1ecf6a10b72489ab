//! The locks and the connections of all clients, as the servers show them.
//!
//! The client reads them with single commands. So a lock that one command shows may be gone when the next one
//! runs.

mod ask;
mod connections;
mod fields;
mod inspect;
mod scan;

use crate::lock::{HolderInfo, Ttl};

pub use connections::ConnectionInfo;
pub(crate) use connections::connections;
pub(crate) use inspect::inspect;
pub use scan::Locks;

/// The lock or semaphore of one key, from [`Client::inspect`](crate::Client::inspect) and
/// [`Client::locks`](crate::Client::locks).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LockInfo {
    /// The key in Redis: the lock's name, after the name mapper.
    pub key: String,
    /// Its kind.
    pub kind: LockKind,
    /// The server that has the key: `host:port`, the path of a socket, or the sentinels' name of the master.
    pub server: String,
    /// The key's slot, on a cluster.
    pub slot: Option<u16>,
    /// Its holders: several owners if they read, or if they have different values of a group. At most 10,000.
    /// Empty for semaphores. Readers and owners of values whose leases are over are not among them, as far as the
    /// user may check that.
    pub holders: Vec<HolderInfo>,
    /// How long Redis keeps the key; `None` if there is none.
    pub ttl: Option<Ttl>,
    /// How many connections listen to its releases: one for each client, even if many of its tasks wait. Waiters
    /// of fair locks are not among them. `None` if the user may not run `pubsub|numsub`.
    pub listeners: Option<u32>,
    /// The number of waiters in the queue of a fair lock.
    pub queued: u32,
    /// The last fencing token, if the server issued one.
    pub token: Option<u64>,
    /// The number of free permits of a semaphore.
    pub permits: Option<i64>,
}

impl LockInfo {
    /// Whether an owner holds it. A semaphore has no holders here.
    pub fn is_held(&self) -> bool {
        !self.holders.is_empty()
    }
}

/// The kind of a lock, as the content of its key shows it.
///
/// The keys of several kinds do not differ. A spin lock, a non-reentrant lock and a fair lock without waiters are
/// [`LockKind::Reentrant`].
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum LockKind {
    /// There is no key: the lock is free.
    Free,
    /// A lock with one owner.
    Reentrant,
    /// A lock with one owner that has issued fencing tokens.
    Fenced,
    /// A lock with one owner and a queue of waiters on the server.
    Fair,
    /// An election: a fair lock with tokens, whose leader has published a value.
    Election,
    /// A lock with readers or a writer.
    ReadWrite,
    /// Locks of values of a group.
    Group,
    /// A semaphore whose permits have no leases.
    Semaphore,
    /// A semaphore whose permits have leases.
    PermitSemaphore,
    /// The counter of the fencing tokens of a lock that is free. It stays on the server after the last unlock,
    /// because tokens never go back.
    UnusedCounter,
    /// A key that is no known lock, with its Redis type. Latches, and semaphores that were never acquired, are
    /// shown as this too: both are numbers.
    Foreign(String),
}

impl LockKind {
    /// A word for it, which does not change: `free`, `reentrant`, `fenced`, `fair`, `election`, `read_write`,
    /// `group`, `semaphore`, `permit_semaphore`, `unused_counter` or `foreign`.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Reentrant => "reentrant",
            Self::Fenced => "fenced",
            Self::Fair => "fair",
            Self::Election => "election",
            Self::ReadWrite => "read_write",
            Self::Group => "group",
            Self::Semaphore => "semaphore",
            Self::PermitSemaphore => "permit_semaphore",
            Self::UnusedCounter => "unused_counter",
            Self::Foreign(_) => "foreign",
        }
    }
}
