//! One connection, and the single slot that the callers of a client share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::RwLock;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value};

use super::failure::Failure;

/// A multiplexed connection: commands sent on it are executed in the order of their sending.
#[derive(Clone)]
pub(crate) struct Connection {
    // One count to raise for each clone: every command takes one.
    inner: Arc<Inner>,
}

struct Inner {
    wire: Wire,
    /// Tells one connection of this process from the next.
    number: u64,
    /// The server's name for it, where the server tells.
    client_id: OnceLock<u64>,
    /// Counts the connection as taken where a user's pool gave it.
    _pooled: Option<deadpool_redis::Connection>,
}

/// What carries a connection's commands.
enum Wire {
    Socket(MultiplexedConnection),
    #[cfg(test)]
    Simulated(crate::simulation::Wire),
}

impl Connection {
    pub(super) fn new(
        multiplexed: MultiplexedConnection,
        pooled: Option<deadpool_redis::Connection>,
    ) -> Self {
        Self::over(Wire::Socket(multiplexed), pooled)
    }

    #[cfg(test)]
    pub(super) fn simulated(wire: crate::simulation::Wire) -> Self {
        let id = wire.client_id();
        let connection = Self::over(Wire::Simulated(wire), None);
        connection.inner.client_id.get_or_init(|| id);
        connection
    }

    fn over(wire: Wire, pooled: Option<deadpool_redis::Connection>) -> Self {
        Self {
            inner: Arc::new(Inner {
                wire,
                number: next_number(),
                client_id: OnceLock::new(),
                _pooled: pooled,
            }),
        }
    }

    /// Names the connection and learns its id, as far as the server permits either.
    /// Fails where it may do nothing at all, since redis-rs connects without a password gladly.
    pub(super) async fn introduce(
        &self,
        name: Option<&str>,
        limit: Duration,
    ) -> Result<(), Failure> {
        if let Some(name) = name {
            let mut set_name = redis::cmd("CLIENT");
            set_name.arg("SETNAME").arg(name);
            if let Err(failure) = self.send(&set_name, limit).await {
                tracing::debug!(?failure, "the server keeps no client name");
            }
        }
        let mut id = redis::cmd("CLIENT");
        id.arg("ID");
        match self.send(&id, limit).await {
            Ok(Value::Int(id)) => {
                let id = u64::try_from(id).ok();
                id.map(|id| self.inner.client_id.get_or_init(|| id));
                Ok(())
            }
            Err(Failure::Refused { code, message }) if code == "NOAUTH" => {
                Err(Failure::Refused { code, message })
            }
            _ => Ok(()),
        }
    }

    /// Sends one command and waits for its answer, `limit` at most.
    ///
    /// # Cancel safety
    ///
    /// Dropped before the command was written, it is never sent; after that it runs unseen.
    pub(crate) async fn send(&self, command: &Cmd, limit: Duration) -> Result<Value, Failure> {
        match tokio::time::timeout(limit, self.inner.wire.send(command)).await {
            Err(_) => Err(Failure::Silent(limit)),
            Ok(answer) => answer
                .and_then(Value::extract_error)
                .map_err(|error| Failure::of_command(error, limit)),
        }
    }

    pub(crate) fn client_id(&self) -> Option<u64> {
        self.inner.client_id.get().copied()
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        self.inner.number == other.inner.number
    }
}

impl Wire {
    async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        match self {
            Self::Socket(multiplexed) => {
                // A clone is a handle on the same socket, and sending needs one of its own.
                multiplexed.clone().send_packed_command(command).await
            }
            #[cfg(test)]
            Self::Simulated(wire) => wire.send(command).await,
        }
    }
}

fn next_number() -> u64 {
    static NUMBER: AtomicU64 = AtomicU64::new(1);
    NUMBER.fetch_add(1, Ordering::Relaxed)
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

    /// Takes out whatever is there.
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
