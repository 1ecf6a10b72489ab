//! Which waiters of a queue ask at the same time: usually one, and of a read/write lock a run of readers.

use std::time::Duration;

use crate::key::{LockKey, Mode};

/// Which waiters of a queue ask at the same time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum WaiterKind {
    /// The contender alone.
    Sole,
    /// The contender alone, and no reader behind it.
    Writer,
    /// As `Sole`, for this many permits without leases, which can be handed to it. No permits are handed past
    /// it to a later waiter.
    Permits(u32),
    /// With the contender, if that is a reader, and all readers before the next writer.
    Reader {
        /// After this time it no longer waits for a writer that came before it.
        patience: Duration,
    },
}

impl WaiterKind {
    /// For a waiter of this lock. `patience` is how long a reader waits for writers of its client.
    pub(crate) fn of(key: &LockKey, patience: Duration) -> Self {
        match key.mode() {
            None => Self::Sole,
            Some(Mode::Read) => Self::Reader { patience },
            Some(Mode::Write) => Self::Writer,
        }
    }
}
