//! What this client holds.

mod row;
mod schedule;
mod state;
mod table;

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::clock::Moment;
use crate::error::{Lost, LostFacts, LostReason};
use crate::key::LockKey;
use crate::owner::Owner;

pub(crate) use row::{Bounds, Row, Turn};
pub(crate) use state::{Dropped, Phase, Share, State, Terms};
pub(crate) use table::{Holds, Outlook, Standing};

/// One owner's claim on one lock, from its first acquire to its last unlock.
///
/// What stands in Redis for it is a field of its own that is never used again, so that no late or
/// repeated command can touch a later hold (design: invariant 7).
pub(crate) struct Hold {
    key: Arc<LockKey>,
    owner: Owner,
    number: u64,
    state: Mutex<State>,
    slot: schedule::Slot,
    /// One permit: who has it may send a command for this hold (design: invariant 3).
    command: Semaphore,
    /// Who is told that it is lost; made when somebody first asks for it.
    lost: Mutex<Option<Box<Listeners>>>,
}

/// Who is told that a hold is lost.
#[derive(Default)]
struct Listeners {
    token: CancellationToken,
    wholes: Vec<Weak<dyn Whole>>,
}

/// Something bigger that a hold is a part of.
pub(crate) trait Whole: Send + Sync {
    /// A part of it was lost.
    fn part_lost(self: Arc<Self>);
}

impl Hold {
    fn new(key: Arc<LockKey>, owner: Owner, number: u64, now: Moment) -> Self {
        Self {
            key,
            owner,
            number,
            state: Mutex::new(State::pending(now)),
            slot: schedule::Slot::default(),
            command: Semaphore::new(1),
            lost: Mutex::new(None),
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

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The right to send a command for this hold; first come, first served. May take as long as a
    /// lease where the command under way is settled in an outage.
    pub(crate) async fn command(self: &Arc<Self>) -> Command {
        // Nobody closes the semaphore, so there is always a permit to come.
        if let Ok(permit) = self.command.acquire().await {
            permit.forget();
        }
        Command { hold: self.clone() }
    }

    /// The right to send a command, if nobody has it.
    pub(crate) fn try_command(self: &Arc<Self>) -> Option<Command> {
        self.command.try_acquire().ok()?.forget();
        Some(Command { hold: self.clone() })
    }

    /// Cancelled when the hold is lost; already so if it is lost now.
    pub(crate) fn lost_token(&self) -> CancellationToken {
        let token = self.lost.lock().get_or_insert_default().token.clone();
        // Looked at after the token can be seen, so that no loss falls between.
        if matches!(self.state().phase, Phase::Lost(_)) {
            token.cancel();
        }
        token
    }

    /// Tells whoever listens. To be called after the phase became Lost, and without the state.
    pub(crate) fn announce_lost(&self) {
        let wholes = match &mut *self.lost.lock() {
            Some(listeners) => {
                listeners.token.cancel();
                std::mem::take(&mut listeners.wholes)
            }
            None => return,
        };
        for whole in wholes.iter().filter_map(Weak::upgrade) {
            whole.part_lost();
        }
    }

    /// Has the whole told when this part of it is lost; now, if it is lost already.
    pub(crate) fn tell(&self, whole: Weak<dyn Whole>) {
        let mut lost = self.lost.lock();
        let wholes = &mut lost.get_or_insert_default().wholes;
        wholes.retain(|other| other.strong_count() > 0);
        wholes.push(whole);
        drop(lost);
        // Looked at after it is in the list, so that no loss falls between.
        if matches!(self.state().phase, Phase::Lost(_)) {
            self.announce_lost();
        }
    }

    /// How the hold was lost, told as of `now`; `None` while it is valid.
    pub(crate) fn loss(&self, now: Moment) -> Option<Lost> {
        let reason = {
            let state = self.state();
            match state.phase {
                Phase::Lost(reason) => reason,
                Phase::Ended => LostReason::Released,
                Phase::Pending => return None,
                Phase::Held | Phase::Jeopardy if now < state.deadline => return None,
                Phase::Held | Phase::Jeopardy => state.deadline_reason(),
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
        })
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

/// The right to send a command for one hold; given back when dropped.
pub(crate) struct Command {
    hold: Arc<Hold>,
}

impl Drop for Command {
    fn drop(&mut self) {
        self.hold.command.add_permits(1);
    }
}
