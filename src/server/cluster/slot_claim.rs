//! The nodes' claims to slots, and which claim counts.

use std::time::Duration;

use super::shard::Shard;
use super::view::{ClusterView, NodeView};
use crate::clock::Moment;
use crate::slot::SLOTS;

impl NodeView {
    /// If several views differ about one slot or one node, the largest rank counts.
    fn rank(&self) -> (u64, bool) {
        (self.epoch, self.is_reached)
    }

    /// The same node at the same address.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.id == other.id && self.host == other.host && self.port == other.port
    }
}

/// A master's claim to a slot.
#[derive(Clone, Copy)]
pub(super) struct SlotClaim<'a> {
    pub(super) seen: &'a NodeView,
    view: &'a ClusterView,
}

impl SlotClaim<'_> {
    /// Whether this claim replaces the previous owner.
    pub(super) fn ends<N>(&self, before: &Shard<N>, asked: Moment) -> bool {
        // The same node keeps its handle unless its address changed.
        if self.seen.id == before.seen.id {
            return !self.seen.is(&before.seen);
        }
        // A view that knows the previous owner's latest epoch, and still gives the slot to another, is
        // right.
        let knows = self.view.find(&before.seen.id);
        let knows = knows.is_some_and(|it| it.is_master && it.epoch >= before.seen.epoch);
        // A cluster that was set up again restarts its epochs. So a smaller epoch counts after no node
        // has confirmed the previous owner for some time.
        let is_gone = asked.since(before.named) > DOUBT;
        self.seen.epoch > before.seen.epoch || knows || is_gone
    }
}

/// For each slot, the claim with the largest rank.
pub(super) fn claims(views: &[ClusterView]) -> Vec<Option<SlotClaim<'_>>> {
    let mut claims: Vec<Option<SlotClaim<'_>>> = vec![None; SLOTS.into()];
    for view in views {
        for seen in view.masters() {
            for (first, last) in &seen.slots {
                for claim in &mut claims[usize::from(*first)..=usize::from(*last)] {
                    if claim.is_none_or(|claim| seen.rank() > claim.seen.rank()) {
                        *claim = Some(SlotClaim { seen, view });
                    }
                }
            }
        }
    }
    claims
}

/// The latest view of a node.
pub(super) fn newest<'a>(seen: &'a NodeView, views: &'a [ClusterView]) -> &'a NodeView {
    let same = views.iter().filter_map(|view| view.find(&seen.id));
    let masters = same.filter(|other| other.is_master && other.epoch >= seen.epoch);
    masters.max_by_key(|other| other.rank()).unwrap_or(seen)
}

/// Whether some node reaches it at this address.
pub(super) fn is_reached(seen: &NodeView, views: &[ClusterView]) -> bool {
    let mut found = views.iter().filter_map(|view| view.find(&seen.id));
    found.any(|it| it.is_reached && it.is(seen))
}

/// Whether another node says that it is a master. A view without other nodes is enough.
pub(super) fn names(view: &ClusterView, shard: &NodeView) -> bool {
    let seen = view.find(&shard.id);
    seen.is_some_and(|seen| seen.is_master && (!seen.is_self || view.nodes.len() == 1))
}

/// How long no node must have confirmed a master before a smaller epoch counts.
const DOUBT: Duration = Duration::from_secs(10);
