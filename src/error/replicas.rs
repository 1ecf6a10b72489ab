//! The error about an acquire that too few replicas acknowledged.

use std::fmt;
use std::sync::Arc;

/// An acquire that too few replicas acknowledged in time, from
/// [`Error::NotReplicated`](super::Error::NotReplicated). See
/// [`ReplicaAck::Require`](crate::config::ReplicaAck::Require).
#[derive(Clone, Debug)]
pub struct NotReplicated(Arc<Facts>);

#[derive(Debug)]
struct Facts {
    lock: String,
    acknowledged: u32,
    required: u32,
    cause: Option<String>,
    undone: bool,
}

impl NotReplicated {
    pub(crate) fn new(
        lock: &str,
        [acknowledged, required]: [u32; 2],
        cause: Option<String>,
        undone: bool,
    ) -> Self {
        Self(Arc::new(Facts {
            lock: lock.to_owned(),
            acknowledged,
            required,
            cause,
            undone,
        }))
    }

    /// The lock's name. If one command acquired several locks, the name of the first one.
    pub fn lock(&self) -> &str {
        &self.0.lock
    }

    /// The number of replicas that acknowledged in time, as far as the client knows.
    pub fn acknowledged(&self) -> u32 {
        self.0.acknowledged
    }

    /// The number of replicas that had to acknowledge. For `All` and `Majority` the client computes it
    /// from the number of the master's replicas, and uses 1 if it does not know that number.
    pub fn required(&self) -> u32 {
        self.0.required
    }

    /// Whether the master confirmed the release of the lock. If it is false, the client retries the
    /// release in the background.
    pub fn is_undone(&self) -> bool {
        self.0.undone
    }
}

impl fmt::Display for NotReplicated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = &*self.0;
        write!(
            f,
            "too few replicas acknowledged the lock in time, acknowledged={} required={} lock={:?}",
            facts.acknowledged, facts.required, facts.lock
        )?;
        match &facts.cause {
            Some(cause) => write!(f, "; {cause}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for NotReplicated {}
