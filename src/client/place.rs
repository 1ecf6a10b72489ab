//! The settings that say which servers the client connects to.

use std::sync::Arc;

use super::ClientBuilder;
use crate::server::Connector;
#[cfg(feature = "deadpool")]
use crate::server::UserPool;

impl ClientBuilder {
    /// The URL of the server, the sentinels or the cluster. [`Client::connect`](crate::Client::connect)
    /// lists the forms. Corresponds to Redisson's `useSingleServer().setAddress(address)`.
    pub fn url(mut self, url: impl AsRef<str>) -> Self {
        self.url = Some(url.as_ref().to_owned());
        self
    }

    /// Connects by Sentinel, in place of [`ClientBuilder::url`]. `master_name` is the name from
    /// `sentinel monitor`. `urls` lists every sentinel; a URL may have the sentinel's user and password.
    /// The client asks the sentinels that answer for the master, and the highest config epoch wins. The
    /// connection to the master uses TLS if the first sentinel's URL is `rediss://` or
    /// [`ClientBuilder::master_tls`] says so. [`ClientBuilder::username`] and the related settings set the
    /// master's user, password and database.
    ///
    /// After a failover, calls go to the new master. The client checks every hold there immediately, and
    /// reports a hold that is missing as lost. It extends a lease only if a sentinel named this master
    /// within the last lease, so without sentinels locks are lost at their deadlines.
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

    /// Connects to a cluster, in place of [`ClientBuilder::url`]. One node that answers is enough to find
    /// the others; name several. The client uses the user, password and TLS of the first URL for all
    /// nodes, or those of [`ClientBuilder::username`] and the related settings.
    ///
    /// The master of a lock's slot keeps the lock. A name whose braces put the lock and its channel into
    /// different slots is [`Error::Invalid`](crate::Error::Invalid). If a slot gets another master, calls
    /// go there. The client checks every hold of the slot there immediately, and reports a hold that is
    /// missing as lost. It extends a lease only if another node of the cluster named this master within
    /// the last lease.
    ///
    /// Corresponds to Redisson's `useClusterServers()`.
    pub fn cluster<U: AsRef<str>>(mut self, urls: impl IntoIterator<Item = U>) -> Self {
        let urls = urls.into_iter().map(|url| url.as_ref().to_owned());
        self.cluster = Some(urls.collect());
        self
    }

    /// Opens the connections to the server with your own [`Connector`], in place of
    /// [`ClientBuilder::url`]. [`ClientBuilder::username`] and the related settings set the user, password,
    /// database and protocol.
    ///
    /// If [`Connector::time`] returns [`Time::Tokio`](crate::config::Time::Tokio), leases follow tokio's
    /// clock, and the client's background is a task of the runtime where the client is built.
    pub fn connector(mut self, connector: impl Connector) -> Self {
        self.connectors.push(Arc::new(connector));
        self
    }

    /// The number of the database. It replaces the number in the URL.
    ///
    /// Defaults to the number in the URL, or 0. A cluster has only database 0. Corresponds to Redisson's
    /// `database`.
    pub fn database(mut self, number: u32) -> Self {
        self.database = Some(number);
        self
    }

    /// Uses your pool for the commands of callers. The client takes one connection from it and keeps
    /// it. Redisson has pools of its own.
    ///
    /// A pool has no connections for messages, so set the URL too. With a pool alone, waiters poll
    /// ([`Wake::Poll`](crate::config::Wake::Poll)) and the watchdog takes a second connection from the
    /// pool. The pool's `max_size` must then be at least 2, or 3 with [`ClientBuilder::replica_ack`]. A pool
    /// cannot be used with sentinels or a cluster.
    ///
    /// A connection of a pool queues 50 commands. If more calls than that start on one runtime and are
    /// not polled again, the other calls of that runtime time out. Connections that the client opens
    /// itself have no such limit.
    #[cfg(feature = "deadpool")]
    pub fn pool(mut self, pool: deadpool_redis::Pool) -> Self {
        self.pool = Some(UserPool::new(pool));
        self
    }
}
