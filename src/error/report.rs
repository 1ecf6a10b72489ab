//! The state of each part of a multi lock or quorum.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::Error;

/// One part of a lock: an instance of a [`RedLock`](crate::RedLock), or a member of a
/// [`MultiLock`](crate::MultiLock). It is a lock on a server, with its state.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Instance {
    /// The lock's name.
    pub lock: String,
    /// The address of its server: `host:port`, the path of a socket, the name of the master that the
    /// sentinels monitor, or the nodes of a cluster. It never contains a password.
    pub server: String,
    /// Its state as a part of the whole lock.
    pub state: InstanceState,
    /// The fencing token of a [`MultiLock`](crate::MultiLock)'s member that issues tokens
    /// ([`Client::fenced_lock`](crate::Client::fenced_lock)); `None` for every other part.
    pub token: Option<u64>,
}

/// The state of one part of a multi lock or quorum.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum InstanceState {
    /// It is held, and counts.
    Acquired,
    /// It came back without its data, so it may not have the lock's latest fencing token, and too few
    /// other instances have that token. The client releases what this instance granted. The instance
    /// counts again after the client has written a token there.
    Forgetful,
    /// It was held until the multi lock or quorum ended. The client releases it.
    GivenBack,
    /// Another owner has it.
    #[non_exhaustive]
    HeldByAnother {
        /// The remaining TTL of the other owner's lock; `None` if the key has no TTL.
        ttl: Option<Duration>,
    },
    /// It did not answer in time. The client releases what it granted or still grants.
    Late,
    /// It was held, and the key was gone before the client released it.
    Lost,
    /// The outcome was known before it answered. Its answer may still arrive, and then counts.
    Unanswered,
    /// It may have come back without its data, so it does not count yet.
    #[non_exhaustive]
    Quarantined {
        /// The time until it counts.
        left: Duration,
    },
    /// The client could not ask it, or it did not answer, or it refused.
    #[non_exhaustive]
    Unreachable {
        /// Why.
        cause: Error,
    },
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} on {}: {}", self.lock, self.server, self.state)
    }
}

impl fmt::Display for InstanceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acquired => f.write_str("acquired"),
            Self::Forgetful => f.write_str("may have forgotten the latest token"),
            Self::GivenBack => f.write_str("given back"),
            Self::HeldByAnother { ttl: Some(ttl) } => {
                write!(f, "held by another, ttl={}ms", ttl.as_millis())
            }
            Self::HeldByAnother { ttl: None } => f.write_str("held by another, without a TTL"),
            Self::Late => f.write_str("late"),
            Self::Lost => f.write_str("lost"),
            Self::Unanswered => f.write_str("no answer yet"),
            Self::Quarantined { left } => write!(f, "quarantined, left={}ms", left.as_millis()),
            Self::Unreachable { cause } => write!(f, "unreachable, {cause}"),
        }
    }
}

impl InstanceState {
    /// The text for the log. It contains no lock name, which the error of an instance may contain.
    pub(crate) fn unnamed(&self) -> String {
        match self {
            Self::Unreachable { cause } => format!("unreachable, {}", cause.unnamed()),
            state => state.to_string(),
        }
    }
}

/// Too few instances of a quorum granted the lock, from [`Error::NoQuorum`].
#[derive(Clone, Debug)]
pub struct NoQuorum(Arc<Facts>);

#[derive(Debug)]
struct Facts {
    instances: Vec<Instance>,
    need: u32,
}

impl NoQuorum {
    pub(crate) fn new(instances: Vec<Instance>, need: usize) -> Self {
        // A quorum has a handful of instances.
        let need = u32::try_from(need).unwrap_or(u32::MAX);
        Self(Arc::new(Facts { instances, need }))
    }

    /// The state of each instance, in the order in which the caller gave them.
    pub fn instances(&self) -> &[Instance] {
        &self.0.instances
    }

    /// The number of instances that a quorum needs.
    pub fn need(&self) -> u32 {
        self.0.need
    }
}

impl fmt::Display for NoQuorum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Facts { instances, need } = &*self.0;
        let acquired = instances.iter().filter(|instance| instance.counts());
        write!(f, "no quorum: acquired={} need={need}", acquired.count())?;
        for instance in instances {
            write!(f, "; {instance}")?;
        }
        Ok(())
    }
}

impl std::error::Error for NoQuorum {}

impl Instance {
    fn counts(&self) -> bool {
        matches!(self.state, InstanceState::Acquired)
    }

    /// Why it did not answer, with its lock and server; `None` if it answered.
    pub(super) fn failure(&self) -> Option<Error> {
        let InstanceState::Unreachable { cause } = &self.state else {
            return None;
        };
        Some(
            cause
                .clone()
                .of_part(&format!("{:?}", self.lock), &self.server),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_reports_the_state_of_each_instance() {
        let instance = |lock: &str, state| Instance {
            lock: lock.to_owned(),
            server: "localhost:6379".to_owned(),
            state,
            token: None,
        };
        let second = Duration::from_secs(1);
        let cause = Error::timeout(second);
        let no_quorum = NoQuorum::new(
            vec![
                instance("a", InstanceState::Acquired),
                instance("b", InstanceState::HeldByAnother { ttl: Some(second) }),
                instance("c", InstanceState::HeldByAnother { ttl: None }),
                instance("d", InstanceState::Unreachable { cause }),
                instance("e", InstanceState::Quarantined { left: second }),
                instance("f", InstanceState::Late),
                instance("g", InstanceState::Unanswered),
                instance("h", InstanceState::Lost),
                instance("i", InstanceState::Forgetful),
                instance("j", InstanceState::GivenBack),
            ],
            5,
        );
        assert_eq!((no_quorum.need(), no_quorum.instances().len()), (5, 10));
        let error = Error::from(no_quorum);
        assert!(error.is_retriable() && error.may_be_held() && !error.is_timeout());
        assert_eq!(
            error.to_string(),
            "no quorum: acquired=1 need=5; \
             \"a\" on localhost:6379: acquired; \
             \"b\" on localhost:6379: held by another, ttl=1000ms; \
             \"c\" on localhost:6379: held by another, without a TTL; \
             \"d\" on localhost:6379: unreachable, no answer from the server in time, \
             waited=1000ms; \
             \"e\" on localhost:6379: quarantined, left=1000ms; \
             \"f\" on localhost:6379: late; \
             \"g\" on localhost:6379: no answer yet; \
             \"h\" on localhost:6379: lost; \
             \"i\" on localhost:6379: may have forgotten the latest token; \
             \"j\" on localhost:6379: given back"
        );
    }
}
