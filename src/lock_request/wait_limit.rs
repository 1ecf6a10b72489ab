//! How long an acquire may take.

use std::time::Duration;

use crate::clock::Moment;

/// How long a call may wait for a lock.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitLimit {
    ForEver,
    AtMost(Duration),
    Not,
}

impl WaitLimit {
    /// The limit of a `try` request with this wait.
    pub(crate) fn of_try(wait: Option<Duration>) -> Self {
        match wait {
            None | Some(Duration::ZERO) => Self::Not,
            Some(wait) => Self::AtMost(wait),
        }
    }

    /// When a call that began then has to end. A single attempt has the time of one command.
    pub(crate) fn deadline(self, began: Moment, command_timeout: Duration) -> Option<Moment> {
        match self {
            Self::ForEver => None,
            Self::AtMost(wait) => Some(began + wait),
            Self::Not => Some(began + command_timeout),
        }
    }
}
