//! Holds a connection that the background drives.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::runtime::Handle;

use super::connection::Connection;
use super::failure::Failure;
use super::single_flight::{Attempt, SingleFlight};
use crate::clock::Clock;

/// Holds a connection that the background drives. Only one attempt to open it runs at a time.
pub(super) struct ConnectionSlot {
    current: Arc<RwLock<Option<Connection>>>,
    opening: SingleFlight<Connection>,
}

impl ConnectionSlot {
    pub(super) fn new(clock: &Clock) -> Self {
        Self {
            current: Arc::default(),
            opening: SingleFlight::new(clock),
        }
    }

    pub(super) fn current(&self) -> Option<Connection> {
        let current = self.current.read();
        current.as_ref().filter(|it| it.is_current()).cloned()
    }

    /// The current connection, or one that `open` opens on this runtime, within `limit`.
    ///
    /// # Cancel safety
    ///
    /// The attempt continues for the next caller.
    pub(super) async fn get<F>(
        &self,
        runtime: &Handle,
        limit: Duration,
        open: impl FnOnce() -> F,
    ) -> Result<Connection, Failure>
    where
        F: Future<Output = Result<Connection, Failure>> + Send + 'static,
    {
        let open = || {
            let (current, open) = (self.current.clone(), open());
            async move {
                let opened = open.await?;
                *current.write() = Some(opened.clone());
                Ok(opened)
            }
        };
        let there = || self.current();
        self.opening.get_unless(runtime, limit, there, open).await
    }

    /// Removes the connection and ends the attempt to open another one.
    pub(super) fn clear(&self) {
        self.opening.abort();
        *self.current.write() = None;
    }

    /// Removes `connection`, which is abandoned, unless another one has replaced it. Returns whether it was there.
    pub(super) fn remove(&self, connection: &Connection) -> bool {
        connection.leave();
        let mut current = self.current.write();
        let found = current.take_if(|found| found.is(connection));
        found.is_some()
    }

    /// The attempt to open the connection.
    pub(super) fn attempt(&self) -> &dyn Attempt {
        &self.opening
    }
}

#[cfg(test)]
mod on_servers {
    use super::*;
    use crate::client::Client;
    use crate::support::RedisServer;
    use crate::support::prelude::SOON;

    #[tokio::test]
    async fn a_late_caller_gets_the_connection_that_was_opened_meanwhile() {
        let server = RedisServer::start().await;
        let client = Client::connect(server.url()).await.unwrap();
        let node = client.lock("l").session().core().server.node("").unwrap();
        let opened = node.connection(SOON).await.unwrap();
        let slot = ConnectionSlot::new(&Clock::default());
        let here = Handle::current();
        let open = || async move { Ok(opened) };
        let first = slot.get(&here, SOON, open).await.unwrap();
        let again = || async { panic!("one is there") };
        let second = slot.get(&here, SOON, again).await.unwrap();
        assert!(second.is(&first));
    }
}
