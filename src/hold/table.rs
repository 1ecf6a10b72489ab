//! Every hold of one client, by lock and in the order of what the watchdog has to do next.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::schedule::Schedule;
use super::{Hold, Phase, State};
use crate::clock::{Clock, Moment};
use crate::error::{Lost, LostReason};
use crate::key::LockKey;
use crate::owner::Owner;

/// Every hold of one client.
///
/// Lock order: the table before a hold's state; never the other way round.
pub(crate) struct Holds {
    clock: Clock,
    next_number: AtomicU64,
    table: Mutex<Table>,
    /// When the watchdog means to look next, so that only an earlier moment has to wake it.
    looks_at: AtomicU64,
    earlier: Notify,
}

#[derive(Default)]
struct Table {
    /// Ended holds stay until Redis has been told, or their lease is over.
    by_key: HashMap<Arc<LockKey>, Vec<Arc<Hold>>>,
    schedule: Schedule,
}

/// How an owner stands with a lock.
pub(crate) enum Standing {
    /// An acquire of this owner is under way.
    Acquiring,
    /// It holds the lock: a further acquire is a re-entry.
    Holding(Arc<Hold>),
    /// It held the lock, a living guard still stands for that, and the lock is gone.
    Lost(Lost),
    Nothing,
}

/// What the watchdog has to do next.
pub(crate) struct Due {
    /// Holds to renew now, and the lease for each.
    pub(crate) renew: Vec<(Arc<Hold>, Duration)>,
    /// Holds that were just lost to their deadlines.
    pub(crate) lost: Vec<Arc<Hold>>,
    /// When there is something to do again.
    pub(crate) next: Option<Moment>,
    /// How many holds are watched over.
    pub(crate) scheduled: usize,
}

impl Holds {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            next_number: AtomicU64::new(1),
            table: Mutex::default(),
            looks_at: AtomicU64::new(u64::MAX),
            earlier: Notify::new(),
        }
    }

    /// Enters a new hold, before its acquire leaves.
    pub(crate) fn enter(&self, key: &Arc<LockKey>, owner: Owner) -> Arc<Hold> {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let hold = Arc::new(Hold::new(key.clone(), owner, number, self.clock.now()));
        let mut table = self.table.lock();
        table
            .by_key
            .entry(key.clone())
            .or_insert_with(|| Vec::with_capacity(1))
            .push(hold.clone());
        hold
    }

    /// Takes a hold out, when nothing of it can be left in Redis.
    pub(crate) fn remove(&self, hold: &Arc<Hold>) {
        let mut table = self.table.lock();
        table.schedule.set(hold, None);
        if let Some(holds) = table.by_key.get_mut(&**hold.key()) {
            holds.retain(|other| !Arc::ptr_eq(other, hold));
            if holds.is_empty() {
                table.by_key.remove(&**hold.key());
            }
        }
    }

    /// Changes a hold's state and what the watchdog has to do about it.
    pub(crate) fn change<T>(&self, hold: &Arc<Hold>, change: impl FnOnce(&mut State) -> T) -> T {
        let mut table = self.table.lock();
        let (result, next, lost) = {
            let mut state = hold.state();
            let before = state.phase;
            let result = change(&mut state);
            let lost = state.phase != before && matches!(state.phase, Phase::Lost(_));
            (result, next_moment(&state), lost)
        };
        let is_first = table.schedule.set(hold, next);
        drop(table);
        if lost {
            hold.announce_lost();
        }
        if is_first && next.is_some_and(|at| at.0 < self.looks_at.load(Ordering::Acquire)) {
            self.earlier.notify_one();
        }
        result
    }

    /// How `owner` stands with the lock. Forgets its forgotten holds that are gone.
    pub(crate) fn standing(&self, key: &LockKey, owner: Owner) -> Standing {
        let now = self.clock.now();
        let Some(hold) = self.of_owner(key, owner) else {
            return Standing::Nothing;
        };
        let (phase, valid, only_forgotten) = {
            let state = hold.state();
            (state.phase, state.is_valid(now), state.is_only_forgotten())
        };
        if phase == Phase::Pending {
            return Standing::Acquiring;
        }
        if valid {
            return Standing::Holding(hold);
        }
        self.change(&hold, |state| state.expire(now));
        if only_forgotten {
            self.change(&hold, State::end);
            self.remove(&hold);
            return Standing::Nothing;
        }
        hold.loss(now).map_or(Standing::Nothing, Standing::Lost)
    }

    /// The newest hold of `owner` that is not given up.
    pub(crate) fn of_owner(&self, key: &LockKey, owner: Owner) -> Option<Arc<Hold>> {
        let table = self.table.lock();
        let holds = table.by_key.get(key)?.iter().rev();
        holds
            .filter(|hold| hold.owner() == owner && hold.state().phase != Phase::Ended)
            .min_by_key(|hold| hold.state().phase == Phase::Pending)
            .cloned()
    }

    /// The hold with this field's number, if it is not given up.
    pub(crate) fn numbered(&self, key: &LockKey, number: u64) -> Option<Arc<Hold>> {
        let table = self.table.lock();
        let mut holds = table.by_key.get(key)?.iter();
        holds.find(|hold| hold.number() == number).cloned()
    }

    /// Up to when this client itself keeps the lock, as far as it knows.
    pub(crate) fn kept_until(&self, key: &LockKey) -> Option<Moment> {
        let now = self.clock.now();
        let table = self.table.lock();
        let deadline_of = |hold: &Arc<Hold>| {
            let state = hold.state();
            state.is_valid(now).then_some(state.deadline)
        };
        table.by_key.get(key)?.iter().filter_map(deadline_of).max()
    }

    /// A hold on the lock has been given up and Redis has not answered yet.
    pub(crate) fn is_releasing(&self, key: &LockKey) -> bool {
        let table = self.table.lock();
        table
            .by_key
            .get(key)
            .is_some_and(|holds| holds.iter().any(|hold| hold.state().phase == Phase::Ended))
    }

    /// Redis granted the lock to `granted`, so every other hold that this client believes in is gone.
    pub(crate) fn supersede(&self, granted: &Arc<Hold>) {
        let others: Vec<_> = {
            let table = self.table.lock();
            let Some(holds) = table.by_key.get(&**granted.key()) else {
                return;
            };
            if holds.len() == 1 {
                return;
            }
            let is_other = |hold: &&Arc<Hold>| !Arc::ptr_eq(hold, granted);
            holds.iter().filter(is_other).cloned().collect()
        };
        for other in others {
            self.change(&other, |state| state.lose(LostReason::NotOurs));
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<Hold>> {
        let table = self.table.lock();
        table.by_key.values().flatten().cloned().collect()
    }

    /// What the watchdog has to do now: at most `batch` renewals of `lease`. A batch that is not
    /// full is filled with those that would come next, so that the holds of one batch stay together
    /// and the batches full.
    pub(crate) fn due(&self, lease: Duration, batch: usize) -> Due {
        let now = self.clock.now();
        let mut due = Due {
            renew: Vec::new(),
            lost: Vec::new(),
            next: None,
            scheduled: 0,
        };
        let mut table = self.table.lock();
        let soon: Vec<Arc<Hold>> = table
            .schedule
            .up_to(now + lease / 6)
            .take(LOOK_AT_ONCE.max(batch))
            .cloned()
            .collect();
        let mut anything_due = false;
        for hold in soon {
            let mut state = hold.state();
            if state.expire(now + TOLD_EARLY) {
                due.lost.push(hold.clone());
            } else if due.renew.len() < batch && (anything_due || state.renew_at <= now) {
                // The first entry decides whether there is a batch at all.
                if let Some(lease) = state.renewal(now, lease) {
                    anything_due = true;
                    state.sending(now, lease);
                    // Once more soon, should this one not be answered.
                    state.renew_at = now + lease / 6;
                    due.renew.push((hold.clone(), lease));
                } else {
                    state.renew_at = state.renew_later(now, lease);
                }
            }
            let next = next_moment(&state);
            drop(state);
            table.schedule.set(&hold, next);
        }
        due.next = table.schedule.next();
        due.scheduled = table.schedule.len();
        self.looks_at
            .store(due.next.map_or(u64::MAX, |next| next.0), Ordering::Release);
        due
    }

    /// Ends when there may be something to do before the moment that [`Holds::due`] told.
    pub(crate) async fn earlier(&self) {
        self.earlier.notified().await;
    }
}

/// When the watchdog has to look at a hold in this state.
fn next_moment(state: &State) -> Option<Moment> {
    let renewal = if state.is_renewed() {
        state.renew_at
    } else {
        Moment::NEVER
    };
    let told = state.deadline.minus(TOLD_EARLY);
    state.is_living().then(|| renewal.min(told))
}

/// Holders are told this long before their deadline, so that they are not told after it.
pub(crate) const TOLD_EARLY: Duration = Duration::from_millis(2);

/// How many holds are looked at under one locking of the table.
const LOOK_AT_ONCE: usize = 200;
