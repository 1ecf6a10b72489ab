//! The locks of values of groups on which a client has holds.

use std::collections::HashMap;
use std::sync::Arc;

use crate::key::LockKey;

/// By the key of the group, and then by each of their values. So the cost of a lookup depends on the number
/// of the lock's values, and not on the number of the client's locks.
#[derive(Default)]
pub(super) struct ByValue(pub(super) HashMap<String, HashMap<String, Vec<Arc<LockKey>>>>);

impl ByValue {
    /// Adds a lock on which the client had no hold. A lock without values changes nothing.
    pub(super) fn add(&mut self, key: &Arc<LockKey>) {
        if key.values().is_empty() {
            return;
        }
        let group = self.0.entry(key.key().to_owned()).or_default();
        for value in key.values() {
            group.entry(value.clone()).or_default().push(key.clone());
        }
    }

    /// Removes a lock on which the client has no hold any more.
    pub(super) fn remove(&mut self, key: &LockKey) {
        let Some(group) = self.0.get_mut(key.key()) else {
            return;
        };
        for value in key.values() {
            if let Some(locks) = group.get_mut(value) {
                locks.retain(|lock| **lock != *key);
                if locks.is_empty() {
                    group.remove(value);
                }
            }
        }
        if group.is_empty() {
            self.0.remove(key.key());
        }
    }

    /// The other locks of the same group that have a value in common with this lock. A lock appears once for
    /// each common value.
    pub(super) fn overlapping(&self, key: &LockKey) -> impl Iterator<Item = &Arc<LockKey>> {
        let group = self.0.get(key.key());
        let of_values = group.into_iter().flat_map(|group| {
            let values = key.values().iter();
            values.filter_map(|value| group.get(value))
        });
        of_values.flatten().filter(|lock| ***lock != *key)
    }
}
