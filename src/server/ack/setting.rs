//! The setting for what must acknowledge a lock before it counts as granted.

use std::time::Duration;

use crate::error::Error;

/// Which replicas must acknowledge a lock, besides the master, before it counts as granted.
///
/// If a master fails, the replica that replaces it may not have received the lock yet. Then another
/// owner can acquire it. A first acquire can wait for the replicas (`WAIT`), which costs it about one
/// more round trip. A re-entry, a renewal and an unlock never wait. The wait counts towards the
/// caller's deadline, and the lease runs meanwhile.
///
/// It makes the loss of a lock in a failover less likely, but does not exclude it. Nothing ensures
/// that a replica which acknowledged is the one that is promoted: people or tools may promote a
/// replica without asking which one has the most data. A replica that acknowledged may also lose the
/// lock when it restarts. This is no consensus. If you need to tolerate such a loss, use a
/// [`RedLock`](crate::RedLock) on independent servers, or compare fencing tokens.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
///
/// use lockdog::{ReplicaAck, Replicas};
///
/// # async fn example() -> lockdog::Result<()> {
/// let client = lockdog::Client::builder()
///     .url("redis://127.0.0.1:6379")
///     .replica_ack(ReplicaAck::Require {
///         replicas: Replicas::Count(1),
///         timeout: Duration::from_millis(500),
///     })
///     .build()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub enum ReplicaAck {
    /// Nothing: a grant of the master counts at once.
    #[default]
    Off,
    /// Waits for the replicas that follow the master, but grants the lock even if they do not
    /// acknowledge in time.
    ///
    /// The client does not wait again for a replica that did not acknowledge for one second, then two,
    /// up to 30. It asks a master without replicas once a second whether there are some now; locks do
    /// not wait for any.
    ///
    /// A frozen master executes the commands in its queue when it continues, although another server
    /// may be the master by then. So a lock also waits until sentinels or another node of the cluster
    /// confirm its master, in three cases: not all replicas acknowledged at once; the client saw the
    /// master lose replicas within the last minute; or the client did not count the replicas for three
    /// seconds and there are none. This takes up to 0.1 s (0.25 s if one of those asked is frozen), or
    /// `timeout` if none of them answers. Then the lock is granted. A lease shorter than that may end
    /// first. If `WAIT` is unknown or not permitted, there is no confirmation either. Members of a
    /// [`RedLock`](crate::RedLock) do not wait, because its other instances compensate for what one
    /// instance may lose.
    BestEffort {
        /// How long to wait; at least 1 ms, at most the command timeout.
        timeout: Duration,
    },
    /// This many replicas must acknowledge. Otherwise the acquire fails with
    /// [`Error::NotReplicated`](crate::Error::NotReplicated) and leaves nothing in Redis.
    Require {
        /// How many replicas.
        replicas: Replicas,
        /// How long to wait; at least 1 ms, at most the command timeout.
        timeout: Duration,
    },
    /// Like [`ReplicaAck::Require`], and on disk: in the append-only files. This needs `WAITAOF`
    /// (Redis 7.2 or Valkey). Other servers refuse it with an
    /// [`Error::Refused`](crate::Error::Refused).
    ///
    /// With `appendfsync everysec` this takes up to two seconds. A replica without an append-only file
    /// never acknowledges. A master without one refuses `local`.
    RequireAof {
        /// Whether the master's own disk is required too.
        local: bool,
        /// The number of replicas' disks. [`Replicas::Count`] of zero is allowed here with `local`.
        replicas: Replicas,
        /// How long to wait; at least 1 ms, at most the command timeout.
        timeout: Duration,
    },
}

/// How many replicas.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Replicas {
    /// Exactly this number. Unlike the others, it does not become smaller when a replica is lost.
    Count(u32),
    /// All replicas that are connected to the master at that moment, including those that are still
    /// loading its data. At least one is required: a master without replicas fails it. A replica that
    /// was cut off counts until the master drops it (`repl-timeout`, 60 s by default).
    All,
    /// More than half of those, and at least one. The master itself does not count.
    Majority,
}

impl ReplicaAck {
    /// The default: waits for the existing replicas if another server may replace the master.
    pub(crate) fn default_of(is_switched: bool, command_timeout: Duration) -> Self {
        if is_switched {
            let timeout = Duration::from_secs(1).min(command_timeout);
            Self::BestEffort { timeout }
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

    /// Whether an acquire fails without the acknowledgements.
    pub(crate) fn is_required(&self) -> bool {
        matches!(self, Self::Require { .. } | Self::RequireAof { .. })
    }

    pub(crate) fn is_off(&self) -> bool {
        matches!(self, Self::Off)
    }
}

impl Replicas {
    /// How many acknowledgements are required if this many replicas are connected.
    pub(in crate::server) fn of(self, connected: u32) -> u32 {
        match self {
            Self::Count(count) => count,
            Self::All => connected.max(1),
            Self::Majority => connected / 2 + 1,
        }
    }
}

/// `WAIT` counts in milliseconds, and 0 means no limit.
const SHORTEST: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_master_without_replicas_meets_neither_all_nor_a_majority() {
        let of = |replicas: Replicas| [0, 1, 2, 3, 4].map(|connected| replicas.of(connected));
        assert_eq!(of(Replicas::All), [1, 1, 2, 3, 4]);
        assert_eq!(of(Replicas::Majority), [1, 1, 2, 2, 3]);
        assert_eq!(of(Replicas::Count(2)), [2; 5]);
    }

    #[test]
    fn what_cannot_be_waited_for_is_refused() {
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
