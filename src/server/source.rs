//! Where connections come from: a URL, or a pool that the user brought.

use std::fmt;
use std::time::Duration;

use redis::aio::{MultiplexedConnection, PubSub};
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

use super::connection::Connection;
use super::failure::Failure;
use crate::error::Error;

/// Opens connections to one server.
pub(crate) struct Source {
    url: Option<redis::Client>,
    pool: Option<deadpool_redis::Pool>,
    name: Option<String>,
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
    ) -> Result<Self, Error> {
        if url.is_none() && pool.is_none() {
            return Err(Error::invalid("client", "give a url or a pool".to_owned()));
        }
        let url = url.map(parse).transpose()?;
        Ok(Self {
            url,
            pool,
            name,
            #[cfg(test)]
            simulated: None,
        })
    }

    #[cfg(test)]
    pub(crate) fn simulated(wiring: crate::simulation::Wiring) -> Self {
        Self {
            url: None,
            pool: None,
            name: None,
            simulated: Some(wiring),
        }
    }

    /// Where connections go, without user or password: `host:port`, or the path of a socket.
    pub(crate) fn address(&self) -> String {
        let url = self.url.as_ref();
        url.map_or_else(
            || "pool".to_owned(),
            |client| client.get_connection_info().addr().to_string(),
        )
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
        let connection = Connection::new(multiplexed, Some(pooled));
        connection.introduce(None, limit).await?;
        Ok(connection)
    }

    /// A connection that nobody else uses; from the pool where no URL is known.
    pub(crate) async fn open_own(&self, limit: Duration) -> Result<Connection, Failure> {
        #[cfg(test)]
        if let Some(wiring) = &self.simulated {
            return wiring.open().await.map(Connection::simulated);
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
        let connection = Connection::new(multiplexed, None);
        connection.introduce(self.name.as_deref(), limit).await?;
        Ok(connection)
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

/// Shows where connections go, never with what password.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self
            .url
            .as_ref()
            .map(|client| client.get_connection_info().addr().to_string());
        f.debug_struct("Source")
            .field("address", &address)
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
