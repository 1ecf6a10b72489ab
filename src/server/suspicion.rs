//! Which servers are thought to be silent: see [`Node::suspect`].

use std::sync::Arc;

use super::failure::Failure;
use super::node::Node;
use super::{Sent, Server};

impl Server {
    /// Says that the server of this key does not answer.
    pub(crate) fn suspect(&self, key: &str, failure: &Failure) {
        if let Ok(node) = self.node(key) {
            node.suspect(failure);
        }
    }

    /// The same of the server that was asked, which may be another than that of the key. One that no
    /// slot leads to is asked nothing anyway.
    pub(crate) fn suspect_asked(&self, sent: &Sent, failure: &Failure) {
        if let Some(node) = sent.failed_at.as_ref().filter(|node| self.has(node)) {
            node.suspect(failure);
        }
    }

    /// Why the server of this key is thought not to answer, if it is.
    pub(crate) fn suspected(&self, key: &str) -> Option<Failure> {
        self.node(key).ok()?.suspected()
    }

    /// The servers that are thought not to answer.
    pub(crate) fn suspects(&self) -> Vec<Arc<Node>> {
        let mut nodes = self.nodes();
        nodes.retain(|node| node.suspected().is_some());
        nodes
    }

    /// Ends when another server may be under suspicion. For one caller: the client's own thread.
    pub(crate) async fn suspicion(&self) {
        self.suspicions.notified().await;
    }
}
