//! A lock that too few replicas had in time.

use std::fmt;
use std::sync::Arc;

/// An acquire that too few replicas acknowledged in time, see
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

    /// The lock's name; of several that were acquired together, the first one's.
    pub fn lock(&self) -> &str {
        &self.0.lock
    }

    /// How many replicas acknowledged in time, as far as is known.
    pub fn acknowledged(&self) -> u32 {
        self.0.acknowledged
    }

    /// How many it takes; of `All` or `Majority`, by how many replicas the master had, and 1 if that
    /// is not known.
    pub fn required(&self) -> u32 {
        self.0.required
    }

    /// The master has confirmed that the lock was given back. Else the client goes on trying to, in
    /// the background.
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
