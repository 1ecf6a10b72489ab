//! The arguments of a hand-over, and its result.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::key::{QueueTimeouts, Script};

/// What a hand-over ends and begins. Both holds are named by their fields and have the same kind.
pub(crate) struct HandOver<'a> {
    pub(crate) script: &'static Script,
    pub(crate) ends: &'a str,
    pub(crate) begins: &'a str,
    /// Of the hold that begins.
    pub(crate) lease: Duration,
    pub(crate) queue_timeouts: QueueTimeouts,
    /// The waiting list of the lock, if the script may use it.
    pub(crate) list: Option<&'a str>,
    /// For permits without leases: how many.
    pub(crate) permits: u32,
    /// A sending of the acquire of the hold that ends may still run.
    pub(crate) in_doubt: bool,
}

/// The result of a transfer.
#[derive(Debug)]
pub(crate) enum TransferReply {
    /// The next hold has the lock.
    Handed {
        /// Whether the command ended the first hold. If not, an earlier sending ended it, or it was lost and a
        /// query granted the lock to the next hold.
        ended_first: bool,
        /// The number of subscribers of its channel, if known.
        listening: Option<u32>,
        /// The next hold's fencing token, if its kind issues tokens.
        token: Option<NonZeroU64>,
    },
    /// The first hold ended, but the next one could not begin.
    Freed,
    /// Nothing was done, and the first hold has to be released.
    Declined,
    /// Neither hold exists.
    Missing,
}
