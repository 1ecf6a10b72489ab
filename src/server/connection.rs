//! One connection, and the single slot that the callers of a client share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};

use super::failure::Failure;

/// A multiplexed connection: commands sent on it are executed in the order of their sending.
#[derive(Clone)]
pub(crate) struct Connection {
    multiplexed: MultiplexedConnection,
    /// Tells one connection of this process from the next.
    number: u64,
    /// The server's name for it, where the server tells.
    client_id: Option<u64>,
    /// Counts the connection as taken where a user's pool gave it.
    _pooled: Option<Arc<deadpool_redis::Connection>>,
}

impl Connection {
    pub(super) fn new(
        multiplexed: MultiplexedConnection,
        pooled: Option<deadpool_redis::Connection>,
    ) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        Self {
            multiplexed,
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            client_id: None,
            _pooled: pooled.map(Arc::new),
        }
    }

    /// Names the connection and learns its id, as far as the server permits either.
    pub(super) async fn introduce(&mut self, name: Option<&str>, limit: Duration) {
        if let Some(name) = name {
            let mut set_name = redis::cmd("CLIENT");
            set_name.arg("SETNAME").arg(name);
            if let Err(failure) = self.send(&set_name, limit).await {
                tracing::debug!(?failure, "the server keeps no client name");
            }
        }
        let mut id = redis::cmd("CLIENT");
        id.arg("ID");
        self.client_id = match self.send(&id, limit).await {
            Ok(Value::Int(id)) => u64::try_from(id).ok(),
            _ => None,
        };
    }

    /// Sends one command and waits for its answer, `limit` at most.
    ///
    /// # Cancel safety
    ///
    /// Dropped before the command was written, it is never sent; after that it runs unseen.
    pub(crate) async fn send(&self, command: &Cmd, limit: Duration) -> Result<Value, Failure> {
        // A clone is a handle on the same socket, and sending needs one of its own.
        let mut handle = self.multiplexed.clone();
        match tokio::time::timeout(limit, handle.send_packed_command(command)).await {
            Err(_) => Err(Failure::Silent(limit)),
            Ok(answer) => answer
                .and_then(Value::extract_error)
                .map_err(|error| Failure::of_command(error, limit)),
        }
    }

    pub(crate) fn client_id(&self) -> Option<u64> {
        self.client_id
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

/// Where the current connection is kept; opening one is single flight.
#[derive(Default)]
pub(super) struct Slot {
    current: RwLock<Option<Connection>>,
    opening: tokio::sync::Mutex<()>,
}

impl Slot {
    pub(super) fn current(&self) -> Option<Connection> {
        self.current.read().clone()
    }

    /// The current connection, or the one that `open` makes.
    pub(super) async fn get<F>(&self, open: F) -> Result<Connection, Failure>
    where
        F: Future<Output = Result<Connection, Failure>>,
    {
        if let Some(current) = self.current() {
            return Ok(current);
        }
        let _single_flight = self.opening.lock().await;
        if let Some(current) = self.current() {
            return Ok(current);
        }
        let opened = open.await?;
        *self.current.write() = Some(opened.clone());
        Ok(opened)
    }

    pub(super) fn clear(&self) {
        *self.current.write() = None;
    }

    /// Takes `connection` out, unless another took its place already.
    pub(super) fn remove(&self, connection: &Connection) {
        let mut current = self.current.write();
        if current.as_ref().is_some_and(|found| found.is(connection)) {
            *current = None;
        }
    }
}
