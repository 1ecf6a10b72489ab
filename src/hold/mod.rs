//! What this client holds.

mod by_value;
mod few_holds;
mod forgotten;
mod grant;
mod holds_of_key;
mod kept;
mod ledger;
mod local_holds;
mod loss;
mod recently_released;
mod remains;
mod renewal;
mod schedule;
mod schedule_entry;
mod state;
mod streak;
mod table;
mod thin_list;
mod turn;
mod turn_guard;
mod unreported_loss;

use std::num::NonZeroU64;
use std::sync::{Arc, Weak};
use std::time::Duration;
use std::{mem, ptr};

use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

use crate::clock::Moment;
use crate::error::{AlreadyHeld, Error, Lost, LostFacts, LostReason};
use crate::key::LockKey;
use crate::owner::Owner;

pub(crate) use ledger::LedgerView;
pub(crate) use local_holds::{LocalHolds, OwnerState};
pub(crate) use state::{ClaimFlags, Dropped, HoldPhase, HoldState, Terms};
pub(crate) use streak::{HandOverLimits, Streak, StreakEnd};
pub(crate) use table::Holds;
pub(crate) use turn::TurnSnapshot;
pub(crate) use turn_guard::{POLL_TIMEOUT, SLOW_UNLOCK, TurnGuard};

/// One owner's ownership of one lock, from its first acquire to its last unlock.
///
/// In Redis it is one hash field that is never reused, so no late or repeated command can affect a
/// later hold (design: invariant 7).
pub(crate) struct Hold {
    key: Arc<LockKey>,
    owner: Owner,
    number: u64,
    state: Mutex<HoldState>,
    scheduled: schedule_entry::ScheduleEntry,
    turn: Mutex<turn::Turn>,
    /// Created when the first party registers for its loss.
    audience: Mutex<Option<Box<Audience>>>,
}

/// The parties that are notified of a hold's loss.
#[derive(Default)]
struct Audience {
    token: CancellationToken,
    dependants: Vec<Weak<dyn Dependant>>,
}

/// An object that is lost when any of several holds is lost.
pub(crate) trait Dependant: Send + Sync {
    /// One of its holds was lost. Called by the party that noticed the loss, without any mutex held.
    fn hold_lost(&self);

    /// How it renews its holds itself, in addition to the watchdog; `None` if it does not. Called without any mutex
    /// held.
    fn renewal(&self) -> Option<PartRenewal>;
}

/// How a composite lock renews its holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartRenewal {
    /// The last renewal failed.
    pub(crate) in_jeopardy: bool,
    /// The deadline that the next renewal moves. `None` near the end of a `max_hold`, where none does.
    pub(crate) deadline: Option<Moment>,
}

impl Hold {
    fn new(key: Arc<LockKey>, owner: Owner, number: u64, now: Moment) -> Self {
        Self {
            key,
            owner,
            number,
            state: Mutex::new(HoldState::pending(now)),
            scheduled: schedule_entry::ScheduleEntry::default(),
            turn: Mutex::default(),
            audience: Mutex::new(None),
        }
    }

    pub(crate) fn key(&self) -> &Arc<LockKey> {
        &self.key
    }

    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }

    /// Unique among the holds of the client.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, HoldState> {
        self.state.lock()
    }

    /// Notes the fencing token that the server issued with the grant, if its kind issues tokens. Called
    /// before any guard exists. A hold has one token, so a re-entry changes nothing.
    pub(crate) fn note_token(&self, token: Option<NonZeroU64>) {
        if let Some(token) = token {
            self.state().token.get_or_insert(token);
        }
    }

    /// Cancelled when the hold is lost, immediately if it is lost already.
    pub(crate) fn lost_token(&self) -> CancellationToken {
        let token = self.audience.lock().get_or_insert_default().token.clone();
        self.announce_if_lost();
        token
    }

    /// Notifies `dependant` when the hold is lost, immediately if it is lost already.
    pub(crate) fn add_dependant(&self, dependant: Weak<dyn Dependant>) {
        let mut audience = self.audience.lock();
        audience.get_or_insert_default().dependants.push(dependant);
        drop(audience);
        self.announce_if_lost();
    }

    /// Stops the notification of `dependant`, which is identified by its address.
    pub(crate) fn remove_dependant(&self, dependant: *const ()) {
        if let Some(audience) = &mut *self.audience.lock() {
            let others = |other: &Weak<dyn Dependant>| !ptr::addr_eq(other.as_ptr(), dependant);
            audience.dependants.retain(others);
        }
    }

    /// The watchdog renews it, or a composite lock that it is a part of does.
    pub(crate) fn is_renewed(&self) -> bool {
        if self.state().is_renewed() {
            return true;
        }
        !self.part_renewals().is_empty()
    }

    /// How the composite locks that it is a part of renew it. Those that leave that to the watchdog are left out.
    /// Call it without the state locked.
    pub(crate) fn part_renewals(&self) -> Vec<PartRenewal> {
        let dependants = match &*self.audience.lock() {
            Some(audience) => audience.dependants.clone(),
            None => return Vec::new(),
        };
        let dependants = dependants.iter().filter_map(Weak::upgrade);
        dependants
            .filter_map(|dependant| dependant.renewal())
            .collect()
    }

    /// Checks again after a registration, so that a loss between the check and the registration is not
    /// missed.
    fn announce_if_lost(&self) {
        if matches!(self.state().phase, HoldPhase::Lost(_)) {
            self.announce_lost();
        }
    }

    /// Notifies all registered parties. Call it after the phase became Lost, without the state locked.
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

    /// How the hold was lost, as of `now`; `None` while it is valid.
    pub(crate) fn loss(&self, now: Moment) -> Option<Lost> {
        let reason = {
            let state = self.state();
            match state.phase {
                HoldPhase::Lost(reason) => reason,
                HoldPhase::Ended => LostReason::Released,
                HoldPhase::Pending => return None,
                HoldPhase::Held | HoldPhase::Jeopardy if state.ends_after(now) => return None,
                HoldPhase::Held | HoldPhase::Jeopardy => state.deadline_reason(),
            }
        };
        Some(self.lost_as(reason, now))
    }

    /// The facts of a loss with this reason, as of `now`.
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

    /// The error for an owner that acquired the lock once more although it is not reentrant.
    pub(crate) fn already_held(&self, now: Moment) -> AlreadyHeld {
        let held = now.since(self.state().acquired);
        AlreadyHeld::new(self.key.name(), &self.owner.to_string(), held)
    }

    /// The error for a deadlock: the owner reads and requests the write lock, it reads and another reader waits
    /// for an upgrade, or it requests values of a group some of which it holds through another lock.
    pub(crate) fn would_deadlock(&self) -> Error {
        Error::would_deadlock(self.key.name(), &self.owner.to_string())
    }

    /// How long it may still be acted on; zero if it is not valid.
    pub(crate) fn remaining(&self, now: Moment) -> Duration {
        let state = self.state();
        if state.is_living() {
            state.deadline.since(now)
        } else {
            Duration::ZERO
        }
    }
}
