//! Whose turn it is to send a command for a hold.

use std::sync::Arc;
use std::task::Waker;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::server::Connection;

/// The turns of one hold, one at a time (design: invariant 3).
#[derive(Default)]
pub(super) struct Turns {
    pub(super) turn: Mutex<Turn>,
    pub(super) freed: Notify,
}

#[derive(Default)]
pub(super) struct Turn {
    /// How many there were: tells the present one from those that were taken over.
    pub(super) number: u64,
    pub(super) bearer: TurnHolder,
    /// Which of a deployment's servers was asked last.
    pub(super) server: Option<Arc<str>>,
}

#[derive(Default)]
pub(super) enum TurnHolder {
    #[default]
    Nobody,
    /// It is driven by somebody else than this client. In a box, because nobody has the turn of most holds
    /// for most of their time, and a client may have 100,000.
    Caller(Box<TurnCaller>),
    /// The client's own thread, which never stands still.
    Background,
}

#[derive(Default)]
pub(super) struct TurnCaller {
    /// Where a command without an answer was sent.
    pub(super) on: Option<Connection>,
    /// Wakes the future that waits for the answer.
    pub(super) waker: Option<Waker>,
    /// How often the future was polled.
    pub(super) polls: u32,
    /// What was seen of it when [`Hold::was_not_polled`](super::Hold::was_not_polled) last asked for a sign of life.
    pub(super) asked: Option<TurnSnapshot>,
}

/// A caller's turn as it was when somebody asked for a sign of life. Others may ask at the same time, so
/// each compares with what it saw.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) struct TurnSnapshot {
    pub(super) number: u64,
    pub(super) polls: u32,
}

impl Turn {
    /// What is to be seen of it now; `None` if it is no caller's.
    pub(super) fn seen(&self) -> Option<TurnSnapshot> {
        let (number, polls) = (self.number, self.caller()?.polls);
        Some(TurnSnapshot { number, polls })
    }

    pub(super) fn caller(&self) -> Option<&TurnCaller> {
        match &self.bearer {
            TurnHolder::Caller(caller) => Some(caller),
            TurnHolder::Nobody | TurnHolder::Background => None,
        }
    }

    pub(super) fn caller_mut(&mut self) -> Option<&mut TurnCaller> {
        match &mut self.bearer {
            TurnHolder::Caller(caller) => Some(caller),
            TurnHolder::Nobody | TurnHolder::Background => None,
        }
    }
}
