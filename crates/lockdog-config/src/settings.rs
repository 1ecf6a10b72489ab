//! What a configuration means, as settings of lockdog.

use std::sync::Arc;
use std::time::Duration;

use lockdog::config::{Protocol, ReplicaAck, TlsSettings};
use lockdog::{Client, ClientBuilder};

/// The settings that a file has. What it does not have stays at lockdog's default. It has no `Debug`,
/// because it has passwords.
pub(crate) struct Settings {
    pub(crate) servers: Servers,
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: Option<u32>,
    pub(crate) client_name: Option<String>,
    pub(crate) command_timeout: Option<Duration>,
    pub(crate) watchdog_lease: Option<Duration>,
    pub(crate) fair_wait: Option<Duration>,
    pub(crate) lazy: Option<bool>,
    pub(crate) protocol: Option<Protocol>,
    pub(crate) replica_ack: Option<ReplicaAck>,
    pub(crate) tls: Option<TlsSettings>,
}

/// Where the locks are.
#[derive(Clone, Eq, PartialEq)]
pub(crate) enum Servers {
    One(String),
    Sentinels { master: String, urls: Vec<String> },
    Cluster(Vec<String>),
}

/// Maps a lock's name to a key.
pub(crate) type KeyMapper = Arc<dyn Fn(&str) -> String + Send + Sync>;

impl Settings {
    pub(crate) fn new(servers: Servers) -> Self {
        Self {
            servers,
            username: None,
            password: None,
            database: None,
            client_name: None,
            command_timeout: None,
            watchdog_lease: None,
            fair_wait: None,
            lazy: None,
            protocol: None,
            replica_ack: None,
            tls: None,
        }
    }

    pub(crate) fn builder(self) -> ClientBuilder {
        let builder = Client::builder();
        let mut builder = match self.servers {
            Servers::One(url) => builder.url(url),
            Servers::Sentinels { master, urls } => builder.sentinel(master, urls),
            Servers::Cluster(urls) => builder.cluster(urls),
        };
        if let Some(user) = self.username {
            builder = builder.username(user);
        }
        if let Some(password) = self.password {
            builder = builder.password(password);
        }
        if let Some(number) = self.database {
            builder = builder.database(number);
        }
        if let Some(name) = self.client_name {
            builder = builder.client_name(name);
        }
        if let Some(timeout) = self.command_timeout {
            builder = builder.command_timeout(timeout);
        }
        if let Some(lease) = self.watchdog_lease {
            builder = builder.watchdog_lease(lease);
        }
        if let Some(wait) = self.fair_wait {
            builder = builder.fair_wait(wait);
        }
        if let Some(lazy) = self.lazy {
            builder = builder.lazy(lazy);
        }
        if let Some(protocol) = self.protocol {
            builder = builder.protocol(protocol);
        }
        if let Some(ack) = self.replica_ack {
            builder = builder.replica_ack(ack);
        }
        if let Some(tls) = self.tls {
            builder = builder.tls(tls);
        }
        builder
    }
}
