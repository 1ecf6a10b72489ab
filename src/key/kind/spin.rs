//! The spin lock, Redisson's `RSpinLock`.

use super::{Kind, PLAIN};

/// Like the plain lock, but publishes nothing, so its waiters poll.
pub(crate) static SPIN: Kind = Kind {
    name: "spin lock",
    channel: None,
    ..PLAIN
};
