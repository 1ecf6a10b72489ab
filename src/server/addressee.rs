//! Which server a command in flight went to.

use std::sync::Arc;

use parking_lot::Mutex;

use super::node::Node;
use super::route::Route;

/// The server of one command: a watchdog's, or an acquire of a RedLock's instance. Other parties can read it
/// while the command is in flight.
#[derive(Clone, Default)]
pub(crate) struct Addressee(Arc<Mutex<Option<Arc<Node>>>>);

impl Addressee {
    pub(crate) fn set(&self, route: &Route) {
        let old = self.0.lock().replace(route.node.clone());
        // Dropped after the mutex is released.
        drop(old);
    }

    pub(super) fn node(&self) -> Option<Arc<Node>> {
        self.0.lock().clone()
    }
}
