//! The setting: which replicas must have a lock before it counts as acquired.

use std::time::Duration;

use crate::error::Error;

/// Which replicas must acknowledge a lock before it counts as acquired.
///
/// After a failover, a replica that did not have the lock may be the master, and another owner can
/// acquire the lock. A first acquire can wait for the replicas (`WAIT`), which costs about one more round
/// trip. A re-entry, a renewal and an unlock never wait. The wait is a part of the caller's deadline and
/// of the lease.
///
/// The wait makes the loss of a lock in a failover less likely. It does not exclude it: a replica that
/// did not acknowledge may be promoted, and a replica that acknowledged may lose its data in a restart.
/// It is no consensus. To tolerate such losses, use a [`RedLock`](crate::RedLock) on independent servers,
/// or compare fencing tokens.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
///
/// use lockdog::config::{ReplicaAck, Replicas};
///
/// # async fn example() -> lockdog::Result<()> {
/// let client = lockdog::Client::builder()
///     .url("redis://127.0.0.1:6379")
///     .replica_ack(ReplicaAck::require(Replicas::Count(1)).timeout(Duration::from_millis(500)))
///     .build()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum ReplicaAck {
    /// No replica: the grant of the master is enough.
    #[default]
    Off,
    /// The replicas that follow the master, if they acknowledge in time. The client grants the lock
    /// whether they do or not.
    ///
    /// If replicas do not acknowledge, the client waits for them again after 1 s, then 2 s, up to 30 s.
    /// If a master has no replicas, the client does not wait, and checks once a second whether it has
    /// some.
    ///
    /// A master that was frozen may continue and grant a lock after another master was elected. So if a
    /// replica is missing, the client waits until sentinels or another node of the cluster have named
    /// the master since the grant. A replica is missing if not all replicas acknowledged immediately, if the
    /// client saw the master lose replicas within the last minute, or if it did not count them for three
    /// seconds and the master has none. This takes up to 0.1 s, up to 0.25 s if one of the asked servers
    /// is frozen, and `timeout` if none answers; then the client grants the lock. A shorter lease may end
    /// first. If the server does not know or permit `WAIT`, the client asks no one. Members of a
    /// [`RedLock`](crate::RedLock) do not wait, because its other instances make up for the loss of one.
    #[non_exhaustive]
    BestEffort {
        /// The longest wait, from 1 ms up to the client's command timeout.
        timeout: Duration,
    },
    /// This number of replicas, or the acquire fails with [`Error::NotReplicated`](crate::Error::NotReplicated)
    /// and leaves no lock behind.
    #[non_exhaustive]
    Require {
        /// How many replicas.
        replicas: Replicas,
        /// The longest wait, from 1 ms up to the client's command timeout.
        timeout: Duration,
    },
    /// As [`ReplicaAck::Require`], but on disk: in the append-only files (`WAITAOF`, Redis 7.2 or
    /// Valkey; other servers refuse it, which is an [`Error::Refused`](crate::Error::Refused)).
    ///
    /// With `appendfsync everysec` that takes up to a second or two. A replica without an
    /// append-only file never acknowledges; a master without one refuses `local`.
    #[non_exhaustive]
    RequireAof {
        /// Whether the master's own disk must have the lock, too.
        local: bool,
        /// How many replicas must have the lock on disk. With `local`, [`Replicas::Count`] may be zero.
        replicas: Replicas,
        /// The longest wait, from 1 ms up to the client's command timeout.
        timeout: Duration,
    },
}

/// How many replicas.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Replicas {
    /// Exactly this number. Losing a replica does not lower the requirement, unlike with `All` and
    /// `Majority`.
    Count(u32),
    /// All replicas that the master counts as connected at that moment, and at least one. It includes
    /// replicas that still load the data. A replica that is cut off counts until the master drops it
    /// (`repl-timeout`, 60 s by default).
    All,
    /// More than half of the connected replicas, and at least one. The master does not count.
    Majority,
}

impl ReplicaAck {
    /// [`ReplicaAck::BestEffort`] with a timeout of 1 s.
    pub const fn best_effort() -> Self {
        Self::BestEffort { timeout: A_SECOND }
    }

    /// [`ReplicaAck::Require`] with a timeout of 1 s.
    pub const fn require(replicas: Replicas) -> Self {
        Self::Require {
            replicas,
            timeout: A_SECOND,
        }
    }

    /// [`ReplicaAck::RequireAof`] with a timeout of 1 s, without the master's own disk.
    pub const fn require_aof(replicas: Replicas) -> Self {
        Self::RequireAof {
            local: false,
            replicas,
            timeout: A_SECOND,
        }
    }

    /// Sets how long an acquire waits for the replicas: from 1 ms up to the client's command timeout.
    /// [`ReplicaAck::Off`] does not wait, so it stays as it is.
    #[must_use = "the setting it was called on does not change"]
    pub const fn timeout(mut self, limit: Duration) -> Self {
        match &mut self {
            Self::Off => {}
            Self::BestEffort { timeout }
            | Self::Require { timeout, .. }
            | Self::RequireAof { timeout, .. } => *timeout = limit,
        }
        self
    }

    /// Sets whether [`ReplicaAck::RequireAof`] also waits for the master's own disk. It changes no other
    /// setting.
    #[must_use = "the setting it was called on does not change"]
    pub const fn local(mut self, on_master: bool) -> Self {
        if let Self::RequireAof { local, .. } = &mut self {
            *local = on_master;
        }
        self
    }

    /// The default: the client waits for the replicas if one of them may become the master.
    pub(crate) fn default_of(is_switched: bool, command_timeout: Duration) -> Self {
        if is_switched {
            Self::best_effort().timeout(A_SECOND.min(command_timeout))
        } else {
            Self::Off
        }
    }

    pub(crate) fn check(&self, command_timeout: Duration) -> Result<(), Error> {
        let refuse = |why: String| Err(Error::invalid("replica_ack", why));
        let (replicas, timeout, is_enough) = match *self {
            Self::Off => return Ok(()),
            Self::BestEffort { timeout } => (Replicas::All, timeout, false),
            Self::Require { replicas, timeout } => (replicas, timeout, false),
            Self::RequireAof {
                local,
                replicas,
                timeout,
            } => (replicas, timeout, local),
        };
        if timeout < SHORTEST || timeout > command_timeout {
            return refuse(format!(
                "its timeout must be at least {SHORTEST:?} and at most \
                 command_timeout={command_timeout:?}, got={timeout:?}"
            ));
        }
        if replicas == Replicas::Count(0) && !is_enough {
            return refuse("zero replicas are not allowed; use ReplicaAck::Off".to_owned());
        }
        Ok(())
    }

    /// An acquire fails if the replicas do not acknowledge.
    pub(crate) fn is_required(&self) -> bool {
        matches!(self, Self::Require { .. } | Self::RequireAof { .. })
    }

    pub(crate) fn is_off(&self) -> bool {
        matches!(self, Self::Off)
    }
}

impl Replicas {
    /// How many must acknowledge if this number is connected.
    pub(in crate::server) fn of(self, connected: u32) -> u32 {
        match self {
            Self::Count(count) => count,
            Self::All => connected.max(1),
            Self::Majority => connected / 2 + 1,
        }
    }
}

/// How long an acquire waits unless the caller says otherwise.
const A_SECOND: Duration = Duration::from_secs(1);
/// `WAIT` counts in milliseconds, and 0 of them mean no limit.
const SHORTEST: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_master_without_replicas_meets_neither_all_nor_majority() {
        let of = |replicas: Replicas| [0, 1, 2, 3, 4].map(|connected| replicas.of(connected));
        assert_eq!(of(Replicas::All), [1, 1, 2, 3, 4]);
        assert_eq!(of(Replicas::Majority), [1, 1, 2, 2, 3]);
        assert_eq!(of(Replicas::Count(2)), [2; 5]);
    }

    #[test]
    fn invalid_ack_settings_are_refused() {
        let second = Duration::from_secs(1);
        let require = |replicas, timeout| ReplicaAck::Require { replicas, timeout };
        let aof = |local, replicas| ReplicaAck::RequireAof {
            local,
            replicas: Replicas::Count(replicas),
            timeout: second,
        };
        let zero = ReplicaAck::BestEffort {
            timeout: Duration::ZERO,
        };
        for bad in [
            zero,
            require(Replicas::Count(1), Duration::ZERO),
            require(Replicas::Count(0), second),
            require(Replicas::All, 2 * second),
            aof(false, 0),
        ] {
            assert!(bad.check(second).is_err(), "{bad:?}");
        }
        for good in [
            ReplicaAck::Off,
            ReplicaAck::default_of(true, second / 2),
            require(Replicas::Majority, second),
            aof(true, 0),
            aof(false, 1),
        ] {
            assert!(good.check(second).is_ok(), "{good:?}");
        }
    }
}
