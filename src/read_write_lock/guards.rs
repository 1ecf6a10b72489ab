//! The guards of the two modes.

use std::fmt;
use std::ops::Deref;

use super::change;
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::lock_request::{FromGuard, Sealed, WaitLimit};
use crate::session::Unlocked;

/// A [`ReadWriteLock`](crate::ReadWriteLock) that is held for reading. It is a [`Guard`] that can be
/// [upgraded](Self::upgrade).
#[must_use = "keep it in a variable, `let guard = ..`: `let _ = ..` drops the guard immediately, and that releases the lock"]
pub struct ReadGuard(pub(super) Guard);

/// A [`ReadWriteLock`](crate::ReadWriteLock) that is held for writing. It is a [`Guard`] that can be
/// [downgraded](Self::downgrade).
#[must_use = "keep it in a variable, `let guard = ..`: `let _ = ..` drops the guard immediately, and that releases the lock"]
pub struct WriteGuard {
    // Dropped in this order: the write hold ends first.
    pub(super) guard: Guard,
    /// After an upgrade, the read hold of the same owner. It is released with the write hold.
    pub(super) read: Option<ReadGuard>,
}

impl ReadGuard {
    /// Releases the lock: see [`Guard::unlock`].
    ///
    /// # Errors
    ///
    /// As [`Guard::unlock`].
    ///
    /// # Cancel safety
    ///
    /// As [`Guard::unlock`].
    pub async fn unlock(self) -> Result<Unlocked> {
        self.0.unlock().await
    }

    /// Leaves the hold for a later `lock.unlock()`: see [`Guard::forget`].
    pub fn forget(self) {
        self.0.forget();
    }

    /// Ends the guard and leaves the lock in Redis until its lease ends: see [`Guard::leave_to_lease`].
    pub fn leave_to_lease(self) {
        self.0.leave_to_lease();
    }
}

impl WriteGuard {
    /// Turns the write hold into a read hold: the owner reads before it stops writing, so no other writer gets
    /// in between. Corresponds to `readLock().lock()` and then `writeLock().unlock()`.
    ///
    /// After an upgrade, it returns the earlier read hold if that is still valid. Otherwise the watchdog renews the
    /// read hold if it renewed the write hold. After a fixed lease, the read hold has the rest of that lease. A
    /// `max_hold` of the write hold ends the read hold at the same moment. A call takes at most two command
    /// timeouts, and three more if an earlier command of the write hold has no answer yet.
    ///
    /// # Errors
    ///
    /// After an error the owner holds nothing. The client releases in the background what the server may still have.
    ///
    /// - [`Error::Lost`] if the write hold was lost.
    /// - [`Error::UnlockUnconfirmed`] if Redis did not confirm the end of the write hold.
    /// - else as [`Lock::try_lock`](crate::Lock::try_lock).
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled, everything is released in the background.
    pub async fn downgrade(self) -> Result<ReadGuard> {
        let Self { guard, read } = self;
        let read = match read {
            Some(read) if read.is_valid() => read,
            // After an upgrade only the write hold is extended, so the lease of the read hold may be over.
            none_or_lost => {
                drop(none_or_lost);
                match change::acquire(&guard, false, WaitLimit::Not).await? {
                    Some(read) => ReadGuard(read),
                    None => return Err(lost(&guard)),
                }
            }
        };
        guard.unlock().await?;
        Ok(read)
    }

    /// Releases the lock: see [`Guard::unlock`]. After an upgrade, the read hold too.
    ///
    /// # Errors
    ///
    /// As [`Guard::unlock`], about the write hold; if that ended as it should, about the read hold.
    ///
    /// # Cancel safety
    ///
    /// As [`Guard::unlock`].
    pub async fn unlock(self) -> Result<Unlocked> {
        let Self { guard, read } = self;
        let Some(read) = read else {
            return guard.unlock().await;
        };
        // Both unlocks begin at the first poll. If one waited for the other, the watchdog would renew its hold
        // for as long as the caller does not poll the future. The error of the write hold comes first, because
        // it matters more: what was written may be lost.
        let (unlocked, read) = tokio::join!(biased; guard.unlock(), read.unlock());
        let unlocked = unlocked?;
        read.map(|_| unlocked)
    }

    /// Leaves the hold for a later `lock.unlock()`: see [`Guard::forget`]. After an upgrade, the read hold too.
    pub fn forget(self) {
        let Self { guard, read } = self;
        guard.forget();
        if let Some(read) = read {
            read.forget();
        }
    }

    /// Ends the guard and leaves the lock in Redis until its lease ends: see [`Guard::leave_to_lease`]. After an
    /// upgrade, the read hold too.
    pub fn leave_to_lease(self) {
        let Self { guard, read } = self;
        guard.leave_to_lease();
        if let Some(read) = read {
            read.leave_to_lease();
        }
    }
}

/// Why the owner could not read: it writes, so the only possible reason is the loss of its write hold.
fn lost(guard: &Guard) -> Error {
    let loss = guard.claim().and_then(change::lose);
    loss.map_or(Error::Closed, Error::Lost)
}

impl Deref for ReadGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}

impl Deref for WriteGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

impl From<Guard> for ReadGuard {
    fn from(guard: Guard) -> Self {
        Self(guard)
    }
}

impl From<Guard> for WriteGuard {
    fn from(guard: Guard) -> Self {
        Self { guard, read: None }
    }
}

impl From<ReadGuard> for Guard {
    fn from(guard: ReadGuard) -> Self {
        guard.0
    }
}

/// The plain guard of the write hold. After an upgrade, the read hold ends.
impl From<WriteGuard> for Guard {
    fn from(guard: WriteGuard) -> Self {
        guard.guard
    }
}

impl Sealed for ReadGuard {}
impl Sealed for WriteGuard {}
impl FromGuard for ReadGuard {}
impl FromGuard for WriteGuard {}

impl fmt::Debug for ReadGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadGuard").field(&self.0).finish()
    }
}

impl fmt::Debug for WriteGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteGuard")
            .field("guard", &self.guard)
            .field("read", &self.read)
            .finish()
    }
}
