//! What a server's data may lack. It goes with a slot to the slot's next owner (design: invariant 15).

use crate::clock::Moment;

/// Since when data may be incomplete.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct DataLoss {
    /// When this client saw that it may be; `None` if it never did.
    pub(crate) seen: Option<Moment>,
    /// When that was by the server's clock, in milliseconds; 0 if it never was.
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
