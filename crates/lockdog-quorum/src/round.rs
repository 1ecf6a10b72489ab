//! One parallel attempt on all instances.

use std::time::Duration;

use crate::Moment;
use crate::lease;

use super::Rules;

#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Round {
    /// Counts from 1. An answer of another round is no vote in this one.
    pub(crate) number: u32,
    pub(crate) kind: RoundKind,
    pub(crate) began: Moment,
    /// The lease that it asks for.
    pub(crate) lease: Duration,
    /// Until when its acknowledgements are valid.
    pub(crate) deadline: Moment,
    /// Instances that have not answered by then are not waited for.
    pub(crate) ends: Moment,
    pub(crate) is_over: bool,
    pub(crate) won: bool,
    /// The largest token that was in conflict with this round's token.
    pub(crate) conflict: u64,
}

#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum RoundKind {
    Acquire,
    Mark,
    Extend,
}

impl Round {
    pub(crate) fn first(now: Moment, lease: Duration) -> Self {
        Self {
            number: 1,
            kind: RoundKind::Acquire,
            began: now,
            lease,
            deadline: lease::deadline(now, lease),
            ends: now + Rules::answer_limit(lease),
            is_over: false,
            won: false,
            conflict: 0,
        }
    }

    pub(crate) fn following(&self, kind: RoundKind, now: Moment, lease: Duration) -> Self {
        Self {
            number: self.number + 1,
            kind,
            ..Self::first(now, lease)
        }
    }

    /// A round of extension that is not decided yet.
    pub(crate) fn is_open(&self) -> bool {
        self.kind == RoundKind::Extend && !self.won && !self.is_over
    }
}
