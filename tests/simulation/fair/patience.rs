//! The owners that wait and whose futures are polled until the end of the wait.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::observer::owner_of;

/// Shared by the tasks and the observer. Owners are identified by their names in the fields.
#[derive(Clone, Default)]
pub(super) struct Patience {
    /// The number of the wait of each owner that waits now.
    waits: Arc<Mutex<(u64, HashMap<String, u64>)>>,
}

/// The wait lasts until this value is dropped.
pub(super) struct PatientWait {
    patience: Patience,
    owner: String,
}

impl Patience {
    pub(super) fn begin(&self, owner: &str) -> PatientWait {
        let mut waits = self.waits.lock();
        waits.0 += 1;
        let number = waits.0;
        waits.1.insert(owner.to_owned(), number);
        PatientWait {
            patience: self.clone(),
            owner: owner.to_owned(),
        }
    }

    /// Whether the wait of this field, which is one of `waits`, lasts.
    pub(super) fn is_of(&self, waits: &HashMap<String, u64>, field: &str) -> bool {
        let wait = self.wait_of(owner_of(field));
        wait.is_some() && wait == waits.get(field).copied()
    }

    /// The number of the wait of this owner, if it waits.
    pub(super) fn wait_of(&self, owner: &str) -> Option<u64> {
        self.waits.lock().1.get(owner).copied()
    }
}

impl Drop for PatientWait {
    fn drop(&mut self) {
        self.patience.waits.lock().1.remove(&self.owner);
    }
}
