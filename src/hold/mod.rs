//! What this client holds.

mod grant;
mod holds_of_key;
mod local_holds;
mod recently_released;
mod renewal;
mod schedule;
mod schedule_entry;
mod state;
mod streak;
mod table;
mod turn;
mod turn_guard;

use std::sync::{Arc, Weak};
use std::time::Duration;
use std::{mem, ptr};

use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

use crate::clock::Moment;
use crate::error::{AlreadyHeld, Lost, LostFacts, LostReason};
use crate::key::LockKey;
use crate::owner::Owner;

pub(crate) use local_holds::{LocalHolds, OwnerState};
pub(crate) use state::{ClaimFlags, Dropped, HoldPhase, HoldState, Terms};
pub(crate) use streak::{HandOverLimits, Streak, StreakEnd};
pub(crate) use table::Holds;
pub(crate) use turn::TurnSnapshot;
pub(crate) use turn_guard::{PATIENCE, SLOW_UNLOCK, TurnGuard};

/// One owner's claim on one lock, from its first acquire to its last unlock.
///
/// What stands in Redis for it is a field of its own that is never used again, so that no late or
/// repeated command can touch a later hold (design: invariant 7).
pub(crate) struct Hold {
    key: Arc<LockKey>,
    owner: Owner,
    number: u64,
    state: Mutex<HoldState>,
    slot: schedule_entry::ScheduleEntry,
    turns: turn::Turns,
    /// Made when somebody first wants to hear of its loss.
    audience: Mutex<Option<Box<Audience>>>,
}

/// Those who hear of a hold's loss.
#[derive(Default)]
struct Audience {
    token: CancellationToken,
    dependants: Vec<Weak<dyn Dependant>>,
}

/// Something that is lost with any of several holds.
pub(crate) trait Dependant: Send + Sync {
    /// One of its holds was lost. Called without any lock, by whoever noticed.
    fn hold_lost(&self);

    /// It has its holds renewed itself, beside the watchdog. Called without any lock.
    fn renews(&self) -> bool;
}

impl Hold {
    fn new(key: Arc<LockKey>, owner: Owner, number: u64, now: Moment) -> Self {
        Self {
            key,
            owner,
            number,
            state: Mutex::new(HoldState::pending(now)),
            slot: schedule_entry::ScheduleEntry::default(),
            turns: turn::Turns::default(),
            audience: Mutex::new(None),
        }
    }

    pub(crate) fn key(&self) -> &Arc<LockKey> {
        &self.key
    }

    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }

    /// Tells this hold from every other one of the client.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, HoldState> {
        self.state.lock()
    }

    /// Cancelled when the hold is lost; already so if it is lost now.
    pub(crate) fn lost_token(&self) -> CancellationToken {
        let token = self.audience.lock().get_or_insert_default().token.clone();
        self.announce_if_lost();
        token
    }

    /// Tells `dependant` when the hold is lost; now if it is lost already.
    pub(crate) fn add_dependant(&self, dependant: Weak<dyn Dependant>) {
        let mut audience = self.audience.lock();
        audience.get_or_insert_default().dependants.push(dependant);
        drop(audience);
        self.announce_if_lost();
    }

    /// Does not tell `dependant` any more, known by its address.
    pub(crate) fn remove_dependant(&self, dependant: *const ()) {
        if let Some(audience) = &mut *self.audience.lock() {
            let others = |other: &Weak<dyn Dependant>| !ptr::addr_eq(other.as_ptr(), dependant);
            audience.dependants.retain(others);
        }
    }

    /// The watchdog renews it, or a lock of several of which it is a part.
    pub(crate) fn is_renewed(&self) -> bool {
        if self.state().is_renewed() {
            return true;
        }
        let dependants = match &*self.audience.lock() {
            Some(audience) => audience.dependants.clone(),
            None => return false,
        };
        let mut dependants = dependants.iter().filter_map(Weak::upgrade);
        dependants.any(|dependant| dependant.renews())
    }

    /// For those who came after it was announced: looked at once they can be seen, so that no loss
    /// falls between.
    fn announce_if_lost(&self) {
        if matches!(self.state().phase, HoldPhase::Lost(_)) {
            self.announce_lost();
        }
    }

    /// Tells whoever listens. To be called after the phase became Lost, and without the state.
    pub(crate) fn announce_lost(&self) {
        let (token, dependants) = match &mut *self.audience.lock() {
            Some(audience) => (audience.token.clone(), mem::take(&mut audience.dependants)),
            None => return,
        };
        token.cancel();
        for dependant in dependants {
            if let Some(dependant) = dependant.upgrade() {
                dependant.hold_lost();
            }
        }
    }

    /// How the hold was lost, told as of `now`; `None` while it is valid.
    pub(crate) fn loss(&self, now: Moment) -> Option<Lost> {
        let reason = {
            let state = self.state();
            match state.phase {
                HoldPhase::Lost(reason) => reason,
                HoldPhase::Ended => LostReason::Released,
                HoldPhase::Pending => return None,
                HoldPhase::Held | HoldPhase::Jeopardy if now < state.deadline => return None,
                HoldPhase::Held | HoldPhase::Jeopardy => state.deadline_reason(),
            }
        };
        Some(self.lost_as(reason, now))
    }

    /// The hold as lost for this reason, told as of `now`.
    pub(crate) fn lost_as(&self, reason: LostReason, now: Moment) -> Lost {
        let state = self.state();
        Lost::new(LostFacts {
            reason,
            lock: self.key.name().to_owned(),
            owner: self.owner.to_string(),
            held_for: now.since(state.acquired),
            renewed: now.since(state.renewed),
            instances: Vec::new(),
        })
    }

    /// Its owner asked for the lock once more, which is not reentrant.
    pub(crate) fn already_held(&self, now: Moment) -> AlreadyHeld {
        let held = now.since(self.state().acquired);
        AlreadyHeld::new(self.key.name(), &self.owner.to_string(), held)
    }

    /// The time left to act on it; zero if it is not valid.
    pub(crate) fn remaining(&self, now: Moment) -> Duration {
        let state = self.state();
        if state.is_living() {
            state.deadline.since(now)
        } else {
            Duration::ZERO
        }
    }
}
