//! A client's settings.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use super::Client;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::hold::Bounds;
use crate::key::NameMapper;
use crate::lease;
use crate::server::{Server, Source};
use crate::session::{Core, Reentry, Session, Settings};
use crate::wait::{Backoff, Wake};
use crate::watchdog;

/// Builds a [`Client`]. From [`Client::builder`].
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
    url: Option<String>,
    pool: Option<deadpool_redis::Pool>,
    watchdog_lease: Duration,
    command_timeout: Duration,
    poll_cap: Duration,
    max_lease: Duration,
    max_waiters: usize,
    wake: Wake,
    hand_overs: Bounds,
    reentry: Reentry,
    quarantine_on_server: bool,
    name_mapper: Option<NameMapper>,
    client_name: Option<String>,
    lazy: bool,
    clock: Clock,
}

impl Default for ClientBuilder {
    fn default() -> Self {
        Self {
            url: None,
            pool: None,
            watchdog_lease: Duration::from_secs(30),
            command_timeout: Duration::from_secs(3),
            poll_cap: Duration::from_secs(1),
            max_lease: Duration::from_secs(24 * 60 * 60),
            max_waiters: 100_000,
            wake: Wake::default(),
            hand_overs: Bounds {
                hand_overs: 16,
                time: Duration::from_millis(20),
            },
            reentry: Reentry::default(),
            quarantine_on_server: false,
            name_mapper: None,
            client_name: None,
            lazy: false,
            clock: Clock::default(),
        }
    }
}

impl ClientBuilder {
    /// The server: see [`Client::connect`].
    pub fn url(mut self, url: impl AsRef<str>) -> Self {
        self.url = Some(url.as_ref().to_owned());
        self
    }

    /// A pool of yours, for the commands of callers. One connection is taken from it and kept.
    ///
    /// A pool cannot be asked for connections that hear messages. Give the URL too; with a pool
    /// alone, waits poll ([`Wake::Poll`]) and the watchdog takes a second connection from the pool.
    pub fn pool(mut self, pool: deadpool_redis::Pool) -> Self {
        self.pool = Some(pool);
        self
    }

    /// The lease of a lock without one; it is renewed every third of it. At least 10 ms.
    ///
    /// Defaults to 30 s. Corresponds to Redisson's `lockWatchdogTimeout`.
    pub fn watchdog_lease(mut self, lease: Duration) -> Self {
        self.watchdog_lease = lease;
        self
    }

    /// How long the server may take to answer one command.
    ///
    /// Defaults to 3 s. Corresponds to Redisson's `timeout`.
    pub fn command_timeout(mut self, timeout: Duration) -> Self {
        self.command_timeout = timeout;
        self
    }

    /// A waiter looks at the lock this often at least, message or not.
    ///
    /// Defaults to 1 s.
    pub fn poll_cap(mut self, cap: Duration) -> Self {
        self.poll_cap = cap;
        self
    }

    /// The longest lease that may be asked for.
    ///
    /// Defaults to 24 h.
    pub fn max_lease(mut self, lease: Duration) -> Self {
        self.max_lease = lease;
        self
    }

    /// How many calls of this client may wait for locks at one time; one more is refused with
    /// [`Error::TooManyWaiters`].
    ///
    /// Defaults to 100,000.
    pub fn max_waiters(mut self, waiters: usize) -> Self {
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

    /// How many times in a row this client may hand a lock from one of its owners to the next while
    /// other clients wait for it, or while it is not known whether any do. Then the lock is released,
    /// and this client stays out until each of the others has had it, or for 5 ms. Zero: every
    /// release is for everybody.
    ///
    /// [`Guard::unlock`](crate::Guard::unlock) hands over; a guard that is dropped releases the lock.
    ///
    /// A hand-over is one command instead of two and a message, and nobody else can come between.
    /// Clients that wait without listening (that poll, or listen at a replica) cannot be seen; for
    /// them a lock is released, and left alone for 5 ms, at least every 250 ms. One that asks less
    /// often than every few milliseconds may wait for long beside a client that always has waiters.
    ///
    /// [`ClientBuilder::max_hand_over_time`] is the other bound; the first to be reached ends the row.
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

    /// Who counts re-entries, where a request does not say so itself
    /// ([`LockRequest::reentry`](crate::LockRequest::reentry)).
    ///
    /// Defaults to [`Reentry::Counted`]. Redisson has nothing like it.
    pub fn reentry(mut self, reentry: Reentry) -> Self {
        self.reentry = reentry;
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
    /// like one that lost everything: call [`Client::provision`] once when it is set up.
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
    #[doc(hidden)]
    pub fn clock_ahead(mut self, nanoseconds: Arc<AtomicU64>) -> Self {
        self.clock = Clock::shifted(nanoseconds);
        self
    }

    /// Connects and starts the client's thread. Corresponds to Redisson's `Redisson.create(config)`.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a setting or URL that cannot be used. [`Error::Unavailable`] or
    /// [`Error::Timeout`] if the server cannot be reached within the command timeout,
    /// [`Error::Refused`] if it refuses the user or password. These three name the server.
    ///
    /// # Panics
    ///
    /// If the runtime that this is awaited on has no I/O or no timers: build it with `enable_all()`.
    /// So do the other calls, for the same reason.
    ///
    /// # Cancel safety
    ///
    /// Cancelling it leaves nothing behind.
    pub async fn build(self) -> Result<Client> {
        self.check()?;
        if tokio::runtime::Handle::try_current().is_err() {
            let why = "this is called outside of a tokio runtime".to_owned();
            return Err(Error::invalid("runtime", why));
        }
        let wake = self.wake_or_poll();
        let source = Source::new(
            self.url.as_deref(),
            self.pool,
            self.client_name,
            &self.clock,
        )?;
        let server = Server::new(source, self.clock.clone(), self.command_timeout);
        if !self.lazy {
            let connected = server.connect().await;
            connected.map_err(|failure| Error::from(failure).of_server(&server.address()))?;
        }
        let settings = Settings {
            watchdog_lease: lease::whole(self.watchdog_lease),
            poll_cap: self.poll_cap,
            max_lease: self.max_lease,
            wake,
            hand_overs: self.hand_overs,
            reentry: self.reentry,
            quarantine_on_server: self.quarantine_on_server,
            name_mapper: self.name_mapper,
        };
        let (core, jobs) = Core::new(settings, self.clock, server, self.max_waiters);
        let core = Arc::new(core);
        let ended = watchdog::start(core.clone(), jobs)?;
        Ok(Client {
            session: Arc::new(Session::new(core)),
            ended,
        })
    }

    /// A pool alone brings no messages.
    fn wake_or_poll(&self) -> Wake {
        match &self.wake {
            Wake::PubSub if self.url.is_none() => {
                tracing::warn!(
                    "a pool without a url: waits poll and the watchdog shares the pool; give both"
                );
                Wake::Poll(Backoff::default())
            }
            wake => wake.clone(),
        }
    }

    fn check(&self) -> Result<()> {
        lease::check("max_lease", self.max_lease, Duration::MAX)?;
        lease::check("watchdog_lease", self.watchdog_lease, self.max_lease)?;
        lease::check("command_timeout", self.command_timeout, A_DAY)?;
        lease::check("poll_cap", self.poll_cap, A_DAY)?;
        if let (None, Some(pool)) = (&self.url, &self.pool)
            && pool.status().max_size < 2
        {
            let why = "without a url it must have room for two connections".to_owned();
            return Err(Error::invalid("pool", why));
        }
        let is_bad = |byte: u8| !(b'!'..=b'~').contains(&byte);
        if self
            .client_name
            .as_ref()
            .is_some_and(|name| name.bytes().any(is_bad))
        {
            let why = "it must be printable ASCII without spaces".to_owned();
            return Err(Error::invalid("client_name", why));
        }
        Ok(())
    }
}

/// Shows the settings, never the URL with its password.
impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("watchdog_lease", &self.watchdog_lease)
            .field("command_timeout", &self.command_timeout)
            .field("poll_cap", &self.poll_cap)
            .field("max_lease", &self.max_lease)
            .field("max_waiters", &self.max_waiters)
            .field("wake", &self.wake)
            .field("max_hand_overs", &self.hand_overs.hand_overs)
            .field("max_hand_over_time", &self.hand_overs.time)
            .field("reentry", &self.reentry)
            .field("quarantine_on_server", &self.quarantine_on_server)
            .field("client_name", &self.client_name)
            .field("lazy", &self.lazy)
            .finish_non_exhaustive()
    }
}

const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);
