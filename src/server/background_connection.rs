//! A connection of the background's own, that no caller's runtime drives.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redis::Value;

use super::Context;
use super::connection::Connection;
use super::connection_slot::ConnectionSlot;
use super::endpoint::Endpoint;
use super::failure::Failure;

/// A connection that the watchdog's thread opened for itself; reopened when it is given up.
pub(crate) struct BackgroundConnection {
    slot: ConnectionSlot,
    /// Whoever needs it waits so long at most: renewals are among them.
    patience: Duration,
    /// How many attempts in a row took all the time that they had.
    late: Arc<AtomicU32>,
}

impl BackgroundConnection {
    pub(crate) fn new(context: &Context) -> Self {
        Self {
            slot: ConnectionSlot::new(&context.clock),
            patience: (context.watchdog_lease / 6).max(SHORTEST_PATIENCE),
            late: Arc::default(),
        }
    }

    pub(crate) fn current(&self) -> Option<Connection> {
        self.slot.current()
    }

    /// The connection, opened if there is none. One attempt is for all who wait for it: hundreds that
    /// owe something to a silent server do not try one after the other.
    pub(crate) async fn connection(
        &self,
        endpoint: &Arc<Endpoint>,
        context: &Context,
        limit: Duration,
    ) -> Result<Connection, Failure> {
        if let Some(current) = self.slot.current() {
            return Ok(current);
        }
        let late = self.late.clone();
        // An attempt that hangs must not keep renewals from another one; but a server that is far away
        // needs more time than short leases leave to the first one.
        let times = 1 << late.load(Ordering::Relaxed).min(16);
        let patience = (self.patience * times).min(context.command_timeout.max(SHORTEST_PATIENCE));
        let endpoint = endpoint.clone();
        let open = || async move {
            let opened = tokio::time::timeout(patience, endpoint.open_for_renewals(patience)).await;
            let Ok(opened) = opened else {
                late.fetch_add(1, Ordering::Relaxed);
                return Err(Failure::Unsent("no connection in time".into()));
            };
            late.store(0, Ordering::Relaxed);
            opened
        };
        let limit = limit.min(self.patience);
        let opened = self.slot.get(context.background.runtime(), limit, open);
        // Boxed: it is rare, and part of every call otherwise.
        Box::pin(opened).await
    }

    /// Gives up a connection that broke or does not answer: the next one who asks opens another.
    pub(crate) fn abandon(&self, connection: &Connection) {
        self.slot.remove(connection);
    }

    /// It may be opened at once: see [`SingleFlight::retry_now`](super::single_flight::SingleFlight::retry_now).
    pub(crate) fn retry_now(&self) {
        self.slot.retry_now();
    }

    #[cfg(test)]
    pub(crate) fn is_delayed(&self) -> bool {
        self.slot.is_delayed()
    }

    /// Asks the server to close a connection that was given up, so that nothing sent on it runs any
    /// more; true if it is closed. It may not be permitted, and its id may not be known.
    pub(crate) async fn kill(
        &self,
        endpoint: &Arc<Endpoint>,
        context: &Context,
        old: &Connection,
        limit: Duration,
    ) -> bool {
        let Some(id) = old.client_id() else {
            return false;
        };
        let Ok(connection) = self.connection(endpoint, context, limit).await else {
            return false;
        };
        // At another server, or after its restart, that id is somebody else's.
        if !connection.leads_where(old) {
            return false;
        }
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("ID").arg(id);
        let killed: Result<Value, Failure> = connection.send(&kill, limit).await;
        tracing::debug!(
            target: "lockdog::server",
            id, ?killed, "closing a connection that was given up"
        );
        killed.is_ok()
    }
}

/// A connection takes a moment, however short the leases are.
const SHORTEST_PATIENCE: Duration = Duration::from_millis(100);
