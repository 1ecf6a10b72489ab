//! The state that a guard reports, moment by moment, until it reports its loss.

use std::time::{Duration, Instant};

use lockdog::Guard;
use lockdog::error::LostReason;

use super::crowd::Beside;
use crate::red_lock::{SOON, ms};

/// A guard whose loss is watched.
pub(super) struct Watched {
    guard: Guard,
    last_valid: Instant,
    /// The latest deadline that the guard reported.
    deadline: Instant,
    /// The work under the guard.
    work: Option<Beside>,
}

/// The end of a guard.
#[derive(Debug)]
pub(super) struct Loss {
    /// The guard was valid at this moment or slightly later.
    pub(super) last_valid: Instant,
    pub(super) reason: LostReason,
}

impl Watched {
    pub(super) fn new(guard: Guard) -> Self {
        let now = Instant::now();
        Self {
            guard,
            last_valid: now,
            deadline: now,
            work: None,
        }
    }

    /// Makes the holder work on a cell that detects a second holder.
    pub(super) fn working(self, work: Beside) -> Self {
        let work = Some(work);
        Self { work, ..self }
    }

    async fn a_while(&self) {
        match &self.work {
            Some(work) => work.work(|| self.guard.is_valid()).await,
            None => tokio::time::sleep(ms(5)).await,
        }
    }

    /// Checks whether the guard is valid, and records the times.
    pub(super) fn look(&mut self) -> bool {
        let before = Instant::now();
        let valid = self.guard.is_valid();
        if valid {
            self.last_valid = before;
            self.deadline = Instant::now() + self.guard.remaining();
        }
        valid
    }

    /// Checks that the guard stays valid for this time.
    pub(super) async fn stays_valid(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            assert!(self.look(), "lost: {:?}", self.guard.instances());
            self.a_while().await;
        }
    }

    /// Waits for the loss of the guard and checks that it is notified by its deadline.
    pub(super) async fn followed_to_the_end(mut self) -> Loss {
        let watch = async {
            while self.look() {
                tokio::select! {
                    lost = self.guard.lost() => return lost,
                    () = self.a_while() => {}
                }
            }
            self.guard.lost().await
        };
        let lost = tokio::time::timeout(SOON, watch).await;
        let lost = lost.expect("the old holder is notified of the loss");
        let notified = Instant::now();
        assert!(!self.guard.is_valid());
        let token = self.guard.lost_token();
        let cancelled = tokio::time::timeout(SOON, token.cancelled()).await;
        cancelled.expect("its token is cancelled");
        let late = notified.saturating_duration_since(self.deadline);
        assert!(late < A_MOMENT, "notified {late:?} after its deadline");
        Loss {
            last_valid: self.last_valid,
            reason: lost.reason(),
        }
    }

    pub(super) fn guard(&self) -> &Guard {
        &self.guard
    }

    pub(super) fn into_guard(self) -> Guard {
        self.guard
    }
}

/// The time that a busy machine may take to run a task. A test in virtual time checks that no holder is
/// notified late (`losses` in `crates/lockdog-test`).
const A_MOMENT: Duration = Duration::from_secs(5);
