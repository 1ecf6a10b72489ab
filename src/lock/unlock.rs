//! Ending holds without a guard: forgotten ones, and by force.

use std::fmt;
use std::future::IntoFuture;

use super::{HolderInfo, Inner, Lock};
use crate::background::ensure_runtime;
use crate::error::{Error, NotHeld, Result};
use crate::hold::OwnerState;
use crate::owner::Owner;
use crate::request::{Boxed, UnlockRequest};
use crate::script;
use crate::session::Unlocked;

/// A wish to free a lock by force, from [`Lock::force_unlock`]. Await it.
#[derive(Clone)]
#[must_use = "a request does nothing unless it is awaited"]
pub struct ForceUnlockRequest {
    lock: Lock,
    holder: Option<String>,
}

impl Lock {
    /// Ends the newest hold of the current owner whose guard was forgotten. Corresponds to
    /// Redisson's `unlock()`; meant for ported code.
    ///
    /// # Errors
    ///
    /// [`Error::NotHeld`] if the owner has no forgotten hold: never had, already ended, its lease
    /// ran out, or a living guard stands for it, which is then the one to unlock.
    /// [`Error::Lost`] and [`Error::UnlockUnconfirmed`] as [`Guard::unlock`](crate::Guard::unlock).
    ///
    /// # Cancel safety
    ///
    /// Cancelled after its first poll, the hold is ended in the background.
    pub fn unlock(&self) -> UnlockRequest {
        UnlockRequest::new(self.inner.clone())
    }

    /// Frees the lock, whoever holds it; false if nobody does. Corresponds to Redisson's
    /// `forceUnlock()`.
    ///
    /// The holder is read first, and only that one loses the lock: a force unlock that arrives late
    /// or twice does not free the next holder's. A holder of this client is told at once, any other
    /// at its next renewal, or with a fixed lease at its end.
    ///
    /// # Errors
    ///
    /// As [`Lock::is_locked`].
    ///
    /// # Cancel safety
    ///
    /// Cancelled, the lock may or may not be freed.
    pub fn force_unlock(&self) -> ForceUnlockRequest {
        ForceUnlockRequest {
            lock: self.clone(),
            holder: None,
        }
    }

    async fn free_from(&self, holder: Option<String>) -> Result<bool> {
        let key = self.key()?;
        let core = self.session().core();
        ensure_runtime()?;
        core.ensure_open()?;
        let field = match holder {
            Some(field) => field,
            None => match self.holder().await? {
                Some(holder) => holder.field().to_owned(),
                None => return Ok(false),
            },
        };
        let time = core.server.allot(core.clock.now());
        let freed = script::force_unlock(&core.server, key, &field, time).await?;
        if freed {
            tracing::debug!(target: "lockdog::lock", lock = key.name(), field, "freed by force");
            let number = core.number_of(&field);
            // The holder may have asked for a lock of another kind.
            for key in key.of_every_kind() {
                if let Some(hold) = number.and_then(|number| core.holds.numbered(&key, number)) {
                    core.forced(&hold);
                }
                core.waiters.wake(&key);
            }
        }
        Ok(freed)
    }
}

impl Inner {
    /// Ends the newest forgotten hold of this owner.
    pub(super) async fn end_forgotten(&self, owner: Owner) -> Result<Unlocked> {
        let key = self.key()?;
        let core = self.session.core();
        core.ensure_open()?;
        let hold = match core.holds.standing(key, owner) {
            OwnerState::Holding(hold) => hold,
            OwnerState::Lost(lost) => return Err(lost.into()),
            OwnerState::Forgotten(hold) => {
                core.report_lost(&hold);
                return Err(NotHeld::nothing(&self.name, &owner.to_string()).into());
            }
            OwnerState::Acquiring | OwnerState::Nothing => {
                return Err(NotHeld::nothing(&self.name, &owner.to_string()).into());
            }
        };
        if let Some(claim) = core.take_forgotten(&self.session, &hold) {
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
    /// Frees the lock only from this holder, seen before with [`Lock::holder`].
    pub fn expecting(mut self, holder: &HolderInfo) -> Self {
        self.holder = Some(holder.field().to_owned());
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

impl fmt::Debug for ForceUnlockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForceUnlockRequest")
            .field("lock", &self.lock.name())
            .field("holder", &self.holder)
            .finish()
    }
}
