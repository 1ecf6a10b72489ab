//! What a waiter has done about a contender of its client that has no answer.

use std::sync::Arc;

use crate::hold::{Hold, TurnSnapshot};

/// What a waiter has done about a contender that has no answer.
#[derive(Default)]
pub(super) enum Beside {
    #[default]
    Nothing,
    /// The waiter woke the contender's future, in this turn of its hold.
    Woken(Arc<Hold>, TurnSnapshot),
    /// The waiter asked the server itself.
    Asked { is_busy: bool },
}

impl Beside {
    /// The server answered this waiter that another holder has the lock.
    pub(super) fn is_busy(&self) -> bool {
        matches!(self, Self::Asked { is_busy: true })
    }
}
