//! Settings of where the server is.

use std::sync::Arc;

use super::ClientBuilder;
use crate::server::Connector;
#[cfg(feature = "deadpool")]
use crate::server::UserPool;

impl ClientBuilder {
    /// The server: see [`Client::connect`](crate::Client::connect).
    pub fn url(mut self, url: impl AsRef<str>) -> Self {
        self.url = Some(url.as_ref().to_owned());
        self
    }

    /// The master that sentinels know by this name, and their URLs, with users and passwords of
    /// their own if they have any. Give all of them: those that answer are asked who the master is,
    /// and the one that knows the latest switch is believed. The master is connected to by TLS if the
    /// first sentinel is (`rediss://`) or [`ClientBuilder::master_tls`] says so; its user, password and
    /// database are those of [`ClientBuilder::username`] and its like. Instead of
    /// [`ClientBuilder::url`].
    ///
    /// When the sentinels have made another server the master, calls go there, every hold is looked
    /// for at once, and one that the new master does not have is told to be lost. A lease is extended
    /// only if a sentinel named this master within the last lease: with all sentinels gone, locks are
    /// lost at their deadlines.
    ///
    /// Corresponds to Redisson's `useSentinelServers()`.
    pub fn sentinel<U: AsRef<str>>(
        mut self,
        master_name: impl Into<String>,
        urls: impl IntoIterator<Item = U>,
    ) -> Self {
        let urls = urls.into_iter().map(|url| url.as_ref().to_owned());
        self.sentinel = Some((master_name.into(), urls.collect()));
        self
    }

    /// The cluster that the nodes at these URLs are of. One that answers is enough to find the others;
    /// name several. They are connected to with user, password and TLS of the first, or with those of
    /// [`ClientBuilder::username`] and its like. Instead of [`ClientBuilder::url`].
    ///
    /// Each lock is kept by the master that has its slot. A name whose braces would put the lock and
    /// its channel into different slots is [`Error::Invalid`](crate::Error::Invalid). When a slot gets
    /// another master, calls go there, every hold in it is looked for at once, and one that the new
    /// master does not have is told to be lost. A lease is extended only if another node of the
    /// cluster said within the last lease that this master is one.
    ///
    /// Corresponds to Redisson's `useClusterServers()`.
    pub fn cluster<U: AsRef<str>>(mut self, urls: impl IntoIterator<Item = U>) -> Self {
        let urls = urls.into_iter().map(|url| url.as_ref().to_owned());
        self.cluster = Some(urls.collect());
        self
    }

    /// What opens connections to the server, in place of a URL; users, passwords, database and protocol
    /// are those of [`ClientBuilder::username`] and its like. Instead of [`ClientBuilder::url`].
    ///
    /// Where its [`Connector::time`] is [`Time::Tokio`](crate::config::Time::Tokio), leases run by tokio's clock,
    /// and what the client does in the background is a task of the runtime that it is built on.
    ///
    /// Redisson has nothing like it.
    pub fn connector(mut self, connector: impl Connector) -> Self {
        self.connectors.push(Arc::new(connector));
        self
    }

    /// The number of the database, in place of that in the URL.
    ///
    /// Defaults to the URL's, or 0. Corresponds to Redisson's `database`.
    pub fn database(mut self, number: u32) -> Self {
        self.database = Some(number);
        self
    }

    /// A pool of yours, for the commands of callers. One connection is taken from it and kept.
    ///
    /// A pool cannot be asked for connections that hear messages. Give the URL too; with a pool
    /// alone, waits poll ([`Wake::Poll`](crate::config::Wake::Poll)) and the watchdog takes a second connection
    /// from the pool.
    ///
    /// A pool's connections queue 50 commands each. Once more calls than that are begun on one
    /// runtime and not polled again, the other calls of that runtime time out. Connections that the
    /// client opens itself have no such limit.
    #[cfg(feature = "deadpool")]
    pub fn pool(mut self, pool: deadpool_redis::Pool) -> Self {
        self.pool = Some(UserPool::new(pool));
        self
    }
}
