//! A connection of the background's own, that no caller's runtime drives.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::Value;

use super::connection::{Connection, Slot};
use super::failure::Failure;
use super::source::Source;

/// A connection that the watchdog's thread opened for itself; reopened when it is given up.
pub(crate) struct Private {
    slot: Slot,
    /// Whoever opens it, renewals wait for that: so long at most.
    patience: Duration,
    /// How many attempts to open it failed.
    failed: AtomicU64,
}

impl Private {
    /// For the renewal of leases of this length.
    pub(crate) fn new(lease: Duration) -> Self {
        Self {
            slot: Slot::default(),
            patience: (lease / 6).max(SHORTEST_PATIENCE),
            failed: AtomicU64::new(0),
        }
    }

    /// The connection, opened if there is none. One attempt is for all who wait for it: hundreds that
    /// owe something to a silent server shall not try one after the other.
    pub(crate) async fn connection(
        &self,
        source: &Source,
        limit: Duration,
    ) -> Result<Connection, Failure> {
        let limit = limit.min(self.patience);
        let failed = self.failed.load(Ordering::Relaxed);
        let open = async {
            if self.failed.load(Ordering::Relaxed) != failed {
                return Err(Failure::Unsent("no connection a moment ago".into()));
            }
            let opening = Opening {
                failed: &self.failed,
            };
            let opened = source.open_own(limit).await?;
            std::mem::forget(opening);
            Ok(opened)
        };
        // Boxed: what opens a connection is large, and part of every call otherwise.
        let opened = self.slot.get(Box::pin(open));
        tokio::time::timeout(limit, opened)
            .await
            .unwrap_or_else(|_| Err(Failure::Unsent("no connection in time".into())))
    }

    /// Gives up a connection that broke or does not answer: the next one who asks opens another.
    pub(crate) fn abandon(&self, connection: &Connection) {
        self.slot.remove(connection);
    }

    /// Asks the server to close a connection that was given up, so that nothing sent on it runs any
    /// more. Best effort: it may not be permitted, and its id may not be known.
    pub(crate) async fn kill(&self, source: &Source, old: &Connection, limit: Duration) {
        let Some(id) = old.client_id() else { return };
        let Ok(connection) = self.connection(source, limit).await else {
            return;
        };
        // At another server, or after its restart, that id is somebody else's.
        if !connection.leads_where(old) {
            return;
        }
        let mut kill = redis::cmd("CLIENT");
        kill.arg("KILL").arg("ID").arg(id);
        let killed: Result<Value, Failure> = connection.send(&kill, limit).await;
        tracing::debug!(id, ?killed, "closing a connection that was given up");
    }
}

/// An attempt under way. Dropped, it has failed.
struct Opening<'a> {
    failed: &'a AtomicU64,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }
}

/// A connection takes a moment, however short the leases are.
const SHORTEST_PATIENCE: Duration = Duration::from_millis(100);
