//! Which servers are suspected to be silent: see [`Node::suspect`].

use std::sync::Arc;

use super::addressee::Addressee;
use super::failure::Failure;
use super::node::Node;
use super::{Sent, Server};

impl Server {
    /// Reports the server that was asked, which may differ from the key's server. A server without
    /// slots gets no commands anyway.
    pub(crate) fn suspect_asked(&self, sent: &Sent, failure: &Failure) {
        self.suspect_node(sent.failed_at.as_ref(), failure);
    }

    /// Reports the server that a command in flight was sent to, if it was sent.
    pub(crate) fn suspect_addressee(&self, addressee: &Addressee, failure: &Failure) {
        let node = addressee.node();
        self.suspect_node(node.as_ref(), failure);
    }

    fn suspect_node(&self, node: Option<&Arc<Node>>, failure: &Failure) {
        if let Some(node) = node.filter(|node| self.has(node)) {
            node.suspect(failure);
        }
    }

    /// The reason why the server of this key is suspected to be silent, if it is.
    pub(crate) fn suspected(&self, key: &str) -> Option<Failure> {
        self.node(key).ok()?.suspected()
    }

    /// The servers that are suspected to be silent.
    pub(crate) fn suspects(&self) -> Vec<Arc<Node>> {
        let mut nodes = self.nodes();
        nodes.retain(|node| node.suspected().is_some());
        nodes
    }

    /// Ends when another server may be suspected. For one caller only: the client's own thread.
    pub(crate) async fn suspicion(&self) {
        self.suspicions.notified().await;
    }
}
