//! The read/write lock: its two locks, and the guards that turn into each other.

mod change;
mod guards;
mod upgrade;

use std::fmt;
use std::sync::Arc;

use crate::error::Result;
use crate::key::kind;
use crate::lock::{HolderInfo, Lock, Preference};
use crate::session::Session;

pub use guards::{ReadGuard, WriteGuard};
pub use upgrade::{UpgradeError, UpgradeRequest};

/// A lock on a server that many owners may read at the same time, or one may write. Corresponds to Redisson's
/// `RReadWriteLock`: one of lockdog and one of Redisson with the same name are the same lock.
///
/// A `ReadWriteLock` is a handle. The client sends nothing when it creates or clones a handle. All handles with
/// one name are the same lock. Each handle keeps its client alive.
///
/// - **Modes.** [`read`](Self::read) and [`write`](Self::write) are two [`Lock`]s with all calls of a lock. Each
///   of them is reentrant. An owner that writes may also read. If an owner that reads calls `write().lock()`, the
///   call returns [`Error::WouldDeadlock`](crate::Error::WouldDeadlock): it would wait for the owner's own read
///   hold. [`ReadGuard::upgrade`] and [`WriteGuard::downgrade`] change the mode.
/// - **Who goes first.** While a writer waits for readers, new readers wait, too: for two seconds at first, and
///   for at most eight if the writer waits long. So a continuous stream of readers does not starve a writer, if
///   each reader holds for at most five seconds. Redisson's readers never wait for a waiting writer. See
///   [`prefer`](Self::prefer). Inside one client, the first waiter contends; if it is a reader, all readers before
///   the next writer contend with it.
/// - **Leases.** Each hold has a lease of its own, as with any lock. The watchdog also renews a reader's fixed
///   lease, up to its end, if it is longer than a third of the watchdog's lease, because a Redisson reader of the
///   same lock would shorten it.
///
/// # Panics
///
/// As [`Lock`].
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
///
/// # async fn example(client: lockdog::Client) -> lockdog::Result<()> {
/// let prices = client.read_write_lock("prices");
///
/// let reader = prices.read().lock().await?; // together with other readers
/// reader.unlock().await?;
///
/// if let Some(writer) = prices.write().try_lock().wait(Duration::from_secs(1)).await? {
///     // The only holder. Then it continues as a reader; no other writer can acquire the lock in between.
///     let reader = writer.downgrade().await?;
///     reader.unlock().await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ReadWriteLock {
    read: Lock<ReadGuard>,
    write: Lock<WriteGuard>,
}

impl ReadWriteLock {
    pub(crate) fn new(session: Arc<Session>, name: &str) -> Self {
        Self {
            read: Lock::new(session.clone(), &kind::READ, name),
            write: Lock::new(session, &kind::WRITE, name),
        }
    }

    /// The name, as given by the caller. Corresponds to Redisson's `getName()`.
    pub fn name(&self) -> &str {
        self.read.name()
    }

    /// A handle of the same lock with this preference for its acquires. Defaults to [`Preference::Writers`].
    /// Redisson has no such setting: it is [`Preference::Readers`].
    #[must_use = "it returns a new handle and does not change this one"]
    pub fn prefer(self, preference: Preference) -> Self {
        Self {
            read: self.read.preferring(preference),
            write: self.write.preferring(preference),
        }
    }

    /// The lock for reading. Its queries are about readers: [`Lock::is_locked`] says whether any owner reads.
    /// Corresponds to Redisson's `readLock()`.
    pub fn read(&self) -> Lock<ReadGuard> {
        self.read.clone()
    }

    /// The lock for writing. Its queries are about the writer: [`Lock::is_locked`] says whether an owner writes.
    /// Corresponds to Redisson's `writeLock()`.
    pub fn write(&self) -> Lock<WriteGuard> {
        self.write.clone()
    }

    /// The writer and the readers, as Redis shows them. Empty if no owner holds the lock. The TTL of each is
    /// that of the whole lock, the longest of all holds. Redisson has no such call.
    ///
    /// # Errors
    ///
    /// As [`Lock::is_locked`].
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub async fn holders(&self) -> Result<Vec<HolderInfo>> {
        let mut holders = self.write.holders().await?;
        holders.extend(self.read.holders().await?);
        Ok(holders)
    }
}

/// For a [`MultiLock`](crate::MultiLock) with locks of several kinds.
impl From<Lock<ReadGuard>> for Lock {
    fn from(lock: Lock<ReadGuard>) -> Self {
        lock.with_guards_of()
    }
}

/// For a [`MultiLock`](crate::MultiLock) with locks of several kinds.
impl From<Lock<WriteGuard>> for Lock {
    fn from(lock: Lock<WriteGuard>) -> Self {
        lock.with_guards_of()
    }
}

impl fmt::Debug for ReadWriteLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadWriteLock")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}
