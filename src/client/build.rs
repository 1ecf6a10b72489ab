//! Builds a client: checks the settings, connects, and starts the background.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::{Client, ClientBuilder};
use crate::background::{Background, ensure_runtime};
use crate::clock::Clock;
use crate::diagnosis::{self, ClientProfile};
use crate::error::{Error, Result};
use crate::key::QueueTimeouts;
use crate::lease;
use crate::observe::Observers;
use crate::server::{Address, Context, Logins, ReplicaAck, Server, Time};
use crate::session::{ClientSettings, Core, Session};
use crate::wait::{Backoff, Wake};
use crate::watchdog;

impl ClientBuilder {
    /// Connects and starts the client's thread. Corresponds to Redisson's `Redisson.create(config)`.
    ///
    /// # Errors
    ///
    /// - [`Error::Invalid`] if a setting or URL is invalid, and outside a tokio runtime.
    /// - [`Error::Unavailable`] or [`Error::Timeout`] if the server cannot be reached within the command
    ///   timeout. The error names the server.
    /// - [`Error::Unavailable`] if sentinels refuse the user or password, or do not know the master. The
    ///   error names the sentinels.
    /// - [`Error::Refused`] if the server refuses the user or password. The error names the server.
    ///
    /// # Panics
    ///
    /// If the current runtime has no timers. On a runtime without I/O the client cannot connect. Build the
    /// runtime with `enable_all()`. The same holds for all other calls.
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled, the client closes what it opened, and its thread ends.
    pub async fn build(mut self) -> Result<Client> {
        self.check()?;
        ensure_runtime()?;
        let wake = self.wake_or_poll();
        let queue_timeouts = QueueTimeouts {
            fair_wait: self.fair_wait,
            fair_absence: self.longest_silence(),
        };
        let address = self.address()?;
        let id = Uuid::new_v4();
        let name = self.client_name.as_deref().unwrap_or(DEFAULT_NAME);
        let name = name.replace(ID, &id.to_string());
        let by_credentials = self.credentials.is_some();
        let user = address.as_ref().and_then(|it| it.user(by_credentials));
        let expected = ClientProfile {
            user: user.or_else(|| {
                // The caller's code may return a user, and another one for each connection.
                by_credentials.then(|| "<the user of the credentials>".to_owned())
            }),
            by_pool: self.pool.is_some(),
            listens: matches!(wake, Wake::PubSub),
            client_name: Some(name.clone()),
            quarantine_on_server: self.quarantine_on_server,
            expected_findings: self.expected_findings.as_slice().into(),
            ..ClientProfile::default()
        };
        // The background starts before the first connection, because work that several callers wait for
        // runs there. Until the watchdog starts, it ends with this future.
        let (background, thread) = match self.time() {
            Time::Machine => {
                let (background, thread) =
                    Background::start().map_err(|cause| Error::Unavailable {
                        cause: format!("no thread for the watchdog: {cause}").into(),
                    })?;
                (background, Some(thread))
            }
            // The background must run on this runtime, because another runtime has another clock.
            Time::Tokio => {
                self.clock = Clock::of_tokio();
                (Background::here(), None)
            }
        };
        let context = Context {
            clock: self.clock.clone(),
            background,
            command_timeout: self.command_timeout,
            watchdog_lease: lease::whole(self.watchdog_lease),
            observers: Observers::new(self.observers),
        };
        let deployment = address.as_ref().map_or("pool", Address::deployment);
        let logins = self.credentials.take();
        let logins = logins.map(|source| Logins::new(source, &context));
        let server = Server::at(address, self.pool, Some(name), logins, context)?;
        let ack = self
            .replica_ack
            .unwrap_or_else(|| ReplicaAck::default_of(server.is_switched(), self.command_timeout));
        let expected = ClientProfile {
            has_tokio_time: !self.clock.outruns_timers(),
            waits: matches!(
                ack,
                ReplicaAck::BestEffort { .. } | ReplicaAck::Require { .. }
            ),
            on_disk: match ack {
                ReplicaAck::RequireAof { local, .. } => Some(local),
                _ => None,
            },
            ..expected
        };
        let server = server.acknowledging(ack);
        if !self.lazy {
            let connected = server.connect().await;
            connected.map_err(|failure| Error::from(failure).of_server(&server.address()))?;
            // Awaited here, so that no command of this check is in flight when the caller continues.
            let limit = self.command_timeout.min(DIAGNOSIS_LIMIT);
            // Boxed, because it is large and would be a part of every connect's future.
            Box::pin(diagnosis::check_new_servers(&server, &expected, limit)).await;
        }
        // The fields of holds begin with the id, so this line leads from a field to the process that logs it.
        tracing::info!(
            target: "lockdog::client",
            client = %id,
            version = env!("CARGO_PKG_VERSION"),
            deployment,
            server = server.address(),
            "client started"
        );
        let settings = ClientSettings {
            watchdog_lease: lease::whole(self.watchdog_lease),
            poll_cap: self.poll_cap,
            max_lease: self.max_lease,
            wake,
            hand_overs: self.hand_overs,
            queue_timeouts,
            reentry: self.reentry,
            quarantine_on_server: self.quarantine_on_server,
            expected: Some(expected),
            name_mapper: self.name_mapper,
            log_names: self.log_names,
            lock_group: self.lock_group,
        };
        let (core, jobs) = Core::new(id, settings, self.clock, server, self.max_waiters);
        let core = Arc::new(core);
        let ended = watchdog::start(core.clone(), jobs, thread);
        Ok(Client {
            session: Arc::new(Session::new(core)),
            preference: self.preference,
            ended,
        })
    }

    fn time(&self) -> Time {
        let connector = self.connectors.first();
        connector.map_or(Time::Machine, |connector| connector.time())
    }

    fn address(&self) -> Result<Option<Address>> {
        if let [connector, others @ ..] = &self.connectors[..] {
            let is_alone = others.is_empty() && self.pool.is_none();
            if !is_alone || self.url.is_some() || self.sentinel.is_some() || self.cluster.is_some()
            {
                let why = "it replaces url, sentinel, cluster and pool: set one connector and none of \
                           these";
                return Err(Error::invalid("connector", why.to_owned()));
            }
            return self
                .add_credentials(Address::behind(connector.clone())?)
                .map(Some);
        }
        let address = match (&self.url, &self.sentinel, &self.cluster) {
            (Some(url), None, None) => Address::parse(url)?,
            (None, Some((name, urls)), None) => Address::sentinel(name, urls.clone(), None)?,
            (None, None, Some(urls)) => Address::cluster(urls.clone())?,
            (None, None, None) => {
                if self.tls.is_some() || self.protocol.is_some() || self.credentials.is_some() {
                    let why = "tls, protocol and credentials need a url, sentinels or a cluster";
                    let why = why.to_owned();
                    return Err(Error::invalid("client", why));
                }
                return Ok(None);
            }
            _ => {
                let why = "set exactly one of url, sentinel and cluster".to_owned();
                return Err(Error::invalid("client", why));
            }
        };
        // Checks the address and not the settings, because a URL may name sentinels or a cluster.
        match address {
            Address::Cluster { .. } => self.check_cluster()?,
            Address::Sentinel { .. } if self.pool.is_some() => {
                let why =
                    "its connections do not follow a failover of the sentinels' master".to_owned();
                return Err(Error::invalid("pool", why));
            }
            Address::Sentinel { .. } | Address::Server(_) | Address::Connector { .. } => {}
        }
        self.add_credentials(address).map(Some)
    }

    /// Adds the user, password, database, protocol and TLS settings to the address.
    fn add_credentials(&self, mut address: Address) -> Result<Address> {
        address.change(|mut settings| {
            if let Some(user) = &self.username {
                settings = settings.set_username(user);
            }
            if let Some(password) = &self.password {
                settings = settings.set_password(password);
            }
            if let Some(number) = self.database {
                settings = settings.set_db(number.into());
            }
            match self.protocol {
                Some(protocol) => protocol.of(settings),
                None => settings,
            }
        });
        self.add_sentinel_settings(&mut address)?;
        if let Some(tls) = &self.tls {
            address.use_certificates(tls)?;
        }
        Ok(address)
    }

    /// Refuses settings that a cluster does not support.
    fn check_cluster(&self) -> Result<()> {
        let refuse = |what, why: &str| Err(Error::invalid(what, why.to_owned()));
        if self.database.is_some_and(|number| number != 0) {
            return refuse("database", "a cluster has only database 0");
        }
        if self.quarantine_on_server {
            let why = "not supported on a cluster: its servers store no epoch";
            return refuse("quarantine_on_server", why);
        }
        if self.pool.is_some() {
            return refuse(
                "pool",
                "its connections lead to only one server of the cluster",
            );
        }
        Ok(())
    }

    fn has_address(&self) -> bool {
        self.url.is_some()
            || self.sentinel.is_some()
            || self.cluster.is_some()
            || !self.connectors.is_empty()
    }

    /// The user's setting, or polling if the client has only a pool, which has no connections for messages.
    fn wake_or_poll(&self) -> Wake {
        match &self.wake {
            Wake::PubSub if !self.has_address() => {
                tracing::warn!(
                    target: "lockdog::wait",
                    "pool without a url: waiters poll and the watchdog shares the pool; set a url too"
                );
                Wake::Poll(Backoff::default())
            }
            wake => wake.clone(),
        }
    }

    /// The user's setting, or the default that fits the poll cap.
    fn longest_silence(&self) -> Duration {
        let least = QueueTimeouts::default()
            .fair_absence
            .max(QUERIES_PER_ABSENCE * self.poll_cap);
        self.fair_absence.unwrap_or(least)
    }

    fn check(&self) -> Result<()> {
        if self.credentials.is_some() && self.password.is_some() {
            let why = "they replace the password: set one of the two".to_owned();
            return Err(Error::invalid("credentials", why));
        }
        lease::check("max_lease", self.max_lease, Duration::MAX)?;
        lease::check_lease("watchdog_lease", self.watchdog_lease, self.max_lease)?;
        lease::check("command_timeout", self.command_timeout, A_DAY)?;
        lease::check("poll_cap", self.poll_cap, A_DAY)?;
        lease::check("fair_wait", self.fair_wait, A_DAY)?;
        lease::check("fair_absence", self.longest_silence(), 4 * A_DAY)?;
        if self.longest_silence() < QUERIES_PER_ABSENCE * self.poll_cap {
            let why = "it must be at least 4 times the poll_cap".to_owned();
            return Err(Error::invalid("fair_absence", why));
        }
        if let (false, Some(pool)) = (self.has_address(), &self.pool)
            && pool.max_size() < 2
        {
            let why = "without a url its max_size must be at least 2".to_owned();
            return Err(Error::invalid("pool", why));
        }
        if let Some(ack) = &self.replica_ack {
            ack.check(self.command_timeout)?;
            if let (false, Some(pool)) = (self.has_address() || ack.is_off(), &self.pool)
                && pool.max_size() < 3
            {
                let why = "without a url and with replica_ack its max_size must be at least 3";
                return Err(Error::invalid("pool", why.to_owned()));
            }
        }
        let is_forbidden = |byte: u8| !(b'!'..=b'~').contains(&byte);
        if self
            .client_name
            .as_ref()
            .is_some_and(|name| name.bytes().any(is_forbidden))
        {
            let why = "it must be printable ASCII without spaces".to_owned();
            return Err(Error::invalid("client_name", why));
        }
        Ok(())
    }
}

/// Names the program, and the client by the id that is also in the fields of its holds.
const DEFAULT_NAME: &str = "lockdog/{id}";
/// The client's id replaces this in its name.
const ID: &str = "{id}";
/// How long a connect waits for the check of the server's configuration.
const DIAGNOSIS_LIMIT: Duration = Duration::from_secs(1);
/// A waiter of a fair lock has time for this many queries before it counts as absent.
const QUERIES_PER_ABSENCE: u32 = 4;
const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);
