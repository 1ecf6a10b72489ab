//! Where a command is to go.

use std::sync::Arc;
use std::time::Duration;

use super::connection::Connection;
use super::failure::Failure;
use super::node::Node;

/// The server that has a key, or is said to have it.
pub(crate) struct Route {
    pub(super) node: Arc<Node>,
    /// For one command only: the slot is being moved there.
    pub(super) asking: bool,
}

impl Route {
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

    /// The same for all places at one server.
    pub(crate) fn address_in_memory(&self) -> usize {
        Arc::as_ptr(&self.node) as usize
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
