//! How a held lock stands.

use crate::error::LostReason;

/// How a held lock stands, from [`Guard::verdict`](super::Guard::verdict).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Verdict {
    /// It is held, and the last renewal succeeded, if there was any.
    Held,
    /// It is held, but the last renewal failed: of a [`RedLock`](crate::RedLock), it reached no quorum.
    /// Another follows soon; the lock is lost at its deadline unless one succeeds before.
    Jeopardy,
    /// It is lost, and why. That stays so.
    Lost(LostReason),
}

impl Verdict {
    /// Of a lock that is not lost.
    pub(crate) fn of(is_in_jeopardy: bool) -> Self {
        if is_in_jeopardy {
            Self::Jeopardy
        } else {
            Self::Held
        }
    }
}
