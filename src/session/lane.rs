//! Which settlements wait for each other.

use super::Core;
use crate::key::LockKey;
use crate::server::Route;

/// Where a job's next command goes. A silent lane delays its own jobs only.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Lane {
    /// The connection with this number, on which a command without an answer was sent.
    Connection(u64),
    /// The watchdog's connection to the server at this address in memory.
    Server(usize),
    /// No server is known for the key.
    Nowhere,
}

impl Core {
    /// The lane of a command about this key that is sent on no connection yet.
    pub(crate) fn lane(&self, key: &LockKey) -> Lane {
        match self.server.node(key.key()) {
            Ok(node) => Lane::Server(Route::plain(node).address_in_memory()),
            Err(_) => Lane::Nowhere,
        }
    }
}
