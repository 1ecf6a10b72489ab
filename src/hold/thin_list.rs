//! A list that most holds have no entry in.

use std::ops::Deref;

use smallvec::SmallVec;

/// A list that takes one pointer while it is empty. A client may have 1,000,000 holds.
#[derive(Debug)]
pub(super) struct ThinList<T>(Option<Box<SmallVec<[T; 1]>>>);

impl<T> ThinList<T> {
    pub(super) const EMPTY: Self = Self(None);

    pub(super) fn push(&mut self, item: T) {
        self.0.get_or_insert_default().push(item);
    }

    pub(super) fn pop(&mut self) -> Option<T> {
        self.0.as_mut()?.pop()
    }

    pub(super) fn clear(&mut self) {
        self.0 = None;
    }
}

impl<T> Deref for ThinList<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.0.as_deref().map_or(&[], SmallVec::as_slice)
    }
}
