//! When the watchdog has to look at which hold.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Hold;
use crate::clock::Moment;

/// Holds in the order of their next moment. A hold that ends leaves at once, so that quick cycles
/// of lock and unlock leave nothing behind.
#[derive(Default)]
pub(super) struct Schedule {
    entries: BTreeMap<(Moment, u64), Arc<Hold>>,
}

/// Where a hold stands in the schedule; zero if it does not. Changed under the table's lock only.
#[derive(Default)]
pub(super) struct Slot(AtomicU64);

impl Schedule {
    /// Puts `hold` at `at`, or takes it out; true if it is now the first.
    pub(super) fn set(&mut self, hold: &Arc<Hold>, at: Option<Moment>) -> bool {
        let new = at.map_or(0, |at| at.0);
        let old = hold.slot.0.swap(new, Ordering::Relaxed);
        if old == new {
            return false;
        }
        if old != 0 {
            self.entries.remove(&(Moment(old), hold.number()));
        }
        let Some(at) = at else { return false };
        self.entries.insert((at, hold.number()), hold.clone());
        self.next() == Some(at)
    }

    pub(super) fn next(&self) -> Option<Moment> {
        self.entries.first_key_value().map(|((at, _), _)| *at)
    }

    /// All entries up to `until`, the earliest first.
    pub(super) fn up_to(&self, until: Moment) -> impl Iterator<Item = &Arc<Hold>> {
        self.entries
            .range(..=(until, u64::MAX))
            .map(|(_, hold)| hold)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}
