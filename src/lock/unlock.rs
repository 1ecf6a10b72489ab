//! The ends of a hold without a guard: the unlock of a forgotten hold, and the forced unlock.

use std::fmt;
use std::future::IntoFuture;

use super::{HolderInfo, Inner, Lock};
use crate::background::ensure_runtime;
use crate::error::{Error, NotHeld, Result};
use crate::hold::OwnerState;
use crate::key::{LockKey, Mode, WRITER};
use crate::lock_request::{Boxed, FromGuard, UnlockRequest, not_a_future};
use crate::owner::Owner;
use crate::script;
use crate::session::Unlocked;

/// A pending forced unlock, from [`Lock::force_unlock`]. It does nothing until it is awaited. Corresponds
/// to Redisson's `forceUnlockAsync()`.
#[derive(Clone)]
#[must_use = "a request does nothing unless it is awaited"]
pub struct ForceUnlockRequest {
    lock: Lock,
    holder: Option<String>,
}

impl<G: FromGuard> Lock<G> {
    /// Ends the newest hold of the current owner whose guard was forgotten
    /// ([`Guard::forget`](crate::Guard::forget)). Use it for ported code. Corresponds to Redisson's
    /// `unlock()`.
    ///
    /// # Errors
    ///
    /// - [`Error::NotHeld`] if the owner has no forgotten hold: it never had one, the hold has already
    ///   ended, its lease ended, or the owner has a living guard of it. Unlock that guard then.
    /// - [`Error::Lost`] and [`Error::UnlockUnconfirmed`] as [`Guard::unlock`](crate::Guard::unlock).
    /// - [`Error::Invalid`] for an invalid name, and outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled after its first poll, the client ends the hold in the background. Before that it
    /// has no effect.
    pub fn unlock(&self) -> UnlockRequest {
        UnlockRequest::new(self.inner.clone())
    }

    /// Frees the lock, independent of its holder. Returns false if no owner holds it. Corresponds to
    /// Redisson's `forceUnlock()`.
    ///
    /// For one mode of a [`ReadWriteLock`](crate::ReadWriteLock), it frees the holders in that mode: the writer, or
    /// all readers if no owner writes.
    ///
    /// The client first reads the holder, and then deletes only that holder. So a command that arrives late
    /// or twice does not free the lock of the next holder. A guard of this client reports the loss at
    /// once. A guard of another client reports it at the next renewal, or with a fixed lease at the end
    /// of the lease.
    ///
    /// # Errors
    ///
    /// As [`Lock::is_locked`].
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled, the lock may or may not be freed.
    pub fn force_unlock(&self) -> ForceUnlockRequest {
        ForceUnlockRequest {
            lock: self.clone().with_guards_of(),
            holder: None,
        }
    }

    async fn free_from(&self, holder: Option<String>) -> Result<bool> {
        let key = self.key()?;
        let core = self.session().core();
        ensure_runtime()?;
        core.ensure_open()?;
        let fields = match holder {
            // The script would take its end for the end of a hold in this mode.
            Some(field) if is_in_other_mode(key, &field) => return Ok(false),
            Some(field) => vec![field],
            None => self.freed_by_force().await?,
        };
        let mut is_freed = false;
        for field in fields {
            is_freed |= self.free_from_field(key, &field).await?;
        }
        Ok(is_freed)
    }

    async fn free_from_field(&self, key: &LockKey, field: &str) -> Result<bool> {
        let core = self.session().core();
        let time = core.server.time_box(core.clock.now());
        let freed = script::force_unlock(&core.server, key, field, time).await?;
        if freed {
            tracing::debug!(target: "lockdog::lock", lock = key.name(), field, "freed by force");
            let number = core.number_of(field);
            // The holder may have acquired it as a lock of another kind.
            for key in key.of_every_kind() {
                if let Some(hold) = number.and_then(|number| core.holds.numbered(&key, number)) {
                    core.forced(&hold);
                }
                core.waiters.wake(&key);
            }
            if !key.values().is_empty()
                && let Some(hold) = number.and_then(|it| core.holds.numbered_in_group(key, it))
            {
                // That hold may be for other values too, so its key is another one.
                core.forced(&hold);
            }
        }
        Ok(freed)
    }
}

/// Whether the field is that of a hold in the other mode of a read/write lock.
fn is_in_other_mode(key: &LockKey, field: &str) -> bool {
    key.mode()
        .is_some_and(|mode| field.ends_with(WRITER) != (mode == Mode::Write))
}

impl Inner {
    /// Ends the newest forgotten hold of this owner.
    pub(super) async fn end_forgotten(&self, owner: Owner) -> Result<Unlocked> {
        let key = self.key()?;
        let core = self.session.core();
        core.ensure_open()?;
        let hold = match core.owner_state(key, owner) {
            OwnerState::Holding(hold) => hold,
            OwnerState::Lost(_, lost) => return Err(lost.into()),
            OwnerState::Acquiring | OwnerState::Nothing => {
                return Err(NotHeld::nothing(&self.name, &owner.to_string()).into());
            }
        };
        if let Some(claim) = core.take_forgotten(&self.session, &hold, 1) {
            return claim.unlock().await;
        }
        let now = core.clock.now();
        let (held, renewed) = {
            let state = hold.state();
            (now.since(state.acquired), now.since(state.renewed))
        };
        Err(NotHeld::guarded(&self.name, &owner.to_string(), held, renewed).into())
    }
}

impl ForceUnlockRequest {
    /// Frees the lock only if this holder still has it. [`Lock::holder`] returns the holder. A holder in the other
    /// mode of a [`ReadWriteLock`](crate::ReadWriteLock) does not have this lock.
    pub fn expecting(self, holder: &HolderInfo) -> Self {
        self.expecting_field(holder.field())
    }

    /// Frees the lock only if the holder with this field still has it. [`HolderInfo::field`] has it, also for
    /// a tool that got it from elsewhere.
    pub fn expecting_field(mut self, field: impl Into<String>) -> Self {
        self.holder = Some(field.into());
        self
    }
}

impl IntoFuture for ForceUnlockRequest {
    type Output = Result<bool, Error>;
    type IntoFuture = Boxed<bool>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.lock.free_from(self.holder).await })
    }
}

not_a_future!(ForceUnlockRequest, Result<bool>);

impl fmt::Debug for ForceUnlockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForceUnlockRequest")
            .field("lock", &self.lock.name())
            .field("holder", &self.holder)
            .finish()
    }
}
