//! The result of one attempt to acquire.

use std::time::Duration;

use super::claim::Claim;
use crate::error::Lost;

/// The result of one attempt.
pub(crate) enum AttemptOutcome {
    Granted(Claim),
    /// Another owner has the lock; its TTL, if it has one.
    Busy(Option<Duration>),
    /// The hold to be re-entered was lost.
    Lost(Lost),
    /// The hold ended while the command was in flight, or its server is no longer the master: the grant
    /// does not count.
    Ended,
    /// Granted, but answered after the grant's own deadline, so it does not count.
    TooLate,
}
