//! One parallel attempt on all instances.

use std::time::Duration;

use crate::clock::Moment;
use crate::lease;

use super::Rules;

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Round {
    /// Counts from 1; what is answered in another round is no vote in this one.
    pub(super) number: u32,
    pub(super) kind: Kind,
    pub(super) began: Moment,
    /// What it asks for.
    pub(super) lease: Duration,
    /// What its acknowledgements are good for.
    pub(super) deadline: Moment,
    /// Whoever has not answered by then is not waited for.
    pub(super) ends: Moment,
    pub(super) is_over: bool,
    pub(super) won: bool,
    /// The largest token that stood in the way of this round's.
    pub(super) conflict: u64,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Kind {
    Acquire,
    Mark,
    Extend,
}

impl Round {
    pub(super) fn first(now: Moment, lease: Duration) -> Self {
        Self {
            number: 1,
            kind: Kind::Acquire,
            began: now,
            lease,
            deadline: lease::deadline(now, lease),
            ends: now + Rules::patience(lease),
            is_over: false,
            won: false,
            conflict: 0,
        }
    }

    pub(super) fn following(&self, kind: Kind, now: Moment, lease: Duration) -> Self {
        Self {
            number: self.number + 1,
            kind,
            ..Self::first(now, lease)
        }
    }

    /// It is an extension without a verdict yet.
    pub(super) fn is_open(&self) -> bool {
        self.kind == Kind::Extend && !self.won && !self.is_over
    }
}
