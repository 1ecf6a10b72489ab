//! The registry of quorum holds: which one each owner has.

use std::any::Any;
use std::sync::Arc;

use super::config::RedLockConfig;
use super::quorum_hold::QuorumHold;
use crate::owner::Owner;
use crate::session::Core;

impl RedLockConfig {
    /// The hold of `owner`, also if it is lost and a guard of it still exists.
    pub(super) fn registered(&self, owner: Owner) -> Option<Arc<QuorumHold>> {
        let core: &Arc<Core> = self.home_instance().core();
        let known: Arc<dyn Any + Send + Sync> = core.upkeep.get(owner, &self.id)?;
        let hold: Arc<QuorumHold> = known.downcast().ok()?;
        // A hold that is still being acquired does not count.
        (!hold.see(|state, _| state.is_undecided())).then_some(hold)
    }
}

impl QuorumHold {
    /// Registers it for other calls of its owner. If its owner already has another hold of this lock,
    /// returns that one instead.
    pub(super) fn register(self: &Arc<Self>) -> Option<Arc<Self>> {
        let known: Arc<dyn Any + Send + Sync> = self.clone();
        let upkeep = &self.lock.home_instance().core().upkeep;
        let other = upkeep.insert(self.owner, &self.lock.id, Arc::downgrade(&known))?;
        other.downcast().ok()
    }

    /// Removes it from the registry, so that calls of its owner do not find it any more.
    pub(super) fn unregister(self: &Arc<Self>) {
        let known: Arc<dyn Any + Send + Sync> = self.clone();
        let upkeep = &self.lock.home_instance().core().upkeep;
        upkeep.forget(self.owner, &self.lock.id, &known);
    }
}
