//! What tells one kind of lock from another.
//!
//! Everything above knows kinds by these values only: a new kind is one value more, and no branch.

mod non_reentrant;
mod plain;
mod script;
mod spin;

use std::fmt;
use std::ptr;

pub(crate) use non_reentrant::NON_REENTRANT;
pub(crate) use plain::PLAIN;
use script::LazyScript;
pub(crate) use script::Script;
pub(crate) use spin::SPIN;

/// Every kind.
pub(super) static ALL: [&Kind; 3] = [&PLAIN, &SPIN, &NON_REENTRANT];

/// What tells the locks of one kind from those of another. There is one value for each kind, which its
/// [`LockKey`](super::LockKey)s carry, and with them every hold, waiter and job.
pub(crate) struct Kind {
    /// As logs and errors call it.
    pub(crate) name: &'static str,
    pub(crate) scripts: Scripts,
    /// What stands before the key in the name of the channel on which a release is published. `None`:
    /// nothing is published, and waiters ask again and again.
    pub(crate) channel: Option<&'static str>,
    /// An owner may acquire once more what it holds.
    pub(crate) reentrant: bool,
}

/// The transitions of a lock. What each takes and answers stands in the plain lock's files.
#[derive(Clone, Copy)]
pub(crate) struct Scripts {
    pub(crate) acquire: &'static LazyScript,
    /// All of several locks, or none. Kinds with the same script can be in one command.
    pub(crate) acquire_all: &'static LazyScript,
    /// As a member of a quorum with a quarantine or fencing.
    pub(crate) acquire_member: &'static LazyScript,
    pub(crate) unlock: &'static LazyScript,
    pub(crate) settle: &'static LazyScript,
    pub(crate) touch: &'static LazyScript,
    /// Of many holds. Kinds with the same script can be in one command.
    pub(crate) renew: &'static LazyScript,
    /// `None`: locks of this kind are not handed from owner to owner, but set free.
    pub(crate) transfer: Option<&'static LazyScript>,
    pub(crate) force_unlock: &'static LazyScript,
}

/// Differs from the plain lock in all that tests look at.
#[cfg(test)]
pub(crate) static OTHER: Kind = Kind {
    name: "other",
    scripts: Scripts {
        // It is never sent.
        renew: PLAIN.scripts.touch,
        ..PLAIN.scripts
    },
    ..PLAIN
};

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
