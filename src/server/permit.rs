//! Permits: whether a command may still be sent.

use std::sync::Arc;

use super::Connection;

/// Gives the right to send commands to one sender at a time.
pub(crate) trait Permits: Send + Sync {
    /// A sender with permit `number` is about to send a command on this connection. False if
    /// another sender has taken over the right: then the command must not be sent.
    fn leaves(&self, number: u64, on: &Connection) -> bool;
}

/// A permit to send commands. It is checked before each sending.
#[derive(Clone)]
pub(crate) struct SendingPermit {
    from: Arc<dyn Permits>,
    number: u64,
}

impl SendingPermit {
    pub(crate) fn new(from: Arc<dyn Permits>, number: u64) -> Self {
        Self { from, number }
    }

    pub(super) fn leaves(&self, on: &Connection) -> bool {
        self.from.leaves(self.number, on)
    }
}
