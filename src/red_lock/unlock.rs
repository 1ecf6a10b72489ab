//! Ending forgotten holds, as ported code does.

use std::fmt;
use std::future::IntoFuture;
use std::sync::Arc;

use super::claim::Claimed;
use super::{Inner, RedLock};
use crate::error::{NotHeld, Result};
use crate::guard::Several;
use crate::owner::Owner;
use crate::request::Boxed;
use crate::session::Unlocked;

/// A wish to end a forgotten hold, from [`RedLock::unlock`]. Await it.
#[derive(Clone)]
#[must_use = "a request does nothing unless it is awaited"]
pub struct UnlockAllRequest {
    lock: Arc<Inner>,
    owner: Option<Owner>,
}

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
    pub fn unlock(&self) -> UnlockAllRequest {
        UnlockAllRequest {
            lock: self.inner.clone(),
            owner: None,
        }
    }
}

impl UnlockAllRequest {
    /// Ends a hold of this owner instead of the current one. Corresponds to Redisson's
    /// `unlockAsync(threadId)`.
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.owner = Some(*owner);
        self
    }
}

impl IntoFuture for UnlockAllRequest {
    type Output = Result<Unlocked>;
    type IntoFuture = Boxed<Unlocked>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let owner = self.owner.unwrap_or_else(Owner::current);
            if let Some(refused) = &self.lock.refused {
                return Err(refused.clone());
            }
            let whole = self.lock.known(owner);
            let forgotten = whole.and_then(|whole| {
                // Noticed here that its time is over, it is nobody's any more.
                let _is_lost = whole.loss();
                let watched = whole.see(|state, _| state.forgotten.pop())?;
                Some(Arc::new(Claimed::new(whole, watched)))
            });
            match forgotten {
                Some(claim) => claim.unlock().await,
                None => Err(NotHeld::nothing(self.lock.name(), &owner.to_string()).into()),
            }
        })
    }
}

impl fmt::Debug for UnlockAllRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnlockAllRequest")
            .field("lock", &self.lock.name())
            .field("owner", &self.owner)
            .finish()
    }
}
