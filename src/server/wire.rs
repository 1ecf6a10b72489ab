//! What is the same wherever a connection is opened or an answer read.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, Value};

use super::connector::{Connector, Transport};
use super::failure::Failure;

/// Connects within `limit`. Every call brings a time limit of its own.
pub(super) async fn open(
    client: &redis::Client,
    limit: Duration,
) -> Result<MultiplexedConnection, Failure> {
    let config = config().set_connection_timeout(Some(limit));
    let opened = client.get_multiplexed_async_connection_with_config(&config);
    let refused = |error| Failure::of_connect(&error, password(client.get_connection_info()));
    opened.await.map_err(refused)
}

/// As [`open`], over a stream of the user's. Every call brings a time limit of its own.
pub(super) async fn open_over(
    connector: &dyn Connector,
    client: &redis::Client,
) -> Result<MultiplexedConnection, Failure> {
    let (stream, info) = (stream(connector).await?, client.get_connection_info());
    let settings = info.redis_settings();
    let opened = MultiplexedConnection::new_with_config(settings, stream, config()).await;
    let (connection, driver) =
        opened.map_err(|error| Failure::of_connect(&error, password(info)))?;
    #[expect(
        clippy::disallowed_methods,
        reason = "it ends with the last handle on the connection, as redis-rs' own"
    )]
    tokio::spawn(driver);
    Ok(connection)
}

fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_pipeline_buffer_size(QUEUED)
}

/// A connection for messages over a stream of the user's.
pub(super) async fn open_pubsub_over(
    connector: &dyn Connector,
    client: &redis::Client,
) -> Result<PubSub, Failure> {
    let (stream, info) = (stream(connector).await?, client.get_connection_info());
    let opened = PubSub::new(info.redis_settings(), stream).await;
    opened.map_err(|error| Failure::of_connect(&error, password(info)))
}

/// The connector is the user's code: its panic is a failed attempt, and must not end the watchdog.
async fn stream(connector: &dyn Connector) -> Result<Box<dyn Transport>, Failure> {
    let connecting = AssertUnwindSafe(async { connector.connect().await });
    match connecting.catch_unwind().await {
        Ok(opened) => opened.map_err(|error| Failure::Unsent(error.to_string().into())),
        Err(_panic) => Err(Failure::Unsent("the connector panicked".into())),
    }
}

/// The password that the server is to be told.
pub(super) fn password(info: &ConnectionInfo) -> Option<&str> {
    info.redis_settings().password()
}

/// Another host and port that are connected to as this one is: by TLS or not.
pub(super) fn address_like(info: &ConnectionInfo, host: String, port: u16) -> ConnectionAddr {
    match info.addr() {
        ConnectionAddr::TcpTls {
            insecure,
            tls_params,
            ..
        } => ConnectionAddr::TcpTls {
            host,
            port,
            insecure: *insecure,
            tls_params: tls_params.clone(),
        },
        _ => ConnectionAddr::Tcp(host, port),
    }
}

/// An answer that is text.
pub(super) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => str::from_utf8(bytes).ok(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

/// A connection queues so many commands before it makes callers wait for a place. It never comes to
/// that: a free place goes to the caller that has waited longest, and one whose future is not polled
/// would keep it from all others (design: invariant 14). Memory is taken as commands come.
const QUEUED: usize = 1 << 20;
