//! Shared code for opening connections and reading answers.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, Value};

use super::failure::Failure;
use crate::error::Error;

/// The redis-rs client for this address.
pub(super) fn client(info: ConnectionInfo) -> Result<redis::Client, Error> {
    // All errors in it were found when it was parsed.
    redis::Client::open(info).map_err(|_| Error::invalid("url", "it cannot be used".to_owned()))
}

/// Connects within `limit`. Every call has its own time limit.
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

/// The password that is sent to the server.
pub(super) fn password(info: &ConnectionInfo) -> Option<&str> {
    info.redis_settings().password()
}

/// The address for another host and port, with the same TLS settings.
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

/// The text of an answer.
pub(super) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => str::from_utf8(bytes).ok(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => Some(text),
        _ => None,
    }
}

/// The value of one field of INFO.
pub(super) fn field<'a>(info: &'a Value, name: &str) -> Option<&'a str> {
    let text = text(info)?;
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    // An id has forty hexadecimal digits. A longer value is no id.
    (value.len() <= LONGEST_ID).then_some(value)
}

const LONGEST_ID: usize = 64;
/// How many commands a connection queues before callers have to wait for space. The limit is never
/// reached. If it were, a free place would go to the caller that waited longest, and a caller whose
/// future is not polled would block all others (design: invariant 14). Nor would the order of batches be that of
/// their first polls. Memory is allocated as needed.
const QUEUED: usize = 1 << 20;
