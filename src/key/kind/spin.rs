//! The spin lock, Redisson's `RSpinLock`.

use super::{Kind, PLAIN};

/// As the plain lock, but nothing is published, so that its waiters poll.
pub(crate) static SPIN: Kind = Kind {
    name: "spin lock",
    channel: None,
    ..PLAIN
};
