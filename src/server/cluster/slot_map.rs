//! The slot map: which server has which slot, by the answers of several nodes.
//!
//! Each claim to slots has a number, the node's `config-epoch`. If two nodes claim a slot, the larger number
//! counts, for the cluster's nodes as for this client. So a node that was cut off cannot lead the client back
//! to an old master.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use super::shard::{Certainty, Shard};
use super::slot_claim::{claims, is_reached, names, newest};
use super::view::{ClusterView, NodeView};
use crate::clock::Moment;
use crate::server::data_loss::DataLoss;
use crate::slot::SLOTS;

/// The slots and their owners. `N` is the handle of an owner.
pub(super) struct SlotMap<N> {
    shards: Vec<Shard<N>>,
    /// For each slot the index of its owner in `shards`.
    owners: Box<[Option<u16>]>,
    /// For each slot the number of the switch that gave it its owner.
    switched: Box<[u64]>,
    switches: u64,
    /// The possible data loss that moved with slots from other masters. Usually empty, and at most one
    /// entry for each slot.
    losses: BTreeMap<u16, DataLoss>,
    /// When the nodes were last asked.
    asked: Option<Moment>,
    /// All masters in the views of the last query, with or without slots.
    masters: Vec<NodeView>,
}

/// What is known about a master's data.
#[derive(Clone, Copy)]
pub(super) struct MasterData {
    pub(super) loss: DataLoss,
    /// The server's identity was just queried, so `loss` is current.
    pub(super) is_current: bool,
}

/// The changes that one query found.
pub(super) struct Change<N> {
    /// Slots have other owners now.
    pub(super) is_switch: bool,
    /// These own no slots any more.
    pub(super) left: Vec<N>,
    /// These took over from a failed master, and may not have all of its data.
    pub(super) successors: Vec<N>,
    /// These have larger epochs than before: another node may have replaced them in between.
    pub(super) doubtful: Vec<N>,
}

/// How a slot came from one master to another.
enum Passage {
    /// Moved with all its data, from a server that is still a master.
    Moved,
    /// Moved likewise, but it was the last slot of a master that became a replica because of it.
    MovedLast,
    /// Taken over, possibly without its data.
    Inherited,
}

impl<N: Clone> SlotMap<N> {
    pub(super) fn new() -> Self {
        Self {
            shards: Vec::new(),
            owners: vec![None; SLOTS.into()].into(),
            switched: vec![0; SLOTS.into()].into(),
            switches: 0,
            losses: BTreeMap::new(),
            asked: None,
            masters: Vec::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shards.is_empty()
    }

    fn shard(&self, slot: u16) -> Option<&Shard<N>> {
        let owner = self.owners[usize::from(slot)]?;
        self.shards.get(usize::from(owner))
    }

    /// The owner of a slot.
    pub(super) fn owner(&self, slot: u16) -> Option<&N> {
        self.shard(slot).map(|shard| &shard.node)
    }

    /// The ranges of slots that this owner has.
    pub(super) fn slots_of(&self, is_it: impl Fn(&N) -> bool) -> Vec<(u16, u16)> {
        let mut ranges: Vec<(u16, u16)> = Vec::new();
        for slot in (0..SLOTS).filter(|slot| self.owner(*slot).is_some_and(&is_it)) {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == slot => *last = slot,
                _ => ranges.push((slot, slot)),
            }
        }
        ranges
    }

    /// When another node last said that this slot's owner is a master.
    pub(super) fn named(&self, slot: u16) -> Option<Moment> {
        self.shard(slot).map(|shard| shard.named)
    }

    /// How certain other nodes are that this owner is a master.
    pub(super) fn certainty(&self, is_it: impl Fn(&N) -> bool) -> Option<Certainty> {
        let mut shards = self.shards.iter();
        let found = shards.find(|shard| is_it(&shard.node));
        found.map(|shard| shard.certainty)
    }

    /// The number of the switch that gave this slot its owner; 0 if the owner never changed.
    pub(super) fn switched(&self, slot: u16) -> u64 {
        self.switched[usize::from(slot)]
    }

    /// Since when the data of this slot may be incomplete, from before it came to its owner.
    pub(super) fn lost(&self, slot: u16) -> DataLoss {
        self.losses.get(&slot).copied().unwrap_or_default()
    }

    /// The masters that give slots to others according to these views. Their possible data loss moves with the
    /// slots, so it must be known before the map is updated.
    pub(super) fn givers(&self, views: &[ClusterView], asked: Moment) -> Vec<N> {
        let mut givers = vec![false; self.shards.len()];
        for (owner, claim) in self.owners.iter().zip(claims(views)) {
            let Some((owner, claim)) = owner.map(usize::from).zip(claim) else {
                continue;
            };
            let Some(shard) = self.shards.get(owner) else {
                continue;
            };
            if givers[owner] || claim.seen.id == shard.seen.id || !claim.ends(shard, asked) {
                continue;
            }
            let passage = self.passage(&shard.seen, claim.seen, views, asked);
            givers[owner] = matches!(passage, Passage::Moved);
        }
        let givers = self.shards.iter().zip(givers).filter(|(_, gives)| *gives);
        givers.map(|(shard, _)| shard.node.clone()).collect()
    }

    pub(super) fn switches(&self) -> u64 {
        self.switches
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = &N> {
        self.shards.iter().map(|shard| &shard.node)
    }

    /// The owner at this address.
    pub(super) fn at(&self, host: &str, port: u16) -> Option<&N> {
        let mut shards = self.shards.iter();
        let found = shards.find(|shard| shard.seen.host == host && shard.seen.port == port)?;
        Some(&found.node)
    }

    /// Whether a master was at this address, with or without slots.
    pub(super) fn has_master(&self, host: &str, port: u16) -> bool {
        let mut masters = self.masters.iter();
        masters.any(|node| node.host == host && node.port == port)
    }

    /// Updates the map from the views of nodes that were queried at `asked`. `make` creates the handle of a new
    /// owner. `lost` returns what is known about the data of an owner.
    pub(super) fn update(
        &mut self,
        views: &[ClusterView],
        asked: Moment,
        mut make: impl FnMut(&NodeView) -> N,
        lost: impl Fn(&N) -> MasterData,
    ) -> Change<N> {
        for shard in &mut self.shards {
            let naming = || views.iter().filter(|view| names(view, &shard.seen));
            // Another node confirms the master, so leases on it may be prolonged.
            if naming().next().is_some() {
                shard.named = asked;
            }
            // A master that is marked as failed may be replaced soon, so it is not certain.
            if naming().any(|view| !view.has_failed(&shard.seen.id)) {
                shard.certainty.sure = asked;
            }
            // If no other node answers, a missing confirmation proves nothing: see `Cluster::confirm`.
            if views.iter().any(|view| !view.is_of(&shard.seen.id)) {
                shard.certainty.answered = asked;
            }
        }
        let old = std::mem::take(&mut self.shards);
        let claims = claims(views);
        let mut owners: Vec<Option<u16>> = vec![None; SLOTS.into()];
        let mut new: Vec<Shard<N>> = Vec::new();
        let mut successors: HashSet<u16> = HashSet::new();
        let mut switched: Vec<usize> = Vec::new();
        let mut doubtful: Vec<N> = Vec::new();
        let mut last = 0;
        let new_here = Certainty {
            sure: asked,
            answered: asked,
        };
        for (slot, claim) in claims.into_iter().enumerate() {
            // The owner stays if there is no claim, or if the claim does not replace it.
            let before = self.owners[slot].and_then(|owner| old.get(usize::from(owner)));
            let stays =
                before.filter(|before| claim.is_none_or(|claim| !claim.ends(before, asked)));
            // Without an old owner and without a claim, the slot stays without an owner.
            let Some(seen) = stays
                .map(|shard| &shard.seen)
                .or_else(|| claim.map(|claim| claim.seen))
            else {
                continue;
            };
            // Usually the owner is that of the previous slot, so `last` is tried first.
            let is_it = |shard: &Shard<N>| shard.seen.id == seen.id;
            let owner = if new.get(last).is_some_and(is_it) {
                Some(last)
            } else {
                new.iter().position(is_it)
            };
            let owner = match owner {
                Some(owner) => owner,
                None => {
                    // This is the first slot of this owner in the new map, so it needs a shard.
                    let mut seen = newest(seen, views).clone();
                    let before = old.iter().find(|shard| shard.seen.id == seen.id);
                    // The handle and its connections are kept if the address is the same or still
                    // reached by a node.
                    let known =
                        before.filter(|it| it.seen.is(&seen) || is_reached(&it.seen, views));
                    if let Some(known) = known {
                        // Other nodes may use another address for it.
                        known.seen.host.clone_into(&mut seen.host);
                        seen.port = known.seen.port;
                        // A larger epoch may mean that another node replaced it in between. Then it may have
                        // lost data.
                        if seen.epoch > known.seen.epoch {
                            doubtful.push(known.node.clone());
                        }
                    }
                    new.push(Shard {
                        named: known.map_or(asked, |known| known.named),
                        certainty: known.map_or(new_here, |known| known.certainty),
                        node: known.map_or_else(|| make(&seen), |known| known.node.clone()),
                        seen,
                    });
                    new.len() - 1
                }
            };
            last = owner;
            // This never fails: there are no more owners than slots.
            let Ok(place) = u16::try_from(owner) else {
                continue;
            };
            owners[slot] = Some(place);
            // Nothing changed if the slot had no owner, or has the same one at the same address.
            let Some(before) = before.filter(|before| !before.seen.is(&new[owner].seen)) else {
                continue;
            };
            switched.push(slot);
            let known = lost(&before.node);
            let loss = match self.passage(&before.seen, &new[owner].seen, views, asked) {
                // The loss is known only if the old owner's identity was just checked.
                Passage::Moved => known.is_current.then_some(known.loss),
                // The old owner was a master at the last query, moments ago, so its loss is known.
                Passage::MovedLast => Some(known.loss),
                Passage::Inherited => None,
            };
            match (loss, u16::try_from(slot)) {
                // The loss moves with the slot. If the slot has an older record, the later of both counts.
                (Some(loss), Ok(slot)) if loss != DataLoss::default() => {
                    let before = self.losses.entry(slot).or_default();
                    *before = before.max(loss);
                }
                // The old owner lost nothing, so the slot keeps its record.
                (Some(_), _) => {}
                // Data may be missing since an unknown time, so the new owner counts as a new server.
                (None, _) => {
                    successors.insert(place);
                }
            }
        }
        // All changes of one query are one switch.
        if !switched.is_empty() {
            self.switches += 1;
        }
        for slot in &switched {
            self.switched[*slot] = self.switches;
        }
        self.asked = Some(asked);
        // Masters without slots count too: a slot that moves to one of them moves with its data.
        self.masters = views
            .iter()
            .flat_map(ClusterView::masters)
            .cloned()
            .collect();
        self.masters.sort_by(|one, other| one.id.cmp(&other.id));
        self.masters.dedup_by(|one, other| one.is(other));
        self.owners = owners.into();
        // An owner that now has another address gets a new handle, so its old one leaves.
        let left = old
            .iter()
            .filter(|old| !new.iter().any(|new| new.seen.is(&old.seen)));
        let change = Change {
            is_switch: !switched.is_empty(),
            left: left.map(|shard| shard.node.clone()).collect(),
            successors: successors
                .iter()
                .map(|place| new[usize::from(*place)].node.clone())
                .collect(),
            doubtful,
        };
        self.shards = new;
        change
    }

    /// A slot moved with all its data if the old owner lives and the new one was a master before.
    /// Otherwise the new one may be the replica of a failed master.
    fn passage(
        &self,
        from: &NodeView,
        to: &NodeView,
        views: &[ClusterView],
        asked: Moment,
    ) -> Passage {
        let was_master = self.masters.iter().any(|it| it.id == to.id);
        if from.id == to.id || !was_master {
            return Passage::Inherited;
        }
        let all = |is_it: &dyn Fn(&NodeView) -> bool| {
            let mut found = views.iter().map(|view| view.find(&from.id));
            found.all(|seen| seen.is_some_and(|seen| !seen.has_failed && is_it(seen)))
        };
        if all(&|seen| seen.is_master) {
            return Passage::Moved;
        }
        // After a longer time, a replica may have taken over from the old owner and then have given the
        // slots away. The pause between two queries is too short for that.
        let is_recent = self.asked.is_some_and(|last| asked.since(last) <= RECENT);
        if is_recent && all(&|seen| seen.is_master || seen.follows == to.id) {
            return Passage::MovedLast;
        }
        Passage::Inherited
    }
}

/// The interval between two queries is one second.
const RECENT: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    /// A node's handle is its index in `made`.
    struct Queried {
        map: SlotMap<usize>,
        made: Vec<String>,
        now: Moment,
        losses: BTreeMap<usize, DataLoss>,
        unseen: Vec<usize>,
    }

    impl Queried {
        fn new(views: &[ClusterView]) -> Self {
            let mut queried = Self {
                map: SlotMap::new(),
                made: Vec::new(),
                now: Moment(0),
                losses: BTreeMap::new(),
                unseen: Vec::new(),
            };
            let change = queried.query(views);
            assert!(!change.is_switch && change.left.is_empty() && change.successors.is_empty());
            queried
        }

        fn query(&mut self, views: &[ClusterView]) -> Change<usize> {
            self.now = self.now + Duration::from_secs(1);
            let made = &mut self.made;
            let make = |seen: &NodeView| {
                made.push(seen.id.clone());
                made.len() - 1
            };
            let losses = &self.losses;
            self.map.update(views, self.now, make, |node| MasterData {
                loss: losses.get(node).copied().unwrap_or_default(),
                is_current: !self.unseen.contains(node),
            })
        }

        fn owner(&self, slot: u16) -> Option<&str> {
            self.map.owner(slot).map(|node| &*self.made[*node])
        }

        fn names(&self, nodes: &[usize]) -> Vec<&str> {
            nodes.iter().map(|node| &*self.made[*node]).collect()
        }
    }

    fn master(id: &str, epoch: u64, slots: &[(u16, u16)]) -> NodeView {
        NodeView {
            id: id.to_owned(),
            host: "h".to_owned(),
            port: u16::from(id.as_bytes()[0]),
            is_master: true,
            is_reached: true,
            epoch,
            slots: slots.to_vec(),
            ..NodeView::default()
        }
    }

    fn replica(id: &str, epoch: u64) -> NodeView {
        let is_master = false;
        NodeView {
            is_master,
            ..master(id, epoch, &[])
        }
    }

    fn failed(seen: NodeView) -> NodeView {
        let has_failed = true;
        NodeView { has_failed, ..seen }
    }

    fn view(by: &str, nodes: &[NodeView]) -> ClusterView {
        let mut nodes = nodes.to_vec();
        for node in &mut nodes {
            node.is_self = node.id == by;
        }
        ClusterView { nodes }
    }

    /// Two masters and a replica of the first.
    fn at_first() -> Vec<NodeView> {
        vec![
            master("a", 1, &[(0, 99)]),
            master("b", 2, &[(100, SLOTS - 1)]),
            replica("c", 1),
        ]
    }

    #[test]
    fn an_owner_with_two_addresses_is_one_owner() {
        let mut here = at_first();
        let mut there = at_first();
        there[1].host = "elsewhere".to_owned();
        let mut queried = Queried::new(&[view("a", &here)]);
        for views in [[&there, &here], [&here, &there]] {
            let change = queried.query(&[view("a", views[0]), view("c", views[1])]);
            assert!(!change.is_switch && change.left.is_empty() && change.successors.is_empty());
        }
        // It has moved to where no node reaches the old address.
        here[1].is_reached = false;
        let change = queried.query(&[view("c", &here), view("b", &there)]);
        assert!(change.is_switch);
        assert_eq!(queried.names(&change.left), ["b"]);
        assert!(
            !queried
                .query(&[view("b", &there), view("c", &here)])
                .is_switch
        );
    }

    #[test]
    fn slots_map_to_their_owners_and_an_unchanged_view_changes_nothing() {
        let mut queried = Queried::new(&[view("a", &at_first()), view("b", &at_first())]);
        for _ in 0..2 {
            assert_eq!(queried.owner(0), Some("a"));
            assert_eq!(queried.owner(99), Some("a"));
            assert_eq!(queried.owner(100), Some("b"));
            assert_eq!(queried.owner(SLOTS - 1), Some("b"));
            let change = queried.query(&[view("c", &at_first())]);
            assert!(!change.is_switch && change.left.is_empty());
        }
        assert_eq!((queried.made.len(), queried.map.switches()), (2, 0));
        assert_eq!(queried.map.at("h", 98), Some(&1));
        assert_eq!(queried.map.at("h", 99), None);
        // These have no owner, and slots that no view mentions keep theirs.
        let mut queried = Queried::new(&[view("a", &[master("a", 1, &[(0, 9)])])]);
        assert_eq!(queried.owner(10), None);
        queried.query(&[view("a", &[master("a", 1, &[])])]);
        assert_eq!(queried.owner(9), Some("a"));
    }

    #[test]
    fn a_promoted_replica_is_a_successor_and_the_old_master_has_left() {
        let mut queried = Queried::new(&[view("b", &at_first())]);
        let after = [
            failed(master("a", 1, &[])),
            master("b", 2, &[(100, SLOTS - 1)]),
            master("c", 3, &[(0, 99)]),
        ];
        let change = queried.query(&[view("b", &after)]);
        assert!(change.is_switch);
        assert_eq!(queried.names(&change.left), ["a"]);
        assert_eq!(queried.names(&change.successors), ["c"]);
        assert_eq!(queried.owner(99), Some("c"));
        assert_eq!(
            [0, 99, 100].map(|slot| queried.map.switched(slot)),
            [1, 1, 0]
        );
        assert!(!queried.query(&[view("c", &after)]).is_switch);
    }

    /// A failover on request leaves no failed master.
    #[test]
    fn a_planned_failover_has_a_successor() {
        let mut queried = Queried::new(&[view("b", &at_first())]);
        let after = [
            replica("a", 3),
            master("b", 2, &[(100, SLOTS - 1)]),
            master("c", 3, &[(0, 99)]),
        ];
        let change = queried.query(&[view("b", &after)]);
        assert_eq!(queried.names(&change.successors), ["c"]);
        assert_eq!(queried.names(&change.left), ["a"]);
    }

    #[test]
    fn a_partitioned_node_cannot_restore_an_old_owner() {
        let mut queried = Queried::new(&[view("b", &at_first())]);
        let after = [
            failed(master("a", 1, &[])),
            master("b", 2, &[(100, SLOTS - 1)]),
            master("c", 3, &[(0, 99)]),
        ];
        queried.query(&[view("b", &after)]);
        // The smaller epoch, alone and together with the larger one.
        for views in [
            vec![view("a", &at_first())],
            vec![view("a", &at_first()), view("b", &after)],
            vec![view("b", &after), view("a", &at_first())],
        ] {
            assert!(!queried.query(&views).is_switch);
            assert_eq!(queried.owner(0), Some("c"));
        }
        // The cluster was set up again and says nothing else for long enough.
        for _ in 0..10 {
            assert!(!queried.query(&[view("a", &at_first())]).is_switch);
        }
        assert!(queried.query(&[view("a", &at_first())]).is_switch);
        assert_eq!(queried.owner(0), Some("a"));
    }

    #[test]
    fn a_slot_moved_between_masters_has_no_successor() {
        let mut queried = Queried::new(&[view("a", &at_first())]);
        let moved = [
            master("a", 1, &[(0, 49)]),
            master("b", 3, &[(50, SLOTS - 1)]),
            replica("c", 1),
        ];
        let change = queried.query(&[view("a", &moved)]);
        assert!(change.is_switch && change.successors.is_empty() && change.left.is_empty());
        assert_eq!(
            [49, 50].map(|slot| queried.owner(slot)),
            [Some("a"), Some("b")]
        );
        assert_eq!(
            [49, 50, 100].map(|slot| queried.map.switched(slot)),
            [0, 1, 0]
        );
        // Returned, according to a node that knows both, with an epoch that is no larger.
        let back = [
            master("a", 1, &[(0, 59)]),
            master("b", 3, &[(60, SLOTS - 1)]),
        ];
        let change = queried.query(&[view("b", &back)]);
        assert!(change.is_switch && change.successors.is_empty());
        assert_eq!(
            [59, 60].map(|slot| queried.owner(slot)),
            [Some("a"), Some("b")]
        );
        // All slots moved: the master without slots becomes a replica on its own.
        let mut last = replica("a", 4);
        last.follows = "b".to_owned();
        let all = [last, master("b", 4, &[(0, SLOTS - 1)])];
        let change = queried.query(&[view("b", &all)]);
        assert_eq!(queried.names(&change.left), ["a"]);
        assert!(change.successors.is_empty());
        assert_eq!(queried.owner(0), Some("b"));
    }

    /// The giver's possible data loss moves with the slot, each time. The taker's own loss is not
    /// recorded for the slot.
    #[test]
    fn possible_data_loss_moves_with_the_slot() {
        let mut queried = Queried::new(&[view("a", &at_first())]);
        let loss = |second| DataLoss {
            seen: Some(Moment(0) + Duration::from_secs(second)),
            since: second * 1000,
        };
        queried.losses.insert(0, loss(5));
        let moved = |a: &[(u16, u16)], b: &[(u16, u16)], epoch| {
            let nodes = [
                master("a", epoch, a),
                master("b", epoch + 1, b),
                replica("c", 1),
            ];
            [view("a", &nodes)]
        };
        let change = queried.query(&moved(&[(0, 49)], &[(50, SLOTS - 1)], 2));
        assert!(change.is_switch && change.successors.is_empty());
        let lost = |queried: &Queried| [49, 50, 99, 100].map(|slot| queried.map.lost(slot));
        let none = DataLoss::default();
        assert_eq!(lost(&queried), [none, loss(5), loss(5), none]);
        // Moved back and on again: the later loss counts.
        queried.losses.insert(1, loss(4));
        queried.query(&moved(&[(0, 50)], &[(51, SLOTS - 1)], 4));
        assert_eq!(lost(&queried), [none, loss(5), loss(5), none]);
        queried.losses.insert(1, loss(7));
        queried.query(&moved(&[(0, 100)], &[(101, SLOTS - 1)], 6));
        assert_eq!(lost(&queried), [none, loss(5), loss(7), loss(7)]);
    }

    /// The master may have lost data since the last check.
    #[test]
    fn a_slot_of_a_master_whose_identity_is_unknown_has_a_successor() {
        let mut queried = Queried::new(&[view("a", &at_first())]);
        let moved = [
            master("a", 1, &[(0, 49)]),
            master("b", 3, &[(50, SLOTS - 1)]),
            replica("c", 1),
        ];
        let views = [view("a", &moved)];
        let givers = queried.map.givers(&views, queried.now);
        assert_eq!(queried.names(&givers), ["a"]);
        queried.unseen = givers;
        let change = queried.query(&views);
        assert_eq!(queried.names(&change.successors), ["b"]);
        assert!(queried.map.givers(&views, queried.now).is_empty());
    }

    /// Another server may have taken over and have given the slots away.
    #[test]
    fn slots_of_a_master_that_became_a_replica_of_another_master_have_a_successor() {
        let mut nodes = at_first();
        nodes.push(master("d", 4, &[]));
        let mut queried = Queried::new(&[view("b", &nodes)]);
        let mut old = replica("a", 5);
        old.follows = "c".to_owned();
        let after = |slots: &[(u16, u16)]| {
            let nodes = [
                old.clone(),
                master("b", 2, &[(100, SLOTS - 1)]),
                master("c", 5, &[(0, 49)]),
                master("d", 6, slots),
            ];
            [view("b", &nodes)]
        };
        let views = after(&[(50, 99)]);
        assert!(queried.map.givers(&views, queried.now).is_empty());
        let change = queried.query(&views);
        let mut successors = queried.names(&change.successors);
        successors.sort_unstable();
        assert_eq!(successors, ["c", "d"]);
        // A replica of the slots' new owner, but the last query was long ago.
        let mut queried = Queried::new(&[view("b", &nodes)]);
        let mut old = replica("a", 5);
        old.follows = "d".to_owned();
        let nodes = [
            old,
            master("b", 2, &[(100, SLOTS - 1)]),
            master("d", 6, &[(0, 99)]),
        ];
        queried.now = queried.now + RECENT;
        let change = queried.query(&[view("b", &nodes)]);
        assert_eq!(queried.names(&change.successors), ["d"]);
    }

    #[test]
    fn a_master_whose_epoch_grew_is_checked_again() {
        let mut queried = Queried::new(&[view("b", &at_first())]);
        let mut nodes = at_first();
        nodes[0].epoch = 5;
        let change = queried.query(&[view("b", &nodes)]);
        assert_eq!(queried.names(&change.doubtful), ["a"]);
        let change = queried.query(&[view("b", &nodes)]);
        assert!(change.doubtful.is_empty());
    }

    /// Its slots were given to another master while it was down, and its data with them.
    #[test]
    fn a_master_that_got_slots_of_a_failed_master_is_a_successor() {
        let mut queried = Queried::new(&[view("b", &at_first())]);
        let given = [
            failed(master("a", 1, &[])),
            master("b", 3, &[(0, SLOTS - 1)]),
        ];
        let change = queried.query(&[view("b", &given)]);
        assert_eq!(queried.names(&change.successors), ["b"]);
    }

    #[test]
    fn a_node_at_another_address_is_another_server() {
        let mut queried = Queried::new(&[view("b", &at_first())]);
        let mut nodes = at_first();
        nodes[0].port = 9;
        let change = queried.query(&[view("b", &nodes)]);
        assert!(change.is_switch);
        assert_eq!((change.left, change.successors), (vec![0], vec![2]));
        assert_eq!(queried.owner(0), Some("a"));
    }

    #[test]
    fn only_other_nodes_confirm_a_master() {
        let mut queried = Queried::new(&[view("b", &at_first())]);
        let first = queried.now;
        let named = |queried: &Queried| [0, 100].map(|slot| queried.map.named(slot).unwrap());
        assert_eq!(named(&queried), [first, first]);
        queried.query(&[view("a", &at_first())]);
        assert_eq!(named(&queried), [first, queried.now]);
        queried.query(&[view("c", &at_first())]);
        assert_eq!(named(&queried), [queried.now, queried.now]);
        // There is no other node.
        let alone = [view("a", &[master("a", 1, &[(0, 9)])])];
        let mut queried = Queried::new(&alone);
        queried.query(&alone);
        assert_eq!(queried.map.named(0), Some(queried.now));
    }

    #[test]
    fn a_master_that_another_node_reports_as_failed_is_not_certain() {
        let mut queried = Queried::new(&[view("b", &at_first())]);
        let first = queried.now;
        let certainty = |queried: &Queried| {
            let found = queried.map.certainty(|node| *node == 0).unwrap();
            (found.sure, found.answered)
        };
        assert_eq!(certainty(&queried), (first, first));
        queried.query(&[view("a", &at_first())]);
        assert_eq!(certainty(&queried), (first, first));
        // It is being replaced.
        let mut nodes = at_first();
        nodes[0] = failed(nodes[0].clone());
        queried.query(&[view("a", &at_first()), view("b", &nodes)]);
        assert_eq!(certainty(&queried), (first, queried.now));
        assert_eq!(queried.map.named(0), Some(queried.now));
        queried.query(&[view("b", &at_first())]);
        assert_eq!(certainty(&queried), (queried.now, queried.now));
    }
}
