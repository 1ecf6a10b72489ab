//! What a waiter knows of the contender of its client where that one has no answer.

use std::sync::Arc;

use crate::hold::{Hold, TurnSnapshot};

/// What a waiter knows of a contender without an answer.
#[derive(Default)]
pub(super) enum Beside {
    #[default]
    Nothing,
    /// The contender's future was woken, in this turn of its hold.
    Woken(Arc<Hold>, TurnSnapshot),
    /// The waiter has asked the server itself.
    Asked { is_busy: bool },
}

impl Beside {
    /// The server has told the waiter itself that somebody else has the lock.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self, Self::Asked { is_busy: true })
    }
}
