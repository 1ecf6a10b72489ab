//! Which settlements wait for each other.

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
