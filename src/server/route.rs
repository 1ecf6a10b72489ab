//! The route of a command.

use std::sync::Arc;
use std::time::Duration;

use super::connection::Connection;
use super::failure::Failure;
use super::node::Node;

/// The server that has a key, by the map or by a redirection.
pub(crate) struct Route {
    pub(super) node: Arc<Node>,
    /// The slot is being moved there, so the route is valid for one command only.
    pub(super) asking: bool,
}

impl Route {
    /// The route to the server that the map names for the key.
    pub(crate) fn plain(node: Arc<Node>) -> Self {
        let asking = false;
        Self { node, asking }
    }

    /// The watchdog's connection to this server: see [`Node::own_connection`].
    pub(crate) async fn own_connection(&self, limit: Duration) -> Result<Connection, Failure> {
        let connection = self.node.own_connection(limit).await?;
        Ok(self.on(connection))
    }

    /// Equal for all routes to one server.
    pub(crate) fn address_in_memory(&self) -> usize {
        Arc::as_ptr(&self.node) as usize
    }

    /// The connection, prepared for this command.
    pub(super) fn on(&self, connection: Connection) -> Connection {
        if self.asking {
            connection.asking()
        } else {
            connection
        }
    }
}
