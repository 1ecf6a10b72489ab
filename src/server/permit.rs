//! Whether a command may leave still.

use std::sync::Arc;

use super::Connection;

/// Whoever gives out the right to send commands, to one sender at a time.
pub(crate) trait Permits: Send + Sync {
    /// A command leaves on this connection with the right of this number. False if somebody else has
    /// the right by now: then it may not leave.
    fn leaves(&self, number: u64, on: &Connection) -> bool;
}

/// One right to send commands, asked for before each sending.
#[derive(Clone)]
pub(crate) struct Permit {
    from: Arc<dyn Permits>,
    number: u64,
}

impl Permit {
    pub(crate) fn new(from: Arc<dyn Permits>, number: u64) -> Self {
        Self { from, number }
    }

    pub(super) fn leaves(&self, on: &Connection) -> bool {
        self.from.leaves(self.number, on)
    }
}
