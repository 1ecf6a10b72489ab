//! A view of a held lock for the work done under it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::error::Lost;
use crate::hold::Hold;
use crate::lease::TOLD_EARLY;
use crate::owner::Owner;
use crate::session::Session;

/// A view of a held lock, for the work done under it: all that a [`Guard`](super::Guard) tells,
/// without the means to end it.
#[derive(Clone)]
pub struct Held {
    session: Arc<Session>,
    hold: Arc<Hold>,
}

impl Held {
    pub(super) fn new(session: Arc<Session>, hold: Arc<Hold>) -> Self {
        Self { session, hold }
    }

    /// See [`Guard::lost`](super::Guard::lost). A view that outlived its guard is told at once.
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub async fn lost(&self) -> Lost {
        let core = self.session.core();
        let told = self.hold.lost_token();
        loop {
            let now = core.clock.now();
            // Said a little early, so that it is not said too late.
            if let Some(lost) = self.hold.loss(now + TOLD_EARLY) {
                // What is said stays true: no renewal may come in after it.
                if core.lose_quietly(&self.hold, lost.reason()) {
                    core.report_lost(&self.hold);
                }
                return lost;
            }
            // Tokio's timers stop while the machine sleeps, so the clock is looked at often.
            let left = self.hold.remaining(now).saturating_sub(TOLD_EARLY);
            tokio::select! {
                () = told.cancelled() => {}
                () = tokio::time::sleep(left.min(TICK)) => {}
            }
        }
    }

    /// See [`Guard::lost_token`](super::Guard::lost_token).
    pub fn lost_token(&self) -> CancellationToken {
        self.hold.lost_token().child_token()
    }

    /// See [`Guard::is_valid`](super::Guard::is_valid).
    pub fn is_valid(&self) -> bool {
        let now = self.session.core().clock.now();
        self.hold.state().is_valid(now)
    }

    /// See [`Guard::remaining`](super::Guard::remaining).
    pub fn remaining(&self) -> Duration {
        self.hold.remaining(self.session.core().clock.now())
    }

    /// See [`Guard::hold_count`](super::Guard::hold_count).
    pub fn hold_count(&self) -> u32 {
        self.hold.state().claims()
    }

    /// Who holds the lock.
    pub fn owner(&self) -> Owner {
        self.hold.owner()
    }

    /// The lock's name, as it was asked for.
    pub fn lock_name(&self) -> &str {
        self.hold.key().name()
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("lock", &self.lock_name())
            .field("owner", &self.owner())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

/// How often the clock is looked at.
const TICK: Duration = Duration::from_millis(100);
