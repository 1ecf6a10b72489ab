//! Since when a server's data may be incomplete. The record moves with a slot to the slot's next
//! owner (design: invariant 15).

use crate::clock::Moment;

/// Since when data may be incomplete.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct DataLoss {
    /// When this client noticed it; `None` if never.
    pub(crate) seen: Option<Moment>,
    /// The same moment by the server's clock, in milliseconds; 0 if never.
    pub(crate) since: u64,
}

impl DataLoss {
    /// The later one of each.
    pub(super) fn max(self, other: Self) -> Self {
        Self {
            seen: self.seen.max(other.seen),
            since: self.since.max(other.since),
        }
    }
}
