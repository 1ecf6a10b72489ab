//! What the client has to report about the loss of a hold.

use crate::error::LostReason;

/// What the client has to report about a loss. It is recorded at the moment of the loss: the guards are
/// notified before the report, and the hold may have ended with its last guard by then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnreportedLoss {
    pub(crate) reason: LostReason,
    /// All of its claims belonged to composite locks, which report their losses themselves.
    pub(crate) is_part: bool,
    /// Its guards were forgotten, and its fixed lease has ended. Code ported from Redisson acquires a lock for
    /// a fixed time in this way and never unlocks it, so the observers are notified of no loss.
    pub(crate) is_expiry: bool,
    /// The observers were not notified of the end of the hold yet.
    pub(crate) owes_end: bool,
}
