//! A quorum where a lock of any kind is taken.

use super::RedLock;
use crate::lock::{AnyLock, Sealed};
use crate::owner::Owner;
use crate::request::{Boxed, LockRequest, TryLockRequest, UnlockRequest};

impl Sealed for RedLock {}

impl AnyLock for RedLock {
    fn name(&self) -> &str {
        self.name()
    }

    fn exclusive(&self) -> Self {
        self.exclusive()
    }

    fn lock(&self) -> LockRequest {
        self.lock()
    }

    fn try_lock(&self) -> TryLockRequest {
        self.try_lock()
    }

    fn unlock(&self) -> UnlockRequest {
        self.unlock()
    }

    fn is_held(&self) -> Boxed<bool> {
        let lock = self.clone();
        Box::pin(async move { Ok(lock.is_held()) })
    }

    fn is_held_by(&self, owner: &Owner) -> Boxed<bool> {
        let (lock, owner) = (self.clone(), *owner);
        Box::pin(async move { Ok(lock.is_held_by(&owner)) })
    }

    fn hold_count(&self) -> Boxed<u32> {
        let lock = self.clone();
        Box::pin(async move { Ok(lock.hold_count()) })
    }
}
