//! Where connections come from: a URL, or a pool that the user brought.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::{MultiplexedConnection, PubSub};
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

use super::connection::Connection;
use super::failure::Failure;
use super::identity::Identity;
use crate::clock::Clock;
use crate::error::Error;

/// Opens connections to one server.
pub(crate) struct Source {
    url: Option<redis::Client>,
    pool: Option<deadpool_redis::Pool>,
    name: Option<String>,
    /// Who the server is, as its connections learn it.
    identity: Arc<Identity>,
    /// Takes the place of both.
    #[cfg(test)]
    simulated: Option<crate::simulation::Wiring>,
}

impl Source {
    /// At least one of `url` and `pool` is there: callers' commands prefer the pool, everything
    /// that runs on lockdog's own thread the URL.
    pub(crate) fn new(
        url: Option<&str>,
        pool: Option<deadpool_redis::Pool>,
        name: Option<String>,
        clock: &Clock,
    ) -> Result<Self, Error> {
        if url.is_none() && pool.is_none() {
            return Err(Error::invalid("client", "give a url or a pool".to_owned()));
        }
        let url = url.map(parse).transpose()?;
        let address = address(url.as_ref());
        Ok(Self {
            identity: Arc::new(Identity::new(clock.clone(), address)),
            url,
            pool,
            name,
            #[cfg(test)]
            simulated: None,
        })
    }

    #[cfg(test)]
    pub(crate) fn simulated(wiring: crate::simulation::Wiring, clock: &Clock) -> Self {
        Self {
            url: None,
            pool: None,
            name: None,
            identity: Arc::new(Identity::new(clock.clone(), "simulated".to_owned())),
            simulated: Some(wiring),
        }
    }

    /// A connection for callers' commands. It is driven by the runtime that this is called on.
    pub(crate) async fn open(&self, limit: Duration) -> Result<Connection, Failure> {
        let Some(pool) = &self.pool else {
            return self.open_own(limit).await;
        };
        let pooled = pool.get().await.map_err(|error| match &error {
            deadpool_redis::PoolError::Backend(error) => Failure::of_connect(error),
            // A pool says nothing secret: that it timed out, or is closed.
            _ => Failure::Unsent(error.to_string().into()),
        })?;
        let mut multiplexed: MultiplexedConnection = pooled.as_ref().clone();
        // Every call brings a time limit of its own; the pool's would cut it short.
        multiplexed.set_response_timeout(NO_LIMIT);
        let connection = Connection::new(multiplexed, &self.identity, Some(pooled));
        connection.introduce(None, limit).await?;
        Ok(connection)
    }

    /// A connection that nobody else uses; from the pool where no URL is known.
    pub(crate) async fn open_own(&self, limit: Duration) -> Result<Connection, Failure> {
        #[cfg(test)]
        if let Some(wiring) = &self.simulated {
            let wire = wiring.open().await?;
            return Ok(Connection::simulated(wire, &self.identity));
        }
        let Some(client) = &self.url else {
            return Box::pin(self.open(limit)).await;
        };
        // Every call brings a time limit of its own.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(limit))
            .set_response_timeout(None);
        let multiplexed = client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(|error| Failure::of_connect(&error))?;
        let connection = Connection::new(multiplexed, &self.identity, None);
        connection.introduce(self.name.as_deref(), limit).await?;
        Ok(connection)
    }

    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Host and port, a unix socket's path, or "pool"; never a user or password.
    pub(super) fn address(&self) -> String {
        address(self.url.as_ref())
    }

    /// A connection for messages, where a URL is known.
    pub(crate) async fn open_pubsub(&self) -> Result<PubSub, Failure> {
        let Some(client) = &self.url else {
            return Err(Failure::Unsent("a pool alone brings no messages".into()));
        };
        client
            .get_async_pubsub()
            .await
            .map_err(|error| Failure::of_connect(&error))
    }
}

/// Where connections go: a host and port or a path, or a pool of which nothing is known.
fn address(url: Option<&redis::Client>) -> String {
    let client = url.map(|client| client.get_connection_info().addr().to_string());
    client.unwrap_or_else(|| "pool".to_owned())
}

/// Shows where connections go, never with what password.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("address", &self.address())
            .field("pool", &self.pool.is_some())
            .finish_non_exhaustive()
    }
}

fn parse(url: &str) -> Result<redis::Client, Error> {
    // The URL may hold a password, so no part of it may reach the message.
    // redis-rs puts what it was given behind its own words.
    let refuse = |error: redis::RedisError| {
        let text = error.to_string();
        let words = text.split(" - ").next().unwrap_or_default();
        Error::invalid("url", words.to_owned())
    };
    let info: ConnectionInfo = url.into_connection_info().map_err(refuse)?;
    if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
        choose_crypto();
    }
    let nodelay = TcpSettings::default().set_nodelay(true);
    redis::Client::open(info.set_tcp_settings(nodelay)).map_err(refuse)
}

/// rustls panics at the first connection of a process that chose no cryptography; one that did keeps
/// its choice.
#[cfg(feature = "tls")]
fn choose_crypto() {
    let _already_chosen = rustls::crypto::ring::default_provider().install_default();
}

/// Without the feature redis-rs refuses the URL, with words of its own.
#[cfg(not(feature = "tls"))]
fn choose_crypto() {}

/// Longer than the longest command timeout.
const NO_LIMIT: Duration = Duration::from_secs(7 * 24 * 60 * 60);
