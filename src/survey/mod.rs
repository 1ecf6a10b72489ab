//! What stands on the servers, whoever wrote it: the locks and the connections of all clients.
//!
//! All of it is read with single commands. So what one of them shows may be gone when the next one runs.

mod ask;
mod connections;
mod fields;
mod look;
mod scan;

use crate::lock::{HolderInfo, Ttl};

pub use connections::ConnectionInfo;
pub(crate) use connections::connections;
pub(crate) use look::look;
pub use scan::Locks;

/// What stands under one key, from [`Client::inspect`](crate::Client::inspect) and
/// [`Client::locks`](crate::Client::locks).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LockInfo {
    /// The key in Redis: the lock's name, after the name mapper.
    pub key: String,
    /// What it is.
    pub kind: LockKind,
    /// The server that has the key: `host:port`, the path of a socket, or the sentinels' name of the master.
    pub server: String,
    /// The key's slot, on a cluster.
    pub slot: Option<u16>,
    /// Who holds it: several owners if they read, or if they have different values of a group. At most
    /// 10,000 of them. Empty for semaphores.
    pub holders: Vec<HolderInfo>,
    /// How long Redis keeps the key; `None` if there is none.
    pub ttl: Option<Ttl>,
    /// How many connections listen to its releases: one for each client, however many of its tasks wait. Waiters
    /// of fair locks are not among them. `None` if the user may not ask (`pubsub|numsub`).
    pub listeners: Option<u64>,
    /// How many waiters stand in the queue of a fair lock.
    pub queued: u64,
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

/// What stands under a key, as its content shows.
///
/// Locks of several kinds look the same while they are held: a spin lock and a non-reentrant lock look as
/// [`LockKind::Reentrant`], and so does a fair lock without waiters.
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
    /// An election: a fair lock with tokens, whose leader said something.
    Election,
    /// A lock with readers or a writer.
    ReadWrite,
    /// Locks of values of a group.
    Group,
    /// A semaphore whose permits have no leases.
    Semaphore,
    /// A semaphore whose permits have leases.
    PermitSemaphore,
    /// Something else, of this Redis type. A latch is one, too, and so is a semaphore that nobody has used yet:
    /// they are numbers.
    Foreign(String),
}

impl LockKind {
    /// A word for it, which does not change: `free`, `reentrant`, `fenced`, `fair`, `election`, `read_write`,
    /// `group`, `semaphore`, `permit_semaphore` or `foreign`.
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
            Self::Foreign(_) => "foreign",
        }
    }
}
