//! What tells one kind of lock from another.
//!
//! Everything above knows kinds by these values only: a new kind is one value more, and no branch.

mod plain;

use std::fmt;
use std::ptr;

pub(crate) use plain::PLAIN;

/// What tells the locks of one kind from those of another. There is one value for each kind, which its
/// [`LockKey`](super::LockKey)s carry, and with them every hold, waiter and job.
pub(crate) struct Kind {
    /// As logs and errors call it.
    pub(crate) name: &'static str,
}

/// Each kind is one value.
impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self, other)
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
