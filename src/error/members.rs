//! Why locks cannot be made into one lock.

use super::Error;

impl Error {
    /// The error of a multi lock or quorum that was built from no locks.
    pub(crate) fn no_locks() -> Self {
        Self::invalid("locks", "no locks were given".to_owned())
    }

    /// The error of a multi lock or quorum that was built from the same lock twice.
    pub(crate) fn same_lock(name: &str) -> Self {
        let why = format!("one lock of one client is given twice, lock={name:?}");
        Self::invalid("locks", why)
    }

    /// The error of a quorum that was built from a lock that is not reentrant.
    pub(crate) fn not_reentrant(name: &str) -> Self {
        let why = format!(
            "a RedLock needs reentrant locks, and this one is not reentrant, lock={name:?}"
        );
        Self::invalid("locks", why)
    }

    /// The error of a quorum that was built from a lock that issues fencing tokens itself.
    pub(crate) fn own_tokens(name: &str) -> Self {
        let why = format!(
            "a RedLock needs plain locks and issues tokens itself (RedLock::fenced): the tokens of one \
             fenced lock do not order the holders of a quorum, lock={name:?}"
        );
        Self::invalid("locks", why)
    }

    /// The error of a quorum that was built from a fair lock.
    pub(crate) fn has_server_queue(name: &str) -> Self {
        let why = format!(
            "a RedLock cannot have a fair lock: each server has a queue of its own, so a quorum has no order \
             of waiters, lock={name:?}"
        );
        Self::invalid("locks", why)
    }

    /// The error of a quorum that was built from a read or write lock.
    pub(crate) fn has_mode(name: &str) -> Self {
        let why = format!(
            "a RedLock needs plain locks: its quarantine and its fencing tokens are for one holder at a time, \
             and a read/write lock has several, lock={name:?}"
        );
        Self::invalid("locks", why)
    }

    /// The error of a quorum that was built from locks of values of a group.
    pub(crate) fn has_values(name: &str) -> Self {
        let why = format!(
            "a RedLock needs plain locks: its quarantine and its fencing tokens are for a whole key, and a \
             group lock is for some values of it, lock={name:?}"
        );
        Self::invalid("locks", why)
    }

    /// Adds the position of the invalid lock in the list. `place` counts from 0, the text from 1.
    pub(crate) fn in_lock(self, place: usize) -> Self {
        match self {
            Self::Invalid { what, why } => Self::Invalid {
                what,
                why: format!("{why}, place={}", place + 1),
            },
            other => other,
        }
    }
}
