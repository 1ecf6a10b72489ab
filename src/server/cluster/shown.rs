//! A summary of a cluster, for finding the cause of a stall.

use std::sync::Arc;

use super::Cluster;
use crate::server::node::Node;

impl Cluster {
    /// The ranges of slots that this node has.
    pub(in crate::server) fn slots_of(&self, node: &Arc<Node>) -> Vec<(u16, u16)> {
        self.map.read().slots_of(|known| Arc::ptr_eq(known, node))
    }
}
