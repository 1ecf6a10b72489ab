//! The plain lock, Redisson's `RLock`.

use super::Kind;

pub(crate) static PLAIN: Kind = Kind { name: "lock" };
