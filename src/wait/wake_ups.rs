//! Wakes waiters while no mutex is held.

use std::sync::Arc;

use smallvec::SmallVec;

use super::waiter::Waiter;
use crate::error::Error;

/// Waiters to wake when this is dropped.
///
/// Waking one runs its waker, which is user code: it may poll a future of this client immediately, and
/// take any time. So this must be dropped while no mutex is held.
#[derive(Default)]
pub(super) struct WakeUps {
    waiters: SmallVec<[Arc<Waiter>; 1]>,
}

impl WakeUps {
    pub(super) fn add(&mut self, waiter: &Arc<Waiter>) {
        self.waiters.push(waiter.clone());
    }

    /// Ends its wait with this error.
    pub(super) fn fail(&mut self, waiter: &Arc<Waiter>, error: &Error) {
        waiter.set_failure(error);
        self.add(waiter);
    }
}

impl Drop for WakeUps {
    fn drop(&mut self) {
        for waiter in &self.waiters {
            waiter.wake();
        }
    }
}
