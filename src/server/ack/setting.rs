//! How far a lock has to have come before it counts as granted, as a user says it.

use std::time::Duration;

use crate::error::Error;

/// What has to have a lock besides the master, before it counts as granted.
///
/// A master that fails may be followed by a replica that had not heard of the lock yet, and somebody
/// else gets it then. A first acquire can wait for the replicas (`WAIT`), which costs it about one
/// more round trip; a re-entry, a renewal and an unlock never wait. The wait counts for the caller's
/// deadline, and what it takes is lost from the lease.
///
/// It makes the loss of a lock in a failover less likely, and no more: nobody sees to it that a
/// replica which acknowledged is the one that is promoted, a replica may be promoted by people or
/// tools that do not ask who knows the most, and one that acknowledged may lose what it had when it
/// is started anew. It is no consensus. What has to bear with that takes a
/// [`RedLock`](crate::RedLock) on independent servers, or compares fencing tokens.
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
    /// Nothing: what the master granted is granted.
    #[default]
    Off,
    /// The replicas that follow the master, if they acknowledge in time; the lock is granted
    /// whether they do or not.
    ///
    /// Who does not acknowledge is not waited for again for a second, then two, up to half a minute.
    /// A master without replicas is asked once a second whether it has some by now, and nothing is
    /// waited for.
    ///
    /// A master that stood still grants what it reads first, though another may be the master by then.
    /// So a lock that not all replicas acknowledged at once waits until sentinels or another node of
    /// the cluster have named its master, too; also where that one was seen to lose replicas within
    /// the last minute, or was not asked for them for three seconds and has none. That takes up to a
    /// tenth of a second (a quarter beside one that stands still), and `timeout` where nobody answers:
    /// then the lock is granted. A lease shorter than that may be over first. Where `WAIT` is unknown
    /// or not permitted, nobody is asked either. Members of a [`RedLock`](crate::RedLock) do not wait: its other instances are
    /// there for what this one may lose.
    #[non_exhaustive]
    BestEffort {
        /// The longest wait, from 1 ms up to the client's command timeout.
        timeout: Duration,
    },
    /// So many replicas, or the acquire fails with [`Error::NotReplicated`](crate::Error::NotReplicated)
    /// and leaves nothing.
    #[non_exhaustive]
    Require {
        /// How many.
        replicas: Replicas,
        /// The longest wait, from 1 ms up to the client's command timeout.
        timeout: Duration,
    },
    /// As [`ReplicaAck::Require`], and on disk: in the append-only files (`WAITAOF`, Redis 7.2 or
    /// Valkey; other servers refuse it, which is an [`Error::Refused`](crate::Error::Refused)).
    ///
    /// With `appendfsync everysec` that takes up to a second or two. A replica without an
    /// append-only file never acknowledges; a master without one refuses `local`.
    #[non_exhaustive]
    RequireAof {
        /// On the master's own disk, too.
        local: bool,
        /// On how many replicas' disks; [`Replicas::Count`] of zero is allowed here beside `local`.
        replicas: Replicas,
        /// The longest wait, from 1 ms up to the client's command timeout.
        timeout: Duration,
    },
}

/// How many replicas.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Replicas {
    /// So many, whoever they are. The only one that a replica which was lost does not make easier.
    Count(u32),
    /// All that the master knows as connected at that moment, those that load its data yet among
    /// them, and one at least: a master without replicas fails it. One that was cut off counts until
    /// the master gives it up (`repl-timeout`, 60 s by default), and not after that.
    All,
    /// More than half of those; one at least. The master itself is not counted.
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

    /// Waits for the replicas that are there by default, where others may take the master's place.
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
            return refuse("no replica at all is ReplicaAck::Off".to_owned());
        }
        Ok(())
    }

    /// An acquire fails without it.
    pub(crate) fn is_required(&self) -> bool {
        matches!(self, Self::Require { .. } | Self::RequireAof { .. })
    }

    pub(crate) fn is_off(&self) -> bool {
        matches!(self, Self::Off)
    }
}

impl Replicas {
    /// How many it takes of so many.
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
