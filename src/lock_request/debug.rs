//! The `Debug` output of requests, and their clones.

use std::fmt;
use std::marker::PhantomData;

use super::{Acquire, AcquireOptions, LockRequest, TryLockRequest, UnlockRequest};

impl<G> Clone for LockRequest<G> {
    fn clone(&self) -> Self {
        Self {
            lock: self.lock.clone(),
            options: self.options,
            guard: PhantomData,
        }
    }
}

impl<G> Clone for TryLockRequest<G> {
    fn clone(&self) -> Self {
        Self {
            lock: self.lock.clone(),
            options: self.options,
            wait: self.wait,
            guard: PhantomData,
        }
    }
}

impl<G> fmt::Debug for LockRequest<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show("LockRequest", &*self.lock, &self.options, f).finish()
    }
}

impl<G> fmt::Debug for TryLockRequest<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show("TryLockRequest", &*self.lock, &self.options, f)
            .field("wait", &self.wait)
            .finish()
    }
}

impl fmt::Debug for UnlockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnlockRequest")
            .field("lock", &self.lock.name())
            .field("owner", &self.owner)
            .finish()
    }
}

fn show<'a, 'b>(
    name: &str,
    lock: &dyn Acquire,
    options: &AcquireOptions,
    f: &'a mut fmt::Formatter<'b>,
) -> fmt::DebugStruct<'a, 'b> {
    let mut debug = f.debug_struct(name);
    debug
        .field("lock", &lock.name())
        .field("lease", &options.lease)
        .field("max_hold", &options.max_hold)
        .field("hold_at_least", &options.hold_at_least)
        .field("owner", &options.owner)
        .field("reentry", &options.reentry);
    debug
}
