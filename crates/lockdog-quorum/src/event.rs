//! The events and actions of the core.

use std::ops::Deref;
use std::time::Duration;

use smallvec::SmallVec;

/// An event for the core.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Event {
    /// An instance answered the query of this round, or cannot answer it.
    Answered {
        /// The instance, counted from 0.
        member: usize,
        /// The round of the action that this answers.
        round: u32,
        /// The answer.
        answer: Answer,
    },
    /// Time passed.
    Tick,
    /// A caller asks whether the lock may be used. Ends it if its deadline has passed, and begins
    /// nothing.
    Look,
    /// The driver ends it, for a reason of its own.
    Lose,
    /// A further claim needs it for this lease: once, or renewed from now on.
    Lengthen {
        /// The lease, from now on.
        lease: Duration,
        /// Whether each later round of extension asks for that lease, too.
        renewed: bool,
    },
    /// Its owner releases it.
    Unlock,
}

/// The answer of an instance.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Answer {
    /// To `Take`: the lock is ours on this instance.
    Taken(Option<Register>),
    /// To `Take`: another owner holds it, with this TTL if its key expires.
    Busy(Option<Duration>, Option<Register>),
    /// To `Take`: the instance may have lost acknowledged locks, and does not count for this long.
    Quarantined(Duration),
    /// To `Extend`: the lease was extended.
    Extended,
    /// To `Mark`: the token was written.
    Marked,
    /// To `Mark`: the register has this larger token.
    Conflict(u64),
    /// To `Extend` and `Mark`: the lock is not ours on this instance.
    NotOurs,
    /// To any query: no answer. It is unknown whether the query was executed.
    Failed,
}

/// A reading of the fencing register of one instance.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Register {
    /// The largest token that the register has, if any.
    pub value: Option<u64>,
    /// The instance's wall clock, in the unit of the tokens.
    pub time: u64,
    /// The instance lost its data once, so the register may be too small.
    pub reborn: bool,
}

impl Register {
    pub(crate) fn is_trusted(&self) -> bool {
        !self.reborn
    }
}

/// An action to execute. Each action except `Release` is answered by an [`Event::Answered`] of its
/// round.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Action {
    /// Acquire the instance's lock, under a name that was never used before.
    Take {
        /// The instance.
        member: usize,
        /// The round to name in the answer.
        round: u32,
    },
    /// Set the TTL to the lease if the lock is still ours.
    Extend {
        /// The instance.
        member: usize,
        /// The round to name in the answer.
        round: u32,
    },
    /// Raise the fencing register to the token, and the TTL to the lease, if the lock is still ours.
    Mark {
        /// The instance.
        member: usize,
        /// The round to name in the answer.
        round: u32,
        /// The token that the register is raised to.
        token: u64,
    },
    /// Release the lock on this instance, including what a pending `Take` may still do there.
    Release {
        /// The instance.
        member: usize,
    },
}

/// Actions to execute, in this order.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Actions(SmallVec<[Action; 8]>);

impl Actions {
    /// No actions.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn push(&mut self, action: Action) {
        self.0.push(action);
    }

    /// Appends the other actions to these.
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
