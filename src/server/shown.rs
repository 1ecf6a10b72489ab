//! A summary of a client's servers, for finding the cause of a stall.

use std::sync::Arc;

use super::Server;
use super::node::Node;
use super::nodes::Nodes;

impl Server {
    /// One line for each known server: its address, its slots, and the reason if it is suspected to
    /// be silent.
    pub(crate) fn shown(&self) -> Vec<String> {
        let shown = |node: Arc<Node>| {
            let slots = match &self.nodes {
                Nodes::One { .. } => String::new(),
                Nodes::Cluster(cluster) => format!(" slots {:?}", cluster.slots_of(&node)),
            };
            let health = match node.suspected() {
                Some(failure) => format!("suspected: {failure:?}"),
                None => "healthy".to_owned(),
            };
            let connected = match node.current() {
                Some(_) => "connected",
                None => "not connected",
            };
            format!("{}{slots} {connected} {health}", node.address())
        };
        self.nodes().into_iter().map(shown).collect()
    }
}

impl Server {
    /// Whether a connection for callers is open, and one of the background.
    pub(crate) fn connected(&self) -> (bool, bool) {
        let nodes = self.nodes();
        (
            nodes.iter().any(|node| node.serves_callers()),
            nodes.iter().any(|node| node.serves_background()),
        )
    }
}
