//! Tests of the test harness. A fault that does not happen would make each test with it meaningless.

mod cells;
mod clusters;
mod commands;
mod deployments;
mod network;
mod observers;
mod servers;

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisResult, Value};

use crate::support::prelude::SOON;

/// A client that sends nothing twice.
struct Plain {
    connection: MultiplexedConnection,
}

impl Plain {
    async fn connect(url: &str) -> Self {
        let connected = Self::connect_within(SOON, url).await;
        connected.expect("the server is reachable")
    }

    /// For a server that does not answer.
    async fn try_connect(url: &str) -> RedisResult<Self> {
        Self::connect_within(PATIENCE, url).await
    }

    async fn connect_within(time: Duration, url: &str) -> RedisResult<Self> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(time))
            .set_response_timeout(Some(SOON));
        let client = Client::open(url)?;
        let connection = client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        Ok(Self { connection })
    }

    async fn send(&self, args: &[&str]) -> RedisResult<Value> {
        let mut command = redis::cmd(args[0]);
        command.arg(&args[1..]);
        command.query_async(&mut self.connection.clone()).await
    }

    async fn incr(&self) -> RedisResult<Value> {
        self.send(&["INCR", "n"]).await
    }

    /// Whether an INCR has no answer. The client abandons it.
    async fn incr_is_unanswered(&self) -> bool {
        tokio::time::timeout(PATIENCE, self.incr()).await.is_err()
    }
}

/// Long compared with a round trip on one machine, and short for a test.
const PATIENCE: Duration = Duration::from_secs(2);
