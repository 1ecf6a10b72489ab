//! What a client knows about the permits that a semaphore's ledger has for one hold.

use super::{ClaimFlags, HoldState};
use crate::clock::Moment;

/// What the command of a release says about the ledger, in addition to the number of permits that the hold
/// keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LedgerView {
    /// How many permits the hold has for certain. 0: unknown.
    pub(crate) known: u32,
    /// A sending of the acquire may still run: the ledger has to remember the end of the hold.
    pub(crate) in_doubt: bool,
    /// When they were acquired. For a server that may have lost data since then, the known number does not
    /// count.
    pub(crate) acquired: Moment,
}

impl LedgerView {
    /// For a hold of which the client knows nothing.
    pub(crate) const UNKNOWN: Self = Self {
        known: 0,
        in_doubt: false,
        acquired: Moment(0),
    };
}

impl HoldState {
    /// What the acquire that was just granted adds to the counts.
    pub(crate) fn flags_of_acquire(&self, watched: bool) -> ClaimFlags {
        ClaimFlags {
            watched,
            local: false,
            part: false,
            weight: self.weight,
        }
    }

    /// What a release that is sent now says. From now on the number is unknown, until the answer comes.
    pub(crate) fn ledger_view(&mut self) -> LedgerView {
        let known = std::mem::take(&mut self.known);
        LedgerView {
            known: if self.certain { known } else { 0 },
            in_doubt: !self.certain,
            acquired: self.acquired,
        }
    }
}
