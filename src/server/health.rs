//! Whether the server is suspected to be silent.
//!
//! A caller that finds the server silent reports it here, and the client stops sending it commands.
//! The client's own thread sends probes until the server answers. So a frozen server gets no growing queue of
//! commands.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::failure::Failure;

pub(super) struct Health {
    /// True while `why` is set. On the normal path only this flag is read.
    suspect: AtomicBool,
    why: Mutex<Option<Failure>>,
    /// Notified when the server becomes suspected. All servers of the deployment share it.
    changed: Arc<Notify>,
}

impl Health {
    pub(super) fn new(changed: Arc<Notify>) -> Self {
        Self {
            suspect: AtomicBool::new(false),
            why: Mutex::default(),
            changed,
        }
    }

    /// The first reason stays: later ones are consequences of it.
    pub(super) fn suspect(&self, failure: &Failure) {
        let mut why = self.why.lock();
        if why.is_some() {
            return;
        }
        *why = Some(failure.clone());
        self.suspect.store(true, Ordering::Release);
        drop(why);
        self.changed.notify_one();
    }

    pub(super) fn suspected(&self) -> Option<Failure> {
        if !self.suspect.load(Ordering::Acquire) {
            return None;
        }
        self.why.lock().clone()
    }

    /// True if it was suspected until now.
    pub(super) fn answered(&self) -> bool {
        let mut why = self.why.lock();
        self.suspect.store(false, Ordering::Release);
        why.take().is_some()
    }
}
