//! The events of the ends of holds, for observers, and the numbers for [`Client::stats`].
//!
//! [`Client::stats`]: crate::Client::stats

use std::sync::atomic::{AtomicU64, Ordering};

use super::Core;
use crate::error::Lost;
use crate::hold::Hold;
use crate::observe::{ClientEvent, End, LockRef, Observers};

/// Counts since the client was built.
#[derive(Default)]
pub(crate) struct Totals {
    lost: AtomicU64,
    hand_overs: AtomicU64,
    renewals_failed: AtomicU64,
}

impl Totals {
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    pub(crate) fn hand_overs(&self) -> u64 {
        self.hand_overs.load(Ordering::Relaxed)
    }

    pub(crate) fn renewals_failed(&self) -> u64 {
        self.renewals_failed.load(Ordering::Relaxed)
    }

    pub(crate) fn count_loss(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_hand_over(&self) {
        self.hand_overs.fetch_add(1, Ordering::Relaxed);
    }

    /// Renewals of this many holds failed.
    pub(crate) fn count_failed_renewals(&self, holds: u32) {
        self.renewals_failed
            .fetch_add(u64::from(holds), Ordering::Relaxed);
    }
}

impl Core {
    pub(crate) fn observers(&self) -> &Observers {
        self.server.observers()
    }

    /// Notifies the observers that a hold ended by its owner's will, unless they were notified of its end
    /// before.
    pub(crate) fn notify_released(&self, hold: &Hold, confirmed: bool) {
        if self.observers().is_none() {
            return;
        }
        let (how, acquired) = {
            let mut state = hold.state();
            if !std::mem::take(&mut state.owes_end) {
                return;
            }
            let is_left = state.left > 0;
            let how = if is_left {
                End::Expired
            } else {
                state.ended_as
            };
            (how, state.acquired)
        };
        self.observers().notify(|| ClientEvent::Released {
            lock: LockRef::of(hold.key(), hold.owner()),
            held: self.clock.now().since(acquired),
            how,
            confirmed,
        });
    }

    /// Notifies the observers that a hold was lost, or that it expired without a guard.
    pub(super) fn notify_lost(&self, hold: &Hold, lost: &Lost, is_expiry: bool) {
        let lock = LockRef::of(hold.key(), hold.owner());
        let held = lost.held_for();
        if is_expiry {
            return self.observers().notify(|| ClientEvent::Released {
                lock,
                held,
                how: End::Expired,
                confirmed: true,
            });
        }
        self.totals.count_loss();
        self.observers().notify(|| ClientEvent::Lost {
            lock,
            reason: lost.reason(),
            held,
            since_renewal: lost.since_renewal(),
        });
    }
}
