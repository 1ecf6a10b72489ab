//! Which settlements wait for each other.

/// Where a job's next command goes. What is silent there keeps only jobs of its own waiting.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Lane {
    /// The connection with this number, on which a command was sent that nobody saw the answer to.
    Connection(u64),
    /// The watchdog's connection to the server at this address in memory.
    Server(usize),
    /// No server is known that has the key.
    Nowhere,
}
