//! The non-reentrant lock, Redisson's `RNonReentrantLock`.

use super::{Kind, PLAIN};

/// Like the plain lock, but refuses an owner that already holds it.
pub(crate) static NON_REENTRANT: Kind = Kind {
    name: "non-reentrant lock",
    reentrant: false,
    ..PLAIN
};
