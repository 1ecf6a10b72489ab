//! Shared code for opening connections and reading answers.

use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, Value};

use super::failure::Failure;
use crate::error::Error;
use crate::panics;

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
    let opening = async {
        let opened = client.get_multiplexed_async_connection_with_config(&config);
        let refused = |error| Failure::of_connect(&error, password(client.get_connection_info()));
        opened.await.map_err(refused)
    };
    isolated(Box::pin(opening)).await
}

/// Drives an attempt to connect. A panic in it is a failed attempt: tokio panics if the system starts no thread for the
/// lookup of a host name. The loop of the client's own thread connects too, and a panic of the loop loses every lock.
pub(super) async fn isolated<T>(
    connecting: BoxFuture<'_, Result<T, Failure>>,
) -> Result<T, Failure> {
    let connected = panics::catch_in(connecting).await;
    connected.unwrap_or_else(|| Err(Failure::Unsent(PANICKED.into())))
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
const PANICKED: &str = "the attempt to connect panicked: the system may have no thread left for the lookup of the \
                        host name";
/// How many commands a connection queues before callers have to wait for space. The limit is never
/// reached. If it were, a free place would go to the caller that waited longest, and a caller whose
/// future is not polled would block all others (design: invariant 14). Nor would the order of batches be that of
/// their first polls. Memory is allocated as needed.
const QUEUED: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    async fn without_a_thread() -> Result<(), Failure> {
        panic!("OS can't spawn worker thread");
    }

    #[tokio::test]
    async fn an_attempt_to_connect_that_panics_has_failed() {
        let connected = isolated(Box::pin(without_a_thread())).await;
        assert!(matches!(connected, Err(Failure::Unsent(_))));
    }
}
