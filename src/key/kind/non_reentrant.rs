//! The non-reentrant lock, Redisson's `RNonReentrantLock`.

use super::{Kind, PLAIN};

/// As the plain lock, but its owner is refused while it holds it.
pub(crate) static NON_REENTRANT: Kind = Kind {
    name: "non-reentrant lock",
    reentrant: false,
    ..PLAIN
};
