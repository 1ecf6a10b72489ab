//! When the watchdog has to check which hold.

use std::cmp::Ordering as Order;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Hold, HoldPhase, HoldState};
use crate::clock::Moment;
use crate::lease::LEAD_TIME;

/// Holds ordered by their next moments. A hold that ends is removed immediately, so fast lock-unlock cycles
/// leave no entry behind.
#[derive(Default)]
pub(super) struct Schedule {
    /// Holds that are renewed.
    renewals: Timeline,
    /// All holds with a deadline. They have a timeline of their own, so that a renewal that is due, late
    /// or in flight does not delay the notification of a loss.
    expiries: Timeline,
}

/// Holds by their moments.
type Timeline = BTreeSet<TimelineKey>;

/// A hold's position in a timeline: by its moment, then by its number.
struct TimelineKey {
    at: Moment,
    hold: Arc<Hold>,
}

/// When the watchdog has to do something about a hold; `None` means never.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct NextMoments {
    pub(super) expire: Option<Moment>,
    pub(super) renew: Option<Moment>,
}

impl NextMoments {
    /// What the watchdog has to do about a hold in this state.
    pub(super) fn of(state: &HoldState) -> Self {
        let expire = match state.phase {
            HoldPhase::Held | HoldPhase::Jeopardy if state.is_lowering => {
                state.deadline.min(state.hasten_at)
            }
            HoldPhase::Held | HoldPhase::Jeopardy => state.deadline,
            HoldPhase::Pending if state.awaited => state.deadline,
            HoldPhase::Ended => state.hasten_at,
            HoldPhase::Pending | HoldPhase::Lost(_) => Moment::NEVER,
        };
        Self {
            expire: (expire != Moment::NEVER).then(|| expire.minus(LEAD_TIME)),
            renew: state.needs_watchdog().then_some(state.renew_at),
        }
    }

    pub(super) fn earliest(self) -> Moment {
        let [expire, renew] = [self.expire, self.renew].map(|at| at.unwrap_or(Moment::NEVER));
        expire.min(renew)
    }
}

impl Schedule {
    /// Moves `hold` to its position in both timelines, or removes it.
    pub(super) fn set(&mut self, hold: &Arc<Hold>, next: NextMoments) {
        place(
            &mut self.expiries,
            &hold.scheduled.expire,
            hold,
            next.expire,
        );
        place(&mut self.renewals, &hold.scheduled.renew, hold, next.renew);
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
        self.expiries.is_empty()
    }
}

impl Ord for TimelineKey {
    fn cmp(&self, other: &Self) -> Order {
        let by_number = || self.hold.number().cmp(&other.hold.number());
        self.at.cmp(&other.at).then_with(by_number)
    }
}

impl PartialOrd for TimelineKey {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl Eq for TimelineKey {}

impl PartialEq for TimelineKey {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

fn place(timeline: &mut Timeline, scheduled: &AtomicU64, hold: &Arc<Hold>, next: Option<Moment>) {
    let old = Moment(scheduled.load(Ordering::Relaxed));
    let at = next.unwrap_or(Moment(0));
    if at == old {
        return;
    }
    scheduled.store(at.0, Ordering::Relaxed);
    let hold = hold.clone();
    let mut entry = TimelineKey { at: old, hold };
    if old.0 != 0 {
        timeline.remove(&entry);
    }
    if next.is_some() {
        entry.at = at;
        timeline.insert(entry);
    }
}

fn up_to(timeline: &Timeline, until: Moment) -> impl Iterator<Item = &Arc<Hold>> {
    let entries = timeline.iter().take_while(move |entry| entry.at <= until);
    entries.map(|entry| &entry.hold)
}

fn first(timeline: &Timeline) -> Moment {
    timeline.first().map_or(Moment::NEVER, |entry| entry.at)
}
