//! The state of a held lock.

use crate::error::LostReason;

/// The state of a held lock, from [`Guard::verdict`](super::Guard::verdict). A later version may have more
/// variants: treat one that you do not know as [`Verdict::Lost`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Verdict {
    /// It is held, and the last renewal succeeded, if there was any.
    Held,
    /// It is held, but the last renewal failed; for a [`RedLock`](crate::RedLock), it did not reach a
    /// quorum. The client retries soon. The lock is lost at its deadline unless a retry succeeds first.
    Jeopardy,
    /// It is lost, with the reason. This state is final.
    Lost(LostReason),
}

impl Verdict {
    /// The verdict of a lock that is not lost.
    pub(crate) fn of(is_in_jeopardy: bool) -> Self {
        if is_in_jeopardy {
            Self::Jeopardy
        } else {
            Self::Held
        }
    }
}
