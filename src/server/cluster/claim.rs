//! What nodes claim to have, and which claim is to be believed.

use std::time::Duration;

use super::map::Shard;
use super::view::{Seen, View};
use crate::clock::Moment;
use crate::slot::SLOTS;

impl Seen {
    /// Of what is said of one slot, or one node, the largest counts.
    fn rank(&self) -> (u64, bool) {
        (self.epoch, self.is_reached)
    }

    /// The same node, at the same address.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.id == other.id && self.host == other.host && self.port == other.port
    }
}

/// A master's claim to a slot.
#[derive(Clone, Copy)]
pub(super) struct Claim<'a> {
    pub(super) seen: &'a Seen,
    view: &'a View,
}

impl Claim<'_> {
    /// It is to be believed, and not what was known before.
    pub(super) fn ends<N>(&self, before: &Shard<N>, asked: Moment) -> bool {
        if self.seen.id == before.seen.id {
            return !self.seen.is(&before.seen);
        }
        // Who knows of the one before all that we know, and gives the slot to another, is right.
        let knows = self.view.find(&before.seen.id);
        let knows = knows.is_some_and(|it| it.is_master && it.epoch >= before.seen.epoch);
        // A cluster that was set up anew begins to count anew.
        let is_gone = asked.since(before.named) > DOUBT;
        self.seen.epoch > before.seen.epoch || knows || is_gone
    }
}

/// For each slot the claim with the largest number.
pub(super) fn claims(views: &[View]) -> Vec<Option<Claim<'_>>> {
    let mut claims: Vec<Option<Claim<'_>>> = vec![None; SLOTS.into()];
    for view in views {
        for seen in view.masters() {
            for (first, last) in &seen.slots {
                for claim in &mut claims[usize::from(*first)..=usize::from(*last)] {
                    if claim.is_none_or(|claim| seen.rank() > claim.seen.rank()) {
                        *claim = Some(Claim { seen, view });
                    }
                }
            }
        }
    }
    claims
}

/// The latest that is known of a node.
pub(super) fn newest<'a>(seen: &'a Seen, views: &'a [View]) -> &'a Seen {
    let same = views.iter().filter_map(|view| view.find(&seen.id));
    let masters = same.filter(|other| other.is_master && other.epoch >= seen.epoch);
    masters.max_by_key(|other| other.rank()).unwrap_or(seen)
}

/// Somebody says that it is at this address, and reaches it.
pub(super) fn is_reached(seen: &Seen, views: &[View]) -> bool {
    let mut found = views.iter().filter_map(|view| view.find(&seen.id));
    found.any(|it| it.is_reached && it.is(seen))
}

/// Somebody else says that it is a master; nobody has to where there is nobody else.
pub(super) fn names(view: &View, shard: &Seen) -> bool {
    let seen = view.find(&shard.id);
    seen.is_some_and(|seen| seen.is_master && (!seen.is_self || view.nodes.len() == 1))
}

/// After nobody has named a master for so long, smaller claims are believed.
const DOUBT: Duration = Duration::from_secs(10);
