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
        let owner_text = owner.to_string();
        let Some(whole) = self.known(owner) else {
            return Err(NotHeld::nothing(&self.name, &owner_text).into());
        };
        // Noticed here that its time is over, it is nobody's any more.
        let lost = whole.loss();
        if lost.is_some() && whole.see(|state, _| state.is_only_forgotten()) {
            whole.be_unknown();
            return Err(NotHeld::nothing(&self.name, &owner_text).into());
        }
        if let Some(watched) = whole.see(|state, _| state.forgotten.pop()) {
            return Arc::new(Claimed::new(whole, watched)).unlock().await;
        }
        let (held, renewed) = whole.see(|state, _| whole.ages(state));
        Err(match lost {
            Some(_) => NotHeld::nothing(&self.name, &owner_text),
            None => NotHeld::guarded(&self.name, &owner_text, held, renewed),
        }
        .into())
    }
}
