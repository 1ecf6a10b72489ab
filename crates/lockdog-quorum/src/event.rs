//! What goes into the core, and what it wants done.

use std::ops::Deref;
use std::time::Duration;

use smallvec::SmallVec;

/// What happened.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Event {
    /// An instance answered what it was asked in this round, or cannot.
    Answered {
        /// Which instance, counted from 0.
        member: usize,
        /// The round of the action that this answers.
        round: u32,
        /// What it said.
        answer: Answer,
    },
    /// Time passed.
    Tick,
    /// Somebody asks whether it may be believed in: ends what its deadline has overtaken, and begins
    /// nothing.
    Look,
    /// It is gone for a reason of the driver's.
    Lose,
    /// A further claim needs it for this lease once, or renewed with it from now on.
    Lengthen {
        /// For so long from now on.
        lease: Duration,
        /// Each later round of extension asks for that lease, too.
        renewed: bool,
    },
    /// Its owner gives it back.
    Unlock,
}

/// What an instance answered.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Answer {
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
pub struct Register {
    /// The largest token that it knows; none if it knows none.
    pub value: Option<u64>,
    /// The instance's wall clock, in the unit of the tokens.
    pub time: u64,
    /// It lost its data once, and what it says may be too little since.
    pub reborn: bool,
}

impl Register {
    pub(crate) fn is_trusted(&self) -> bool {
        !self.reborn
    }
}

/// What is to be done. Whatever it is, its answer comes as an [`Event`] of the round, `Release` apart.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Action {
    /// Acquire the instance's lock, in the name of an acquisition that never was before.
    Take {
        /// The instance.
        member: usize,
        /// To be named in the answer.
        round: u32,
    },
    /// Set its TTL to the lease if it is still ours.
    Extend {
        /// The instance.
        member: usize,
        /// To be named in the answer.
        round: u32,
    },
    /// Raise the fencing register to the token, and the TTL to the lease, if it is still ours.
    Mark {
        /// The instance.
        member: usize,
        /// To be named in the answer.
        round: u32,
        /// What the register is raised to.
        token: u64,
    },
    /// Give back what stands there, or what a `Take` under way may yet do there.
    Release {
        /// The instance.
        member: usize,
    },
}

/// What is to be done, in this order.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Actions(SmallVec<[Action; 8]>);

impl Actions {
    /// Nothing.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn push(&mut self, action: Action) {
        self.0.push(action);
    }

    /// First these, then the others.
    pub fn append(&mut self, others: &Self) {
        self.0.extend_from_slice(others);
    }
}

impl Deref for Actions {
    type Target = [Action];

    fn deref(&self) -> &[Action] {
        &self.0
    }
}
