//! The holds on most locks: none, one, or a few.

use std::ops::Deref;
use std::sync::Arc;

use smallvec::SmallVec;

use super::Hold;

/// A list of holds in the order of entry. Nearly every lock has one hold, so only more take more than a pointer.
#[derive(Default)]
pub(super) enum FewHolds {
    #[default]
    None,
    One(Arc<Hold>),
    More(Box<SmallVec<[Arc<Hold>; 4]>>),
}

impl FewHolds {
    pub(super) fn push(&mut self, hold: Arc<Hold>) {
        *self = match std::mem::take(self) {
            Self::None => Self::One(hold),
            Self::One(first) => Self::More(Box::new(SmallVec::from_iter([first, hold]))),
            Self::More(mut holds) => {
                holds.push(hold);
                Self::More(holds)
            }
        };
    }

    pub(super) fn remove(&mut self, hold: &Arc<Hold>) {
        match self {
            Self::One(only) if Arc::ptr_eq(only, hold) => *self = Self::None,
            Self::None | Self::One(_) => {}
            Self::More(holds) => holds.retain(|other| !Arc::ptr_eq(other, hold)),
        }
    }
}

impl Deref for FewHolds {
    type Target = [Arc<Hold>];

    fn deref(&self) -> &[Arc<Hold>] {
        match self {
            Self::None => &[],
            Self::One(only) => std::slice::from_ref(only),
            Self::More(holds) => holds,
        }
    }
}

impl FromIterator<Arc<Hold>> for FewHolds {
    fn from_iter<T: IntoIterator<Item = Arc<Hold>>>(holds: T) -> Self {
        let mut few = Self::None;
        for hold in holds {
            few.push(hold);
        }
        few
    }
}
