//! A client's settings.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::hold::HandOverLimits;
use crate::key::NameMapper;
use crate::server::{Connector, Protocol, ReplicaAck, TlsSettings, UserPool};
use crate::session::Reentry;
use crate::wait::Wake;

/// Builds a [`Client`](crate::Client). From [`Client::builder`](crate::Client::builder).
///
/// It needs one of `url`, `sentinel`, `cluster`, `connector` and `pool`. Only `url` and `pool` can be set
/// together. Settings out of bounds are [`Error::Invalid`](crate::Error::Invalid) from `build`.
///
/// # Examples
///
/// ```no_run
/// use std::time::Duration;
///
/// # async fn example() -> lockdog::Result<()> {
/// let client = lockdog::Client::builder()
///     .url("redis://127.0.0.1:6379")
///     .watchdog_lease(Duration::from_secs(10))
///     .name_mapper(|name| format!("billing:{name}"))
///     .build()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing itself, use `.build()`"]
pub struct ClientBuilder {
    pub(super) url: Option<String>,
    pub(super) sentinel: Option<(String, Vec<String>)>,
    pub(super) cluster: Option<Vec<String>>,
    /// More than one are refused.
    pub(super) connectors: Vec<Arc<dyn Connector>>,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: Option<u32>,
    pub(super) sentinel_username: Option<String>,
    pub(super) sentinel_password: Option<String>,
    pub(super) master_tls: Option<bool>,
    pub(super) tls: Option<TlsSettings>,
    pub(super) protocol: Option<Protocol>,
    pub(super) pool: Option<UserPool>,
    pub(super) watchdog_lease: Duration,
    pub(super) command_timeout: Duration,
    pub(super) poll_cap: Duration,
    pub(super) max_lease: Duration,
    pub(super) max_waiters: u32,
    pub(super) wake: Wake,
    pub(super) hand_overs: HandOverLimits,
    pub(super) reentry: Reentry,
    pub(super) replica_ack: Option<ReplicaAck>,
    pub(super) quarantine_on_server: bool,
    pub(super) name_mapper: Option<NameMapper>,
    pub(super) client_name: Option<String>,
    pub(super) lazy: bool,
    pub(super) clock: Clock,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            url: None,
            sentinel: None,
            cluster: None,
            connectors: Vec::new(),
            username: None,
            password: None,
            database: None,
            sentinel_username: None,
            sentinel_password: None,
            master_tls: None,
            tls: None,
            protocol: None,
            pool: None,
            watchdog_lease: Duration::from_secs(30),
            command_timeout: Duration::from_secs(3),
            poll_cap: Duration::from_secs(1),
            max_lease: Duration::from_secs(24 * 60 * 60),
            max_waiters: 100_000,
            wake: Wake::default(),
            hand_overs: HandOverLimits {
                hand_overs: 16,
                time: Duration::from_millis(20),
            },
            reentry: Reentry::default(),
            replica_ack: None,
            quarantine_on_server: false,
            name_mapper: None,
            client_name: None,
            lazy: false,
            clock: Clock::default(),
        }
    }
}

impl ClientBuilder {
    /// The lease of a lock that is acquired without one; the watchdog renews it every third of this time.
    /// From 10 ms up to `max_lease`.
    ///
    /// Defaults to 30 s. Corresponds to Redisson's `lockWatchdogTimeout`.
    pub fn watchdog_lease(mut self, lease: Duration) -> Self {
        self.watchdog_lease = lease;
        self
    }

    /// How long the server may take to answer one command: from 10 ms to one day. It also limits how long
    /// a call without a wait of its own is retried while the server cannot be reached.
    ///
    /// Defaults to 3 s. Corresponds to Redisson's `timeout`.
    pub fn command_timeout(mut self, timeout: Duration) -> Self {
        self.command_timeout = timeout;
        self
    }

    /// The longest time between two checks of a waiter, with or without a message: from 10 ms to one day.
    ///
    /// Defaults to 1 s.
    pub fn poll_cap(mut self, cap: Duration) -> Self {
        self.poll_cap = cap;
        self
    }

    /// The longest lease that may be requested. At least 10 ms.
    ///
    /// Defaults to 24 h.
    pub fn max_lease(mut self, lease: Duration) -> Self {
        self.max_lease = lease;
        self
    }

    /// How many calls of this client may wait for locks at one time; one more is refused with
    /// [`Error::TooManyWaiters`](crate::Error::TooManyWaiters).
    ///
    /// Defaults to 100,000.
    pub fn max_waiters(mut self, waiters: u32) -> Self {
        self.max_waiters = waiters;
        self
    }

    /// How waiters learn that a lock is free.
    ///
    /// Defaults to [`Wake::PubSub`].
    pub fn wake(mut self, wake: Wake) -> Self {
        self.wake = wake;
        self
    }

    /// Maximum consecutive hand-overs of a lock in this client while other clients wait for it, or may
    /// wait. Then the client releases the lock, and pauses until each of the others has had it, or for
    /// 5 ms. Zero: every release is open to all clients.
    ///
    /// [`Guard::unlock`](crate::Guard::unlock) hands over; a guard that is dropped releases the lock.
    ///
    /// A hand-over is one command instead of two and a message, and nobody else can come between.
    /// Clients that wait without listening (that poll, or listen at a replica) cannot be seen; for
    /// them a lock is released, and left alone for 5 ms, at least every 250 ms. One that asks less
    /// often than every few milliseconds may wait for long beside a client that always has waiters.
    ///
    /// [`ClientBuilder::max_hand_over_time`] is the other bound; the one that is reached first applies.
    ///
    /// Defaults to 16. Redisson has nothing like it.
    pub fn max_hand_overs(mut self, hand_overs: u32) -> Self {
        self.hand_overs.hand_overs = hand_overs;
        self
    }

    /// For how long in a row this client may hand a lock on while other clients wait for it, or while
    /// it is not known whether any do, counted from the first hand-over: after a longer critical
    /// section the lock is released to them, however few hand-overs there were. Zero: no second
    /// hand-over once others are seen. [`ClientBuilder::max_hand_overs`] is the other bound.
    ///
    /// Defaults to 20 ms. Redisson has nothing like it.
    pub fn max_hand_over_time(mut self, time: Duration) -> Self {
        self.hand_overs.time = time;
        self
    }

    /// Who counts re-entries, unless a request sets it
    /// ([`LockRequest::reentry`](crate::LockRequest::reentry)).
    ///
    /// Defaults to [`Reentry::Counted`]. Redisson has nothing like it.
    pub fn reentry(mut self, reentry: Reentry) -> Self {
        self.reentry = reentry;
        self
    }

    /// Which replicas must acknowledge a lock before it counts as acquired. [`ReplicaAck`] says what that
    /// guarantees and what it does not.
    ///
    /// Defaults to [`ReplicaAck::Off`] for one server and to [`ReplicaAck::BestEffort`] of a second,
    /// or of the command timeout if that is shorter, for sentinels and clusters.
    /// Corresponds to Redisson's `slavesSyncTimeout` with `checkLockSyncedSlaves`.
    pub fn replica_ack(mut self, ack: ReplicaAck) -> Self {
        self.replica_ack = Some(ack);
        self
    }

    /// Whether the server itself remembers that it lost its data, for a client that is a member of
    /// quorums; the plain lock has no use for it.
    ///
    /// A server that comes back without its data has forgotten who holds what, and must not count in
    /// a quorum until every lease of before is over. A client sees that by itself when it connects
    /// again, unless it never saw the server before, or the data went without the server: by FLUSHALL,
    /// or with another server's taken over on a living connection. With this, each acquire looks at
    /// the key `lockdog:epoch`, and where that is gone or another server's, the acquire writes it and
    /// the server does not count for that time, for anybody who asks with this. A new server looks
    /// like one that lost everything: call [`Client::provision`](crate::Client::provision) once when it
    /// is set up.
    ///
    /// It costs the server 5 us for each acquire, and the client needs permission for `INFO`, `TIME`,
    /// `HSET` and `HMGET`, and for the key. Use it with every client of a quorum or with none.
    ///
    /// Defaults to false. Redisson has nothing like it.
    pub fn quarantine_on_server(mut self, remembers: bool) -> Self {
        self.quarantine_on_server = remembers;
        self
    }

    /// Makes keys out of names; keys and channels are derived from its result.
    ///
    /// Defaults to the name itself. Corresponds to Redisson's `nameMapper`.
    pub fn name_mapper<F>(mut self, mapper: F) -> Self
    where
        F: Fn(&str) -> String + Send + Sync + 'static,
    {
        self.name_mapper = Some(Arc::new(mapper));
        self
    }

    /// What the server calls this client's connections for commands (`CLIENT SETNAME`); no spaces.
    /// The one for messages and those from a pool of yours are not renamed.
    ///
    /// Defaults to none. Corresponds to Redisson's `clientName`.
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.client_name = Some(name.into());
        self
    }

    /// Builds the client without connecting; the first command connects. For an instance of a
    /// [`RedLock`](crate::RedLock) that may be down while the others serve. An address or password
    /// that is wrong shows at the first request then.
    ///
    /// Defaults to connecting at once, as Redisson does without its `lazyInitialization`.
    pub fn lazy(mut self, lazy: bool) -> Self {
        self.lazy = lazy;
        self
    }

    /// Lets a test move this client's clock ahead, in nanoseconds, as if the machine had slept.
    #[cfg(test)]
    pub(crate) fn clock_ahead(mut self, nanoseconds: Arc<std::sync::atomic::AtomicU64>) -> Self {
        self.clock = Clock::shifted(nanoseconds);
        self
    }
}

/// Shows the settings and where the servers are, never a password.
impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("deployment", &self.deployment())
            .field("tls", &self.tls)
            .field("protocol", &self.protocol)
            .field("pool", &self.pool.is_some())
            .field("watchdog_lease", &self.watchdog_lease)
            .field("command_timeout", &self.command_timeout)
            .field("poll_cap", &self.poll_cap)
            .field("max_lease", &self.max_lease)
            .field("max_waiters", &self.max_waiters)
            .field("wake", &self.wake)
            .field("max_hand_overs", &self.hand_overs.hand_overs)
            .field("max_hand_over_time", &self.hand_overs.time)
            .field("reentry", &self.reentry)
            .field("replica_ack", &self.replica_ack)
            .field("quarantine_on_server", &self.quarantine_on_server)
            .field("client_name", &self.client_name)
            .field("lazy", &self.lazy)
            .finish_non_exhaustive()
    }
}
