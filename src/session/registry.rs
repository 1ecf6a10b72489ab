//! What owners hold or are acquiring of composite locks.

use std::any::Any;
use std::collections::{HashMap, hash_map};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::owner::Owner;

/// For each owner and each id of a composite lock, what the owner has of it. The types of composite locks
/// are in layers above this one, so each caller names the type of its entries. An id has entries of one type.
#[derive(Default)]
pub(crate) struct Registry {
    known: Mutex<HashMap<(Owner, Arc<str>), Entry>>,
}

/// What an owner has of a composite lock.
type Entry = Weak<dyn Any + Send + Sync>;

impl Registry {
    pub(crate) fn get<T: Any + Send + Sync>(&self, owner: Owner, id: &Arc<str>) -> Option<Arc<T>> {
        let known = self.known.lock();
        let entry = known.get(&(owner, id.clone()))?.upgrade();
        drop(known);
        entry?.downcast().ok()
    }

    /// Registers what this owner has of the lock. If something is registered already, it stays, and is
    /// returned.
    pub(crate) fn insert<T: Any + Send + Sync>(
        &self,
        owner: Owner,
        id: &Arc<str>,
        entry: &Arc<T>,
    ) -> Option<Arc<T>> {
        let entry: Weak<T> = Arc::downgrade(entry);
        let living = match self.known.lock().entry((owner, id.clone())) {
            hash_map::Entry::Occupied(mut known) => {
                let living = known.get().upgrade();
                if living.is_none() {
                    known.insert(entry);
                }
                living
            }
            hash_map::Entry::Vacant(unknown) => {
                unknown.insert(entry);
                None
            }
        };
        living?.downcast().ok()
    }

    /// Unregisters what the owner no longer holds, or did not acquire.
    pub(crate) fn remove<T: Any + Send + Sync>(&self, owner: Owner, id: &Arc<str>, entry: &Arc<T>) {
        let key = (owner, id.clone());
        let mut known = self.known.lock();
        let found = known.get(&key).and_then(Weak::upgrade);
        let is_entry = |found: &Arc<dyn Any + Send + Sync>| {
            std::ptr::addr_eq(Arc::as_ptr(found), Arc::as_ptr(entry))
        };
        if found.as_ref().is_none_or(is_entry) {
            known.remove(&key);
        }
        // It may be the last one, and its drop runs other code.
        drop(known);
        drop(found);
    }
}
