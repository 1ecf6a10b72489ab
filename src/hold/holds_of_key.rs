//! The holds on one lock: usually one, and thousands if a crowd tries at the same time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::few_holds::FewHolds;
use super::{Hold, HoldPhase, HoldState};
use crate::owner::Owner;

/// The holds on one lock. Each query and each change costs O(log n).
///
/// A few holds are scanned one by one. More are also indexed by their [`Filing`], so each change of that has
/// to be reported with [`HoldsOfKey::moved`].
pub(super) enum HoldsOfKey {
    /// In the order of entry.
    Few(FewHolds),
    Many(Box<Index>),
}

/// Many holds on one lock.
#[derive(Default)]
pub(super) struct Index {
    /// By number; numbers increase with each entry.
    holds: BTreeMap<u64, (Filing, Arc<Hold>)>,
    /// The numbers of each group.
    groups: BTreeSet<(HoldGroup, u64)>,
    /// The numbers of each owner's holds that have not ended; granted ones come last.
    by_owner: HashMap<Owner, BTreeSet<(bool, u64)>>,
    /// The numbers of the holds with forgotten claims.
    with_forgotten: BTreeSet<u64>,
    /// The numbers of the holds a part of which is being released.
    lowering: BTreeSet<u64>,
}

/// The properties of a hold by which the index finds it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Filing {
    group: HoldGroup,
    has_forgotten: bool,
    is_lowering: bool,
}

impl Filing {
    pub(super) fn of(state: &HoldState) -> Self {
        let is_living = state.is_living();
        Self {
            group: state.phase.into(),
            has_forgotten: is_living && !state.forgotten.is_empty(),
            is_lowering: is_living && state.is_lowering,
        }
    }
}

/// The phase of a hold, as coarse as the queries need it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum HoldGroup {
    Pending,
    Living,
    Lost,
    Ended,
}

impl From<HoldPhase> for HoldGroup {
    fn from(phase: HoldPhase) -> Self {
        match phase {
            HoldPhase::Pending => Self::Pending,
            HoldPhase::Held | HoldPhase::Jeopardy => Self::Living,
            HoldPhase::Lost(_) => Self::Lost,
            HoldPhase::Ended => Self::Ended,
        }
    }
}

impl Default for HoldsOfKey {
    fn default() -> Self {
        Self::Few(FewHolds::None)
    }
}

impl HoldsOfKey {
    pub(super) fn push(&mut self, hold: Arc<Hold>) {
        match self {
            Self::Few(holds) if holds.len() < FEW => holds.push(hold),
            Self::Few(holds) => {
                let mut index = Box::<Index>::default();
                for hold in holds.iter().cloned().chain([hold]) {
                    index.insert(hold);
                }
                *self = Self::Many(index);
            }
            Self::Many(index) => index.insert(hold),
        }
    }

    pub(super) fn remove(&mut self, hold: &Arc<Hold>) {
        match self {
            Self::Few(holds) => holds.remove(hold),
            Self::Many(index) => {
                index.remove(hold);
                // Far fewer than `FEW`, so that a crowd of about that size does not switch the
                // representation at each step.
                if index.holds.len() <= FEW / 2 {
                    let few = std::mem::take(&mut index.holds).into_values();
                    *self = Self::Few(few.map(|(_, hold)| hold).collect());
                }
            }
        }
    }

    /// Updates the index after these properties of a hold changed. The hold may be removed already.
    pub(super) fn moved(&mut self, hold: &Hold, to: Filing) {
        if let Self::Many(index) = self {
            index.moved(hold, to);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Hold>> {
        let many = self.index().into_iter();
        let many = many.flat_map(|index| index.holds.values().map(|(_, hold)| hold));
        self.few().iter().chain(many)
    }

    /// The holds of this group, the newest first.
    pub(super) fn of(&self, group: HoldGroup) -> impl Iterator<Item = &Arc<Hold>> {
        let is_of = move |hold: &&Arc<Hold>| HoldGroup::from(hold.state().phase) == group;
        let many = self.index().into_iter();
        let many = many.flat_map(move |index| index.of(group));
        self.few().iter().rev().filter(is_of).chain(many)
    }

    /// The oldest hold with forgotten claims.
    pub(super) fn with_forgotten(&self) -> Option<&Arc<Hold>> {
        let is_one = |hold: &&Arc<Hold>| Filing::of(&hold.state()).has_forgotten;
        match self {
            Self::Few(holds) => holds.iter().find(is_one),
            Self::Many(index) => self.numbered(*index.with_forgotten.first()?),
        }
    }

    /// The newest hold a part of which is being released.
    pub(super) fn lowering(&self) -> Option<&Arc<Hold>> {
        let is_one = |hold: &&Arc<Hold>| Filing::of(&hold.state()).is_lowering;
        match self {
            Self::Few(holds) => holds.iter().rev().find(is_one),
            Self::Many(index) => self.numbered(*index.lowering.last()?),
        }
    }

    pub(super) fn numbered(&self, number: u64) -> Option<&Arc<Hold>> {
        match self {
            Self::Few(holds) => holds.iter().find(|hold| hold.number() == number),
            Self::Many(index) => index.holds.get(&number).map(|(_, hold)| hold),
        }
    }

    /// The newest hold of `owner` that has not ended. A pending one only if there is no other.
    pub(super) fn of_owner(&self, owner: Owner) -> Option<&Arc<Hold>> {
        match self {
            Self::Few(holds) => {
                let is_of = |hold: &&Arc<Hold>| {
                    hold.owner() == owner && hold.state().phase != HoldPhase::Ended
                };
                let holds = holds.iter().rev().filter(is_of);
                holds.min_by_key(|hold| hold.state().phase == HoldPhase::Pending)
            }
            Self::Many(index) => {
                let (_, number) = index.by_owner.get(&owner)?.last()?;
                self.numbered(*number)
            }
        }
    }

    fn few(&self) -> &[Arc<Hold>] {
        match self {
            Self::Few(holds) => holds,
            Self::Many(_) => &[],
        }
    }

    fn index(&self) -> Option<&Index> {
        match self {
            Self::Few(_) => None,
            Self::Many(index) => Some(index),
        }
    }
}

impl Index {
    fn insert(&mut self, hold: Arc<Hold>) {
        let filing = Filing::of(&hold.state());
        self.file(&hold, filing);
        self.holds.insert(hold.number(), (filing, hold));
    }

    fn remove(&mut self, hold: &Hold) {
        if let Some((filing, _)) = self.holds.remove(&hold.number()) {
            self.unfile(hold, filing);
        }
    }

    fn moved(&mut self, hold: &Hold, to: Filing) {
        let Some((filing, _)) = self.holds.get_mut(&hold.number()) else {
            return;
        };
        let from = std::mem::replace(filing, to);
        if from != to {
            self.unfile(hold, from);
            self.file(hold, to);
        }
    }

    /// Adds the hold to the sets that it belongs to.
    fn file(&mut self, hold: &Hold, filing: Filing) {
        let (group, number) = (filing.group, hold.number());
        self.groups.insert((group, number));
        if group != HoldGroup::Ended {
            let numbers = self.by_owner.entry(hold.owner()).or_default();
            numbers.insert((group != HoldGroup::Pending, number));
        }
        if filing.has_forgotten {
            self.with_forgotten.insert(number);
        }
        if filing.is_lowering {
            self.lowering.insert(number);
        }
    }

    fn unfile(&mut self, hold: &Hold, filing: Filing) {
        let (group, number) = (filing.group, hold.number());
        self.groups.remove(&(group, number));
        if let Some(numbers) = self.by_owner.get_mut(&hold.owner()) {
            numbers.remove(&(group != HoldGroup::Pending, number));
            if numbers.is_empty() {
                self.by_owner.remove(&hold.owner());
            }
        }
        self.with_forgotten.remove(&number);
        self.lowering.remove(&number);
    }

    fn of(&self, group: HoldGroup) -> impl Iterator<Item = &Arc<Hold>> {
        let numbers = self.groups.range((group, 0)..=(group, u64::MAX)).rev();
        numbers.filter_map(|(_, number)| self.holds.get(number).map(|(_, hold)| hold))
    }
}

/// Up to this many holds are scanned one by one.
const FEW: usize = 16;
