//! What a client knows of its servers, for somebody who looks into a stall.

use std::sync::Arc;

use super::Server;
use super::node::Node;
use super::nodes::Nodes;

impl Server {
    /// A line for each server that the client knows: where it is, its slots, and why it is thought not
    /// to answer.
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
