//! What is the same wherever a connection is opened or an answer read.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, Value};

use super::failure::Failure;
use crate::error::Error;

/// What connects to this address.
pub(super) fn client(info: ConnectionInfo) -> Result<redis::Client, Error> {
    // What could be wrong with it was found when it was read.
    redis::Client::open(info).map_err(|_| Error::invalid("url", "it cannot be used".to_owned()))
}

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

pub(super) fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_response_timeout(None)
        .set_pipeline_buffer_size(QUEUED)
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
