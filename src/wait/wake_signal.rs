//! Wakes one waiter, and remembers why it woke.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use tokio::sync::Notify;

use crate::clock::{Clock, Moment};
use crate::observe::WokenBy;

/// Wakes one waiter.
pub(super) struct WakeSignal {
    woken: Notify,
    /// A message of the server woke it since its last wait.
    has_message: AtomicBool,
    /// What ended its last wait.
    by: AtomicU8,
}

impl WakeSignal {
    pub(super) fn new() -> Self {
        Self {
            woken: Notify::new(),
            has_message: AtomicBool::new(false),
            by: AtomicU8::new(MESSAGE),
        }
    }

    pub(super) fn wake(&self) {
        self.woken.notify_one();
    }

    /// A message of the server is about to wake it.
    pub(super) fn note_message(&self) {
        self.has_message.store(true, Ordering::Relaxed);
    }

    /// What ended its last wait.
    pub(super) fn woken_by(&self) -> WokenBy {
        match self.by.load(Ordering::Relaxed) {
            TIMER => WokenBy::Timer,
            RELEASE => WokenBy::Release,
            _ => WokenBy::Message,
        }
    }

    /// Waits until it is woken, at most until `until`.
    pub(super) async fn wait(&self, clock: &Clock, until: Moment) {
        // A call that waits for several locks drops this wait if a message for another of them comes.
        self.by.store(MESSAGE, Ordering::Relaxed);
        tokio::select! {
            biased;
            () = self.woken.notified() => {
                if !self.has_message.swap(false, Ordering::Relaxed) {
                    self.by.store(RELEASE, Ordering::Relaxed);
                }
            }
            () = clock.sleep_until(until) => self.by.store(TIMER, Ordering::Relaxed),
        }
    }
}

/// Values of `by`.
const MESSAGE: u8 = 0;
const TIMER: u8 = 1;
const RELEASE: u8 = 2;
