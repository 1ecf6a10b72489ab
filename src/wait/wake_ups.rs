//! Waking waiters when no lock is held.

use std::sync::Arc;

use smallvec::SmallVec;

use super::waiter::Waiter;
use crate::error::Error;

/// Waiters that are to look, told when this is dropped.
///
/// To tell one runs its waker, which is the user's code: it may poll a future of this client on the
/// spot, and take as long as it likes. So this is dropped where no lock is held.
#[derive(Default)]
pub(super) struct WakeUps {
    tickets: SmallVec<[Arc<Waiter>; 1]>,
}

impl WakeUps {
    pub(super) fn add(&mut self, waiter: &Arc<Waiter>) {
        self.tickets.push(waiter.clone());
    }

    /// Ends its wait.
    pub(super) fn fail(&mut self, waiter: &Arc<Waiter>, error: &Error) {
        waiter.set_failure(error);
        self.add(waiter);
    }
}

impl Drop for WakeUps {
    fn drop(&mut self) {
        for waiter in &self.tickets {
            waiter.wake();
        }
    }
}
