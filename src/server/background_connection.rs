//! The watchdog's own connection, which no caller's runtime drives.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redis::Value;

use super::Context;
use super::connection::Connection;
use super::connection_slot::ConnectionSlot;
use super::endpoint::Endpoint;
use super::failure::Failure;
use super::single_flight::Attempt;
use crate::observe::Role;

/// A connection that the watchdog's thread opened for itself. It is reopened after it was
/// abandoned.
pub(crate) struct BackgroundConnection {
    slot: ConnectionSlot,
    /// The longest wait for one attempt to connect. It is short because renewals wait for it.
    timeout: Duration,
    /// Number of consecutive attempts that took all their time.
    late: Arc<AtomicU32>,
}

impl BackgroundConnection {
    pub(crate) fn new(context: &Context) -> Self {
        Self {
            slot: ConnectionSlot::new(&context.clock),
            timeout: (context.watchdog_lease / 6).max(SHORTEST_TIMEOUT),
            late: Arc::default(),
        }
    }

    pub(crate) fn current(&self) -> Option<Connection> {
        self.slot.current()
    }

    /// The connection, opened if there is none. All waiting jobs share one attempt, so hundreds of
    /// settlements for a silent server do not connect one after the other.
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
        // An attempt that hangs must not delay the next one, because renewals wait. But a distant
        // server needs more time than a short lease gives the first attempt, so each late attempt
        // doubles the limit.
        let times = 1 << late.load(Ordering::Relaxed).min(16);
        let timeout = (self.timeout * times).min(context.command_timeout.max(SHORTEST_TIMEOUT));
        let endpoint = endpoint.clone();
        let open = || async move {
            let opened = tokio::time::timeout(timeout, endpoint.open_for_renewals(timeout)).await;
            let Ok(opened) = opened else {
                late.fetch_add(1, Ordering::Relaxed);
                let late = Err(Failure::Unsent("no connection in time".into()));
                return endpoint.opened(Role::Watchdog, late);
            };
            late.store(0, Ordering::Relaxed);
            endpoint.opened(Role::Watchdog, opened)
        };
        let limit = limit.min(self.timeout);
        let opened = self.slot.get(context.background.runtime(), limit, open);
        // Boxed: it is rare, and would otherwise enlarge the future of every call.
        Box::pin(opened).await
    }

    /// Abandons a connection that broke or does not answer. The next use opens another one. Returns false if the
    /// current connection is another one.
    pub(crate) fn abandon(&self, connection: &Connection) -> bool {
        self.slot.remove(connection)
    }

    /// Closes the connection once no call waits for an answer on it.
    pub(super) fn close(&self) {
        self.slot.clear();
    }

    /// The attempt to connect.
    pub(super) fn attempt(&self) -> &dyn Attempt {
        self.slot.attempt()
    }

    /// Asks the server to close an abandoned connection, so that no command sent on it can run any
    /// more. True if it is closed. The user may lack the permission, or the connection's id or the server's
    /// identity may be unknown.
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
        // On another server, or after a restart, that id may belong to another client's connection. The client notices
        // neither if the server does not report its identity.
        let run = &connection.identity().run;
        if !run.is_known() || !connection.leads_to_same_server(old) {
            return false;
        }
        if let Some(doubts) = run.doubts() {
            // It may be another server since the old connection. That must be known before the command, not after it.
            let known = Box::pin(connection.clear_up(doubts, limit));
            let known = tokio::time::timeout(limit, known).await;
            if !matches!(known, Ok(Ok(()))) || run.reborn() != old.server_run().1 {
                return false;
            }
        }
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("ID").arg(id);
        let killed: Result<Value, Failure> = connection.send(&kill, limit).await;
        let killed = killed.is_ok();
        tracing::debug!(
            target: "lockdog::server",
            id, killed, "closing an abandoned connection"
        );
        killed
    }
}

/// Connecting takes some time, however short the leases are.
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(100);
