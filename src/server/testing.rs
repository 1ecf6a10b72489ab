//! The servers of simulated runs, and what other tests need.

use std::sync::Arc;
use std::time::Duration;

use super::connection::{Connection, ConnectionParts, Wire};
use super::context::Context;
use super::endpoint::{Endpoint, Locator};
use super::failure::Failure;
use super::identity::Identity;
use super::nodes::{Nodes, Server};
use crate::background::Background;
use crate::clock::Clock;
use crate::observe::Observers;
use crate::simulation::Wiring;

impl Server {
    /// The network of a simulated run.
    pub(crate) fn simulated(&self) -> Option<Wiring> {
        match &self.nodes {
            Nodes::One { node, .. } => match &node.endpoint().route {
                Locator::Simulated(wiring) => Some(wiring.clone()),
                _ => None,
            },
            Nodes::Cluster(_) => None,
        }
    }
}

impl Endpoint {
    pub(crate) fn simulated(wiring: Wiring, clock: &Clock) -> Self {
        let address = "simulated".to_owned();
        Self {
            route: Locator::Simulated(wiring),
            pool: None,
            name: None,
            user_connector: None,
            logins: None,
            identity: Arc::new(Identity::new(clock.clone(), address, false)),
        }
    }

    pub(super) async fn open_simulated(&self, wiring: &Wiring) -> Result<Connection, Failure> {
        let wire = wiring.open().await?;
        let id = wire.client_id();
        let (wire, parts) = (Wire::Simulated(wire), ConnectionParts::Nothing);
        let connection = Connection::over(wire, &self.identity, None, 0, parts);
        connection.has_id(id);
        // A simulated server has one run, and is not asked for its id.
        self.identity.run.trust("simulated".to_owned());
        Ok(connection)
    }
}

impl Context {
    /// Uses the current runtime as its background.
    pub(crate) fn here(clock: &Clock) -> Self {
        Self {
            clock: clock.clone(),
            background: Background::here(),
            command_timeout: Duration::from_secs(3),
            watchdog_lease: Duration::from_secs(30),
            observers: Observers::default(),
        }
    }
}
