//! Ending forgotten holds, as ported code does.

use std::sync::Arc;

use super::claim::Claimed;
use super::{Inner, RedLock};
use crate::error::{NotHeld, Result};
use crate::guard::Several;
use crate::owner::Owner;
use crate::request::UnlockRequest;
use crate::session::Unlocked;

impl RedLock {
    /// Ends the newest hold of the current owner whose guard was forgotten. Corresponds to
    /// Redisson's `unlock()`; meant for ported code.
    ///
    /// # Errors
    ///
    /// [`Error::NotHeld`](crate::Error::NotHeld) if the owner has no forgotten hold.
    /// [`Error::Lost`](crate::Error::Lost) and
    /// [`Error::UnlockUnconfirmed`](crate::Error::UnlockUnconfirmed) as
    /// [`Guard::unlock`](crate::Guard::unlock).
    ///
    /// # Cancel safety
    ///
    /// Cancelled after its first poll, the hold is ended in the background.
    pub fn unlock(&self) -> UnlockRequest {
        UnlockRequest::new(self.inner.clone())
    }
}

impl Inner {
    /// Ends the newest forgotten claim of this owner.
    pub(super) async fn end_forgotten(&self, owner: Owner) -> Result<Unlocked> {
        if let Some(refused) = &self.refused {
            return Err(refused.clone());
        }
        let forgotten = self.known(owner).and_then(|whole| {
            // Noticed here that its time is over, it is nobody's any more.
            let _is_lost = whole.loss();
            let watched = whole.see(|state, _| state.forgotten.pop())?;
            Some(Arc::new(Claimed::new(whole, watched)))
        });
        match forgotten {
            Some(claim) => claim.unlock().await,
            None => Err(NotHeld::nothing(&self.name, &owner.to_string()).into()),
        }
    }
}
