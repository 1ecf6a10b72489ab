//! What a quorum is told, and what it says is to be done.

use std::time::Duration;

use smallvec::SmallVec;

use crate::error::LostReason;

/// What happened.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Event {
    /// An instance answered what it was asked in this round, or cannot.
    Answered {
        member: usize,
        round: u32,
        answer: Answer,
    },
    /// Time passed.
    Tick,
    /// Somebody asks whether it may be believed in: ends what its deadline has overtaken, and begins
    /// nothing.
    Look,
    /// It is gone for a reason of the driver's.
    Lose(LostReason),
    /// A further claim needs it for this lease once, or renewed with it from now on.
    Lengthen { lease: Duration, renewed: bool },
    /// Its owner gives it back.
    Unlock,
}

/// What an instance answered.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Answer {
    /// To `Take`: it is ours there.
    Taken(Option<Register>),
    /// To `Take`: somebody else has it, for so long if its key expires.
    Busy(Option<Duration>, Option<Register>),
    /// To `Take`: the instance may have lost what it acknowledged, and does not count for so long.
    Quarantined(Duration),
    /// To `Extend`: it is ours for a lease more.
    Extended,
    /// To `Mark`: the token stands there.
    Marked,
    /// To `Mark`: a larger token stands there.
    Conflict(u64),
    /// To `Extend` and `Mark`: it is not ours there.
    NotOurs,
    /// To anything: no answer, whatever became of it there.
    Failed,
}

/// A look at the fencing register of one instance.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Register {
    pub(crate) value: Option<u64>,
    /// The instance's wall clock.
    pub(crate) time: u64,
    /// It lost its data once, and what it says may be too little since.
    pub(crate) reborn: bool,
}

impl Register {
    pub(super) fn is_trusted(&self) -> bool {
        !self.reborn
    }
}

/// What is to be done. Whatever it is, its answer comes as an [`Event`] of the round, `Release` apart.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Action {
    /// Acquire the instance's lock, in the name of an acquisition that never was before.
    Take { member: usize, round: u32 },
    /// Set its TTL to the lease if it is still ours.
    Extend { member: usize, round: u32 },
    /// Raise the fencing register to the token, and the TTL to the lease, if it is still ours.
    Mark {
        member: usize,
        round: u32,
        token: u64,
    },
    /// Give back what stands there, or what a `Take` under way may yet do there.
    Release { member: usize },
}

pub(crate) type Actions = SmallVec<[Action; 8]>;
