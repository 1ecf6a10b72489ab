//! The server of a simulated run.

use super::nodes::{Nodes, Server};
use crate::simulation::Wiring;

impl Server {
    /// The network of a simulated run.
    pub(crate) fn simulated(&self) -> Option<Wiring> {
        match &self.nodes {
            Nodes::One { node, .. } => node.endpoint().simulated.clone(),
            Nodes::Cluster(_) => None,
        }
    }
}
