//! Which servers are thought to be silent: see [`Node::suspect`].

use std::sync::Arc;

use parking_lot::Mutex;

use super::failure::Failure;
use super::node::Node;
use super::route::Route;
use super::{Sent, Server};

/// The server that a question of the watchdog's went to, known while it is under way, too.
#[derive(Clone, Default)]
pub(crate) struct Addressee(Arc<Mutex<Option<Arc<Node>>>>);

impl Addressee {
    pub(crate) fn set(&self, place: &Route) {
        let old = self.0.lock().replace(place.node.clone());
        // Not under the lock.
        drop(old);
    }
}

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
        self.suspect_node(sent.failed_at.as_ref(), failure);
    }

    /// The same of a question of the watchdog's; nobody, if it went to nobody yet.
    pub(crate) fn suspect_addressee(&self, addressee: &Addressee, failure: &Failure) {
        let node = addressee.0.lock().clone();
        self.suspect_node(node.as_ref(), failure);
    }

    fn suspect_node(&self, node: Option<&Arc<Node>>, failure: &Failure) {
        if let Some(node) = node.filter(|node| self.has(node)) {
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
