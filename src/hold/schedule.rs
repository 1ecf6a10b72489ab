//! When the watchdog has to look at which hold.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::Hold;
use crate::clock::Moment;

/// Holds in the order of their next moment. A hold that ends leaves at once, so that quick cycles
/// of lock and unlock leave nothing behind.
#[derive(Default)]
pub(super) struct Schedule {
    /// Holds that are renewed.
    renewals: Line,
    /// Holds that only expire.
    expiries: Line,
}

/// Holds by their moments.
pub(super) type Line = BTreeMap<(Moment, u64), Arc<Hold>>;

/// What the watchdog has to do about a hold, and when.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Next {
    Expire(Moment),
    Renew(Moment),
}

/// Where a hold stands in the schedule; at zero if it does not. Changed under the table's lock only.
#[derive(Default)]
pub(super) struct Slot {
    at: AtomicU64,
    is_renewal: AtomicBool,
}

impl Schedule {
    /// Puts `hold` where it belongs, or takes it out.
    pub(super) fn set(&mut self, hold: &Arc<Hold>, next: Option<Next>) {
        let old = Moment(hold.slot.at.load(Ordering::Relaxed));
        let was_renewal = hold.slot.is_renewal.load(Ordering::Relaxed);
        let (at, is_renewal) = match next {
            Some(Next::Expire(at)) => (at, false),
            Some(Next::Renew(at)) => (at, true),
            None => (Moment(0), false),
        };
        if (at, is_renewal) == (old, was_renewal) {
            return;
        }
        hold.slot.at.store(at.0, Ordering::Relaxed);
        hold.slot.is_renewal.store(is_renewal, Ordering::Relaxed);
        if old.0 != 0 {
            self.line(was_renewal).remove(&(old, hold.number()));
        }
        if next.is_some() {
            self.line(is_renewal)
                .insert((at, hold.number()), hold.clone());
        }
    }

    /// All renewals up to `until`, the earliest first.
    pub(super) fn renewals(&self, until: Moment) -> impl Iterator<Item = &Arc<Hold>> {
        up_to(&self.renewals, until)
    }

    /// All expiries up to `until`, the earliest first.
    pub(super) fn expiries(&self, until: Moment) -> impl Iterator<Item = &Arc<Hold>> {
        up_to(&self.expiries, until)
    }

    pub(super) fn next_renewal(&self) -> Moment {
        first(&self.renewals)
    }

    pub(super) fn next_expiry(&self) -> Moment {
        first(&self.expiries)
    }

    /// How many holds are renewed.
    pub(super) fn renewed(&self) -> usize {
        self.renewals.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.renewals.is_empty() && self.expiries.is_empty()
    }

    fn line(&mut self, is_renewal: bool) -> &mut Line {
        if is_renewal {
            &mut self.renewals
        } else {
            &mut self.expiries
        }
    }
}

fn up_to(line: &Line, until: Moment) -> impl Iterator<Item = &Arc<Hold>> {
    line.range(..=(until, u64::MAX)).map(|(_, hold)| hold)
}

fn first(line: &Line) -> Moment {
    line.first_key_value()
        .map_or(Moment::NEVER, |((at, _), _)| *at)
}
