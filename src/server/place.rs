//! Where a command is to go.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::SemaphorePermit;

use super::connection::Connection;
use super::failure::Failure;
use super::node::Node;

/// The server that has a key, or is said to have it.
pub(crate) struct Place {
    pub(super) node: Arc<Node>,
    /// For one command only: the slot is being moved there.
    pub(super) asking: bool,
}

impl Place {
    /// Where the key is as far as is known.
    pub(crate) fn plain(node: Arc<Node>) -> Self {
        let asking = false;
        Self { node, asking }
    }

    /// The watchdog's connection there: see [`Node::own_connection`].
    pub(crate) async fn own_connection(&self, limit: Duration) -> Result<Connection, Failure> {
        let connection = self.node.own_connection(limit).await?;
        Ok(self.on(connection))
    }

    /// Waits until there is room for another question of the background's: see [`Node::room`].
    pub(crate) async fn room(&self) -> Option<SemaphorePermit<'_>> {
        self.node.room().await
    }

    /// The connection, for this command.
    pub(super) fn on(&self, connection: Connection) -> Connection {
        if self.asking {
            connection.asking()
        } else {
            connection
        }
    }
}
