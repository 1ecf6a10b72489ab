//! The settings of a client.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::diagnosis::FindingKind;
use crate::hold::HandOverLimits;
use crate::key::{LockGroup, NameMapper, QueueTimeouts};
use crate::lock::Preference;
use crate::observe::Observer;
use crate::server::{Connector, CredentialSource, Protocol, ReplicaAck, TlsSettings, UserPool};
use crate::session::Reentry;
use crate::wait::Wake;

/// Builds a [`Client`](crate::Client), from [`Client::builder`](crate::Client::builder). Corresponds to
/// Redisson's `Config`.
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
    /// `build` refuses more than one.
    pub(super) connectors: Vec<Arc<dyn Connector>>,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) credentials: Option<CredentialSource>,
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
    pub(super) fair_wait: Duration,
    pub(super) fair_absence: Option<Duration>,
    pub(super) preference: Preference,
    pub(super) reentry: Reentry,
    pub(super) replica_ack: Option<ReplicaAck>,
    pub(super) quarantine_on_server: bool,
    pub(super) name_mapper: Option<NameMapper>,
    pub(super) client_name: Option<String>,
    pub(super) log_names: bool,
    pub(super) expected_findings: Vec<FindingKind>,
    pub(super) observers: Vec<Arc<dyn Observer>>,
    pub(super) lock_group: Option<LockGroup>,
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
            credentials: None,
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
            fair_wait: QueueTimeouts::default().fair_wait,
            fair_absence: None,
            preference: Preference::default(),
            reentry: Reentry::default(),
            replica_ack: None,
            quarantine_on_server: false,
            name_mapper: None,
            client_name: None,
            log_names: false,
            expected_findings: Vec::new(),
            observers: Vec::new(),
            lock_group: None,
            lazy: false,
            clock: Clock::default(),
        }
    }
}

impl ClientBuilder {
    /// The lease of a lock that is acquired without a lease. The watchdog renews it every third of this
    /// time. From 10 ms up to [`ClientBuilder::max_lease`].
    ///
    /// Defaults to 30 s. Corresponds to Redisson's `lockWatchdogTimeout`.
    pub fn watchdog_lease(mut self, lease: Duration) -> Self {
        self.watchdog_lease = lease;
        self
    }

    /// The time limit for the answer to one command, and for connecting. From 10 ms up to one day. It
    /// also limits how long a call without a wait of its own is retried while the server cannot be reached.
    ///
    /// Defaults to 3 s. Corresponds to Redisson's `timeout`.
    pub fn command_timeout(mut self, timeout: Duration) -> Self {
        self.command_timeout = timeout;
        self
    }

    /// The longest time between two attempts of a waiter, with or without a message. From 10 ms up to one
    /// day.
    ///
    /// Defaults to 1 s. Without a message, a Redisson waiter waits for the TTL.
    pub fn poll_cap(mut self, cap: Duration) -> Self {
        self.poll_cap = cap;
        self
    }

    /// The longest lease that a request may have, at least 10 ms. A longer one is
    /// [`Error::Invalid`](crate::Error::Invalid).
    ///
    /// Defaults to 24 h. Redisson has no such setting.
    pub fn max_lease(mut self, lease: Duration) -> Self {
        self.max_lease = lease;
        self
    }

    /// The maximum number of calls of this client that wait for locks, permits and latches at the same time.
    /// Further calls return [`Error::TooManyWaiters`](crate::Error::TooManyWaiters). The same number limits the
    /// calls that the client sends until the server answers: `count_down`, `add_permits`, and releases of a
    /// number of permits.
    ///
    /// Defaults to 100,000. Redisson has no such setting.
    pub fn max_waiters(mut self, waiters: u32) -> Self {
        self.max_waiters = waiters;
        self
    }

    /// How waiters detect that a lock is free: by messages or by polling.
    ///
    /// Defaults to [`Wake::PubSub`]. In Redisson, `getSpinLock` polls, and the other
    /// locks use messages.
    pub fn wake(mut self, wake: Wake) -> Self {
        self.wake = wake;
        self
    }

    /// Maximum consecutive hand-overs of a lock between waiters of this client while other clients wait for
    /// it, or may wait. After that the client releases the lock, and takes its place behind the clients that
    /// wait. If the server does not list all of these, as with clients of Redisson and on a cluster, the client
    /// pauses instead until each of them has had the lock, for 5 ms at most. Zero: each release is open to
    /// all clients.
    ///
    /// [`Guard::unlock`](crate::Guard::unlock) hands over. A guard that is dropped releases the lock.
    /// [`Permit::release`](crate::Permit::release) hands over, too, to a waiter for the same number of permits.
    ///
    /// A hand-over is one command instead of two and a message. No other client can acquire the lock
    /// during it.
    ///
    /// The client cannot detect waiters that poll or that listen at a replica. For them it releases the
    /// lock, and pauses for 5 ms, at least every 250 ms. A client that polls less often than every few
    /// milliseconds may still wait for a long time next to a client that always has waiters. Set 0 then.
    ///
    /// [`ClientBuilder::max_hand_over_time`] is the other limit. The first limit that is reached counts.
    ///
    /// Defaults to 16. Redisson does not hand over: that is 0.
    pub fn max_hand_overs(mut self, hand_overs: u32) -> Self {
        self.hand_overs.hand_overs = hand_overs;
        self
    }

    /// Maximum time for consecutive hand-overs of a lock between waiters of this client while other clients
    /// wait for it, or may wait. The time counts from the first hand-over and includes the critical
    /// sections. After it the client releases the lock, as with [`ClientBuilder::max_hand_overs`], which is
    /// the other limit. Zero: at most one hand-over once the client has detected other waiters.
    ///
    /// Defaults to 20 ms. Redisson has no such setting.
    pub fn max_hand_over_time(mut self, time: Duration) -> Self {
        self.hand_overs.time = time;
        self
    }

    /// Where re-entries are counted, unless a request sets it
    /// ([`LockRequest::reentry`](crate::request::LockRequest::reentry)).
    ///
    /// Defaults to [`Reentry::Counted`]. Redisson always counts in Redis.
    pub fn reentry(mut self, reentry: Reentry) -> Self {
        self.reentry = reentry;
        self
    }

    /// Which replicas must acknowledge a lock before it counts as acquired. [`ReplicaAck`] says what that
    /// guarantees and what it does not.
    ///
    /// Defaults to [`ReplicaAck::Off`] for one server. For sentinels and clusters it defaults to
    /// [`ReplicaAck::BestEffort`] with a timeout of 1 s, or of the command timeout if that is shorter.
    /// The timeout corresponds to Redisson's `slavesSyncTimeout`. Redisson with `checkLockSyncedSlaves=false`
    /// is [`ReplicaAck::BestEffort`]. With `true`, its default, Redisson fails a call if the master has
    /// replicas and none of them acknowledges in time; [`ReplicaAck::Require`] is stricter.
    pub fn replica_ack(mut self, ack: ReplicaAck) -> Self {
        self.replica_ack = Some(ack);
        self
    }

    /// Whether the server itself records that it lost its data. It affects only the instances of a
    /// [`RedLock`](crate::RedLock).
    ///
    /// A server that comes back without its data has lost its locks. It must not count in a quorum until
    /// all earlier leases have ended: it is in quarantine. Without this setting, each client detects that
    /// when it reconnects. A client cannot detect it if it never connected to the server before, or if the
    /// data changed while the connection stayed open, for example by `FLUSHALL`.
    ///
    /// With this setting, each acquire checks the key `lockdog:epoch`. If the key is missing or belongs to
    /// another server, the acquire writes it, and the server is in quarantine for all clients with this
    /// setting. A new server looks like one that lost its data. Call
    /// [`Client::provision`](crate::Client::provision) once when it is set up.
    ///
    /// It costs the server 5 us for each acquire. The client needs permission for `INFO`, `TIME`, `HSET`
    /// and `HMGET`, and for the key. Use it with every client of a quorum or with none. It is not
    /// supported on a cluster.
    ///
    /// Defaults to false. Redisson has no such setting.
    pub fn quarantine_on_server(mut self, enabled: bool) -> Self {
        self.quarantine_on_server = enabled;
        self
    }

    /// Maps each lock's name to a key. The keys and channels in Redis are derived from its result, which
    /// must have 1 to 512 bytes.
    ///
    /// Defaults to the name itself. Corresponds to Redisson's `nameMapper`.
    pub fn name_mapper<F>(mut self, mapper: F) -> Self
    where
        F: Fn(&str) -> String + Send + Sync + 'static,
    {
        self.name_mapper = Some(Arc::new(mapper));
        self
    }

    /// The name that the client gives to its connections for commands (`CLIENT SETNAME`): printable ASCII
    /// without spaces. `{id}` in it becomes [`Client::id`](crate::Client::id), which is also in the fields of the
    /// client's holds. So `CLIENT LIST` shows from where a lock is held. The connection for messages and those of
    /// your own pool get no name.
    ///
    /// Defaults to `lockdog/{id}`. Corresponds to Redisson's `clientName`.
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.client_name = Some(name.into());
        self
    }

    /// Whether `build` returns without connecting. The first command connects then. Use it for an instance
    /// of a [`RedLock`](crate::RedLock), which may be down while the others work. The first request
    /// reports a wrong address or password.
    ///
    /// Defaults to false. Corresponds to Redisson's `lazyInitialization`.
    pub fn lazy(mut self, lazy: bool) -> Self {
        self.lazy = lazy;
        self
    }

    /// A test can move this client's clock ahead by this number of nanoseconds, as after a suspension of
    /// the machine.
    #[cfg(test)]
    pub(crate) fn clock_ahead(mut self, nanoseconds: Arc<std::sync::atomic::AtomicU64>) -> Self {
        self.clock = Clock::of(crate::clock::testing::ShiftedClock(nanoseconds));
        self
    }
}

/// Shows the settings and the servers' addresses, never a password.
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
            .field("fair_wait", &self.fair_wait)
            .field("fair_absence", &self.fair_absence)
            .field("preference", &self.preference)
            .field("reentry", &self.reentry)
            .field("replica_ack", &self.replica_ack)
            .field("quarantine_on_server", &self.quarantine_on_server)
            .field("client_name", &self.client_name)
            .field("log_names", &self.log_names)
            .field("expected_findings", &self.expected_findings)
            .field("lazy", &self.lazy)
            .finish_non_exhaustive()
    }
}
