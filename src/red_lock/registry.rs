//! The registry of quorum holds: which one each owner has.

use std::collections::{HashMap, hash_map};
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;

use super::config::RedLockConfig;
use super::quorum_hold::QuorumHold;
use crate::owner::Owner;

/// The holds that owners have or are acquiring. The id of a lock names the clients of the lock, so two clients
/// never share an entry, and one registry is enough for the process.
static REGISTRY: LazyLock<Mutex<HashMap<RegistryKey, Weak<QuorumHold>>>> =
    LazyLock::new(Mutex::default);

/// The owner, and the id of the lock.
type RegistryKey = (Owner, Arc<str>);

impl RedLockConfig {
    /// The hold of `owner`, also if it is lost and a guard of it still exists.
    pub(super) fn registered(&self, owner: Owner) -> Option<Arc<QuorumHold>> {
        let key = (owner, self.id.clone());
        let hold = REGISTRY.lock().get(&key).and_then(Weak::upgrade)?;
        // A hold that is still being acquired does not count.
        (!hold.see(|state, _| state.is_undecided())).then_some(hold)
    }
}

impl QuorumHold {
    /// Registers it for other calls of its owner. If its owner already has another hold of this lock,
    /// returns that one instead.
    pub(super) fn register(self: &Arc<Self>) -> Option<Arc<Self>> {
        match REGISTRY.lock().entry(self.registry_key()) {
            hash_map::Entry::Occupied(mut known) => {
                let living = known.get().upgrade();
                if living.is_none() {
                    known.insert(Arc::downgrade(self));
                }
                living
            }
            hash_map::Entry::Vacant(unknown) => {
                unknown.insert(Arc::downgrade(self));
                None
            }
        }
    }

    /// Removes it from the registry, so that calls of its owner do not find it any more.
    pub(super) fn unregister(&self) {
        let key = self.registry_key();
        let mut known = REGISTRY.lock();
        let found = known.get(&key).and_then(Weak::upgrade);
        if found
            .as_ref()
            .is_none_or(|found| std::ptr::eq(&**found, self))
        {
            known.remove(&key);
        }
        // `found` may be the last handle of the hold. Its drop locks the registry, so the registry is unlocked
        // first.
        drop(known);
        drop(found);
    }

    fn registry_key(&self) -> RegistryKey {
        (self.owner, self.lock.id.clone())
    }
}

/// A hold that was forgotten and never unlocked is still registered.
impl Drop for QuorumHold {
    fn drop(&mut self) {
        self.unregister();
    }
}
