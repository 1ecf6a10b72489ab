//! The registry of quorum holds: which one each owner has.

use std::sync::Arc;

use super::config::RedLockConfig;
use super::quorum_hold::QuorumHold;
use crate::owner::Owner;
use crate::session::Core;

impl RedLockConfig {
    /// The hold of `owner`, also if it is lost and a guard of it still exists.
    pub(super) fn registered(&self, owner: Owner) -> Option<Arc<QuorumHold>> {
        let core: &Arc<Core> = self.home_instance().core();
        let hold: Arc<QuorumHold> = core.registry.get(owner, &self.id)?;
        // A hold that is still being acquired does not count.
        (!hold.see(|state, _| state.is_undecided())).then_some(hold)
    }
}

impl QuorumHold {
    /// Registers it for other calls of its owner. If its owner already has another hold of this lock,
    /// returns that one instead.
    pub(super) fn register(self: &Arc<Self>) -> Option<Arc<Self>> {
        let registry = &self.lock.home_instance().core().registry;
        registry.insert(self.owner, &self.lock.id, self)
    }

    /// Removes it from the registry, so that calls of its owner do not find it any more.
    pub(super) fn unregister(self: &Arc<Self>) {
        let registry = &self.lock.home_instance().core().registry;
        registry.remove(self.owner, &self.lock.id, self);
    }
}
