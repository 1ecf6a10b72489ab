//! All holds of one client, by lock and by the next moment for the watchdog.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::by_value::ByValue;
use super::holds_of_key::{Filing, HoldsOfKey};
use super::recently_released::RecentlyReleased;
use super::schedule::{NextMoments, Schedule};
use super::{Hold, HoldPhase, HoldState, SLOW_UNLOCK};
use crate::clock::{Clock, Moment};
use crate::key::{ByKey, LockKey};
use crate::lease::LEAD_TIME;
use crate::owner::Owner;

/// All holds of one client.
///
/// Lock order: the table before a hold's state, never the reverse.
pub(crate) struct Holds {
    pub(super) clock: Clock,
    next_number: AtomicU64,
    pub(super) table: Mutex<Table>,
    /// When the watchdog will check next. Only an earlier moment has to wake it.
    next_check: AtomicU64,
    earlier: Notify,
    /// Holds that were removed recently, if the client remembers them.
    gone: Option<RecentlyReleased>,
}

#[derive(Default)]
pub(super) struct Table {
    /// Ended holds stay until Redis has answered, or their lease is over.
    pub(super) by_key: ByKey<HoldsOfKey>,
    /// The locks in `by_key` that are of values of groups.
    pub(super) by_value: ByValue,
    /// Write holds that were lost, for the watchdog: the read hold of the same owner may keep the key of the
    /// lock, and so their fields.
    outlived: Vec<Arc<Hold>>,
    schedule: Schedule,
}

/// What the watchdog has to do next.
pub(crate) struct Due {
    /// Holds to renew now, with the lease for each.
    pub(crate) renew: Vec<(Arc<Hold>, Duration)>,
    /// How long ago the first of these renewals was due.
    pub(crate) late: Duration,
    /// Holds that were just lost at their deadlines.
    pub(crate) lost: Vec<Arc<Hold>>,
    /// Holds whose callers did not accept their grants, if there were any, in time.
    pub(crate) untaken: Vec<Arc<Hold>>,
    /// Holds whose unlocks take too long.
    pub(crate) slow: Vec<Arc<Hold>>,
    /// Write holds that were lost: the read holds of their owners may keep their fields.
    pub(crate) outlived: Vec<Arc<Hold>>,
    /// More renewals are due than were asked for.
    pub(crate) behind: bool,
    /// How many holds are renewed in total.
    pub(crate) renewed: usize,
    /// The latest moment for the next check.
    pub(crate) next: Moment,
}

impl Holds {
    /// With `remembers`, [`Holds::gone`] returns recently removed holds.
    pub(crate) fn new(clock: Clock, remembers: bool) -> Self {
        Self {
            clock,
            gone: remembers.then(RecentlyReleased::default),
            next_number: AtomicU64::new(1),
            table: Mutex::default(),
            next_check: AtomicU64::new(u64::MAX),
            earlier: Notify::new(),
        }
    }

    /// Adds a new hold, before its acquire is sent.
    pub(crate) fn enter(&self, key: &Arc<LockKey>, owner: Owner) -> Arc<Hold> {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let hold = Arc::new(Hold::new(key.clone(), owner, number, self.clock.now()));
        let mut table = self.table.lock();
        let holds = table.by_key.entry(key.clone()).or_default();
        let is_first = holds.is_empty();
        holds.push(hold.clone());
        if is_first {
            table.by_value.add(key);
        }
        hold
    }

    /// Removes a hold when Redis can have nothing of it any more.
    pub(crate) fn remove(&self, hold: &Arc<Hold>) {
        let mut table = self.table.lock();
        table.schedule.set(hold, NextMoments::default());
        if let Some(holds) = table.by_key.get_mut(&**hold.key()) {
            holds.remove(hold);
            if holds.is_empty() {
                table.by_key.remove(&**hold.key());
                table.by_value.remove(hold.key());
            }
        }
        drop(table);
        // Lock order: the table comes before a hold's state.
        let mut state = hold.state();
        // Cleared, so that a later change does not schedule it for the watchdog again.
        state.hasten_at = Moment::NEVER;
        let granted = state.granted;
        drop(state);
        if let (Some(gone), true) = (&self.gone, granted) {
            gone.remember(hold, self.clock.now());
        }
    }

    /// Forgets the holds that were removed too long ago.
    pub(crate) fn forget_gone(&self) {
        if let Some(gone) = &self.gone {
            gone.forget(self.clock.now());
        }
    }

    /// The recently removed holds that match `these`; each is returned once only.
    pub(crate) fn gone(&self, these: impl Fn(&Hold) -> bool) -> Vec<Arc<Hold>> {
        let now = self.clock.now();
        self.gone
            .as_ref()
            .map_or_else(Vec::new, |gone| gone.take(now, these))
    }

    /// Changes a hold's state and reschedules it for the watchdog.
    pub(crate) fn change<T>(
        &self,
        hold: &Arc<Hold>,
        change: impl FnOnce(&mut HoldState) -> T,
    ) -> T {
        let mut table = self.table.lock();
        let (result, changed) = table.change(hold, change);
        drop(table);
        if changed.lost {
            hold.announce_lost();
            if hold.key().kind().may_outlive_its_lease() {
                // The watchdog has to check whether the hold outlives its lease.
                self.earlier.notify_one();
            }
        }
        let earliest = changed.next.earliest();
        if earliest != Moment::NEVER && earliest.0 < self.next_check.load(Ordering::Acquire) {
            self.earlier.notify_one();
        }
        result
    }

    pub(crate) fn all(&self) -> Vec<Arc<Hold>> {
        let table = self.table.lock();
        table
            .by_key
            .values()
            .flat_map(HoldsOfKey::all)
            .cloned()
            .collect()
    }

    /// What the watchdog has to do now: all expiries, and at most `batch` renewals of `lease`. No
    /// renewal is due before `not_before`, and none at all if `batch` is zero. Renewals within `early`
    /// count as due. A batch that is not full is filled with the next renewals, so that the holds of
    /// one batch stay together and batches are full.
    pub(crate) fn due(
        &self,
        lease: Duration,
        batch: usize,
        not_before: Moment,
        early: Duration,
    ) -> Due {
        let now = self.clock.now();
        let mut due = Due {
            renew: Vec::new(),
            late: Duration::ZERO,
            lost: Vec::new(),
            untaken: Vec::new(),
            slow: Vec::new(),
            outlived: Vec::new(),
            behind: false,
            renewed: 0,
            next: Moment::NEVER,
        };
        let mut table = self.table.lock();
        let expiring = table.schedule.expiries(now + LEAD_TIME).cloned();
        for hold in expiring.collect::<Vec<_>>() {
            table.change(&hold, |state| {
                if state.expire(now + LEAD_TIME) {
                    due.lost.push(hold.clone());
                } else if state.is_untaken(now + LEAD_TIME) {
                    state.awaited = false;
                    due.untaken.push(hold.clone());
                } else if state.is_slow(now + LEAD_TIME) {
                    state.hasten_at = now + SLOW_UNLOCK;
                    due.slow.push(hold.clone());
                }
            });
        }
        let is_due = |renewal: Moment| renewal.max(not_before) <= now + early;
        if batch > 0 && is_due(table.schedule.next_renewal()) {
            let soon = table.schedule.renewals(now + lease / 6).take(batch);
            for hold in soon.cloned().collect::<Vec<_>>() {
                table.change(&hold, |state| {
                    let planned = state.renew_at;
                    if let Some(lease) = state.renewal(now, lease) {
                        due.renew.push((hold.clone(), lease));
                        due.late = due.late.max(now.since(planned));
                    }
                });
            }
        }
        let next_renewal = if batch > 0 {
            table.schedule.next_renewal()
        } else {
            Moment::NEVER
        };
        due.behind = next_renewal <= now + early;
        due.renewed = table.schedule.renewed();
        due.next = table
            .schedule
            .next_expiry()
            .min(next_renewal.max(not_before));
        due.outlived = std::mem::take(&mut table.outlived);
        if !table.schedule.is_empty() {
            due.next = self.clock.wake_up_at(due.next, now, TICK);
        }
        self.next_check.store(due.next.0, Ordering::Release);
        due
    }

    /// Completes when something may be due before the moment that [`Holds::due`] returned.
    pub(crate) async fn earlier(&self) {
        self.earlier.notified().await;
    }
}

impl Table {
    /// Changes a hold's state, and updates its positions in the schedule and the index.
    fn change<T>(
        &mut self,
        hold: &Arc<Hold>,
        change: impl FnOnce(&mut HoldState) -> T,
    ) -> (T, Changed) {
        let mut state = hold.state();
        let (before, filed) = (state.phase, Filing::of(&state));
        let result = change(&mut state);
        let (next, phase) = (NextMoments::of(&state), state.phase);
        let filing = Filing::of(&state);
        drop(state);
        self.schedule.set(hold, next);
        if filing != filed
            && let Some(holds) = self.by_key.get_mut(&**hold.key())
        {
            holds.moved(hold, filing);
        }
        let lost = phase != before && matches!(phase, HoldPhase::Lost(_));
        if lost && hold.key().kind().may_outlive_its_lease() {
            self.outlived.push(hold.clone());
        }
        (result, Changed { next, lost })
    }
}

/// The effects of a change on a hold.
struct Changed {
    /// When the watchdog has to check it next.
    next: NextMoments,
    /// The change lost the hold, and its guards have to be notified.
    lost: bool,
}

/// The runtime's timers stop while the machine sleeps. While there are holds, the watchdog reads the
/// clock at least this often.
const TICK: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::testing::ShiftedClock;
    use crate::hold::Terms;
    use crate::key::kind;

    fn held(holds: &Holds, key: &Arc<LockKey>) -> Arc<Hold> {
        let hold = holds.enter(key, Owner::new());
        let now = holds.clock.now();
        let terms = Terms::new(Duration::from_secs(10), true);
        assert!(holds.change(&hold, |state| state.grant(now, &terms, now)));
        hold
    }

    #[test]
    fn an_expired_hold_is_due_while_renewals_are_deferred() {
        let ahead = Arc::new(AtomicU64::new(0));
        let holds = Holds::new(Clock::of(ShiftedClock(ahead.clone())), false);
        let key = Arc::new(LockKey::new(&kind::PLAIN, "l", None).unwrap());
        let lease = Duration::from_secs(10);
        for (batch, not_before) in [(0, Moment(0)), (100, Moment::NEVER)] {
            let hold = held(&holds, &key);
            ahead.fetch_add(10_000_000_000, Ordering::Relaxed);
            let due = holds.due(lease, batch, not_before, Duration::ZERO);
            assert!(due.renew.is_empty());
            assert!(due.lost.len() == 1 && Arc::ptr_eq(&due.lost[0], &hold));
        }
    }

    #[test]
    fn an_early_renewal_joins_a_batch_but_is_not_due_by_itself() {
        let ahead = Arc::new(AtomicU64::new(0));
        let holds = Holds::new(Clock::of(ShiftedClock(ahead.clone())), false);
        let key = Arc::new(LockKey::new(&kind::PLAIN, "l", None).unwrap());
        let hold = held(&holds, &key);
        ahead.fetch_add(2_000_000_000, Ordering::Relaxed);
        let lease = Duration::from_secs(10);
        let due = |early| holds.due(lease, 100, Moment(0), Duration::from_secs(early));
        assert!(due(0).renew.is_empty());
        let along = due(2).renew;
        assert!(along.len() == 1 && Arc::ptr_eq(&along[0].0, &hold));
    }
}
