//! Ending forgotten holds, and queries about holds, as ported code uses them.

use std::sync::Arc;

use super::claim::QuorumClaim;
use super::{RedLock, RedLockConfig};
use crate::error::{NotHeld, Result};
use crate::guard::CompositeHold;
use crate::lock_request::UnlockRequest;
use crate::owner::Owner;
use crate::session::Unlocked;

impl RedLock {
    /// Ends the newest hold of the current owner whose guard was forgotten. Use it for ported code.
    /// Corresponds to Redisson's `unlock()`.
    ///
    /// # Errors
    ///
    /// [`Error::NotHeld`](crate::Error::NotHeld) if the owner has no forgotten hold.
    /// [`Error::Lost`](crate::Error::Lost) and
    /// [`Error::UnlockUnconfirmed`](crate::Error::UnlockUnconfirmed) as
    /// [`Guard::unlock`](crate::Guard::unlock). [`Error::Invalid`](crate::Error::Invalid) for invalid locks, and
    /// outside a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled after its first poll, the clients end the hold in the background.
    pub fn unlock(&self) -> UnlockRequest {
        UnlockRequest::new(self.inner.clone())
    }

    /// Whether the current owner holds the lock and may use it, as far as this process knows. The clients ask
    /// no instance. Corresponds to Redisson's `isHeldByCurrentThread()`.
    pub fn is_held(&self) -> bool {
        self.is_held_by(&Owner::current())
    }

    /// Whether this owner of this process holds the lock and may use it. Corresponds to Redisson's
    /// `isHeldByThread(threadId)`.
    pub fn is_held_by(&self, owner: &Owner) -> bool {
        self.claims_of(*owner) > 0
    }

    /// How many acquires of the current owner are not unlocked yet; 0 if it does not hold the lock.
    /// Redisson's `getHoldCount()` is not supported for its RedLock.
    pub fn hold_count(&self) -> u32 {
        self.claims_of(Owner::current())
    }

    fn claims_of(&self, owner: Owner) -> u32 {
        if self.inner.refused.is_some() {
            return 0;
        }
        let hold = self.inner.registered(owner);
        let valid = hold.filter(|hold| hold.is_valid());
        valid.map_or(0, |hold| hold.see(|state, _| state.count))
    }
}

impl RedLockConfig {
    /// Ends the newest forgotten claim of this owner.
    pub(super) async fn end_forgotten(&self, owner: Owner) -> Result<Unlocked> {
        if let Some(refused) = &self.refused {
            return Err(refused.clone());
        }
        let owner_text = owner.to_string();
        let Some(hold) = self.registered(owner) else {
            return Err(NotHeld::nothing(&self.name, &owner_text).into());
        };
        // The hold is lost, and no guard is left that reports the loss: the hold is removed.
        let lost = hold.loss();
        if lost.is_some() && hold.see(|state, _| state.is_only_forgotten()) {
            hold.unregister();
            return Err(NotHeld::nothing(&self.name, &owner_text).into());
        }
        if let Some(watched) = hold.see(|state, _| state.forgotten.pop()) {
            return Arc::new(QuorumClaim::new(hold, watched)).unlock().await;
        }
        let (held, renewed) = hold.see(|state, _| hold.ages(state));
        Err(match lost {
            Some(_) => NotHeld::nothing(&self.name, &owner_text),
            None => NotHeld::guarded(&self.name, &owner_text, held, renewed),
        }
        .into())
    }
}
