//! A master that has slots.

use super::view::NodeView;
use crate::clock::Moment;

/// One master that has slots.
pub(super) struct Shard<N> {
    pub(super) seen: NodeView,
    /// When another node last said that it is a master.
    pub(super) named: Moment,
    pub(super) certainty: Certainty,
    pub(super) node: N,
}

/// How certain other nodes are that a server is a master.
#[derive(Clone, Copy)]
pub(super) struct Certainty {
    /// When another node last said that it is a master and has not failed.
    pub(super) sure: Moment,
    /// When another node last answered, whatever it said.
    pub(super) answered: Moment,
}
