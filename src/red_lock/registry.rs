//! Which quorum hold of a lock each owner has.

use std::any::Any;
use std::sync::Arc;

use super::config::RedLockConfig;
use super::quorum_hold::QuorumHold;
use crate::owner::Owner;
use crate::session::Core;

impl RedLockConfig {
    /// What `owner` holds already, or held and has a guard of still.
    pub(super) fn registered(&self, owner: Owner) -> Option<Arc<QuorumHold>> {
        let core: &Arc<Core> = self.home_instance().core();
        let known: Arc<dyn Any + Send + Sync> = core.upkeep.get(owner, &self.id)?;
        let hold: Arc<QuorumHold> = known.downcast().ok()?;
        // What is only being acquired is nobody's yet.
        (!hold.see(|state, _| state.is_undecided())).then_some(hold)
    }
}

impl QuorumHold {
    /// Other calls of its owner find it from now on; unless there is another of its owner, which is the
    /// answer then.
    pub(super) fn register(self: &Arc<Self>) -> Option<Arc<Self>> {
        let known: Arc<dyn Any + Send + Sync> = self.clone();
        let upkeep = &self.lock.home_instance().core().upkeep;
        let other = upkeep.insert(self.owner, &self.lock.id, Arc::downgrade(&known))?;
        other.downcast().ok()
    }

    /// A call of its owner finds nothing of it any more.
    pub(super) fn unregister(self: &Arc<Self>) {
        let known: Arc<dyn Any + Send + Sync> = self.clone();
        let upkeep = &self.lock.home_instance().core().upkeep;
        upkeep.forget(self.owner, &self.lock.id, &known);
    }
}
