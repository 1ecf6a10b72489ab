//! Wakes waiters while no mutex is held.

use std::sync::Arc;

use smallvec::SmallVec;

use super::waiter::Waiter;
use crate::error::Error;
use crate::hold::Hold;

/// Waiters to wake when this is dropped.
///
/// Waking one runs its waker, which is user code: it may poll a future of this client immediately, and
/// take any time. So this must be dropped while no mutex is held.
#[derive(Default)]
pub(super) struct WakeUps {
    waiters: SmallVec<[Arc<Waiter>; 1]>,
    /// The holds whose commands have no answer: the futures that wait for them.
    unanswered: Vec<Arc<Hold>>,
}

impl WakeUps {
    pub(super) fn add(&mut self, waiter: &Arc<Waiter>) {
        self.waiters.push(waiter.clone());
    }

    /// Wakes the future that waits for the answer to the command of this hold.
    pub(super) fn ask_for_sign(&mut self, hold: Arc<Hold>) {
        self.unanswered.push(hold);
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
        for hold in &self.unanswered {
            hold.request_poll();
        }
    }
}
