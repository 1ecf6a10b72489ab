//! Whether the server is thought to be silent.
//!
//! Who found it silent says so, and asks it nothing more; the client's own thread asks, one question
//! at a time, until it answers. So nothing piles up at a server that stands still.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::failure::Failure;

pub(super) struct Health {
    /// True while `why` is there: all that is read while nothing is wrong.
    suspect: AtomicBool,
    why: Mutex<Option<Failure>>,
    /// Told when it falls under suspicion; the deployment's servers share it.
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

    /// The first reason stands: those after it follow from it.
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

    /// True if it was under suspicion until now.
    pub(super) fn answered(&self) -> bool {
        let mut why = self.why.lock();
        self.suspect.store(false, Ordering::Release);
        why.take().is_some()
    }
}
