//! Which party may send a command for a hold.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::Waker;

use tokio::sync::Notify;

use crate::server::Connection;

/// The present turn of one hold: one at a time (design: invariant 3).
#[derive(Default)]
pub(super) struct Turn {
    /// The number of turns so far. It distinguishes the current turn from those that were taken over.
    pub(super) number: u64,
    pub(super) holder: TurnHolder,
    /// The server of the deployment that was asked last.
    pub(super) server: Option<Arc<str>>,
    /// Created by the first party that waits for the turn, because most holds have none.
    pub(super) waiters: Option<Arc<TurnWaiters>>,
}

/// What the parties share that wait for the turn of a hold.
#[derive(Default)]
pub(super) struct TurnWaiters {
    /// Notified when a turn ends.
    pub(super) ended: Notify,
    /// A party found the turn taken, and none of those that waited has had it since. Used while the turn is locked.
    pub(super) is_awaited: AtomicBool,
}

#[derive(Default)]
pub(super) enum TurnHolder {
    #[default]
    Free,
    /// The future of a caller has the turn. Boxed, because most holds have no turn most of the time,
    /// and a client may have 100,000 holds.
    Caller(Box<TurnCaller>),
    /// The client's background thread has the turn. It never freezes.
    Background,
}

#[derive(Default)]
pub(super) struct TurnCaller {
    /// The connection of a command without an answer.
    pub(super) on: Option<Connection>,
    /// Wakes the future that waits for the answer.
    pub(super) waker: Option<Waker>,
    /// How often the future was polled.
    pub(super) polls: u32,
    /// The snapshot when [`Hold::was_not_polled`](super::Hold::was_not_polled) last requested a poll.
    pub(super) asked: Option<TurnSnapshot>,
}

/// A caller's turn at the moment when a party requested a poll. Several parties may do that at the same
/// time, so each compares the turn with its own snapshot.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) struct TurnSnapshot {
    pub(super) number: u64,
    pub(super) polls: u32,
}

impl Turn {
    /// A snapshot of the turn; `None` if no caller has it.
    pub(super) fn seen(&self) -> Option<TurnSnapshot> {
        let (number, polls) = (self.number, self.caller()?.polls);
        Some(TurnSnapshot { number, polls })
    }

    pub(super) fn caller(&self) -> Option<&TurnCaller> {
        match &self.holder {
            TurnHolder::Caller(caller) => Some(caller),
            TurnHolder::Free | TurnHolder::Background => None,
        }
    }

    pub(super) fn caller_mut(&mut self) -> Option<&mut TurnCaller> {
        match &mut self.holder {
            TurnHolder::Caller(caller) => Some(caller),
            TurnHolder::Free | TurnHolder::Background => None,
        }
    }
}
