//! A clean end: nothing that this client holds stays behind.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock::Moment;
use crate::error::LostReason;
use crate::hold::{Hold, Phase};
use crate::session::{Core, Job};

/// What a shutdown came to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Holds that Redis confirmed to be released.
    pub released: usize,
    /// Holds that may be left in Redis until their leases are over, because it did not answer or
    /// refused the release: those still held at the shutdown, and those that were being released.
    pub unconfirmed: usize,
}

/// Takes every hold from its guards and releases it.
pub(super) async fn release_all(core: &Arc<Core>) -> ShutdownReport {
    core.close();
    let patience = core.clock.now() + core.server.command_timeout() * 2;
    let lost: Vec<Arc<Hold>> = core
        .holds
        .all()
        .into_iter()
        .filter(|hold| core.lose_quietly(hold, LostReason::ShutDown))
        .collect();
    let mut report = ShutdownReport::default();
    let answers: Vec<oneshot::Receiver<bool>> = lost
        .into_iter()
        .map(|hold| {
            let (job, answer) = Job::answering(hold);
            core.owe(job);
            answer
        })
        .collect();
    for answer in answers {
        let released = tokio::select! {
            answer = answer => answer.unwrap_or(false),
            () = core.clock.sleep_until(patience) => false,
        };
        if released {
            report.released += 1;
        } else {
            report.unconfirmed += 1;
        }
    }
    report.unconfirmed += still_releasing(core, patience).await + core.unreleased();
    report
}

/// Waits for the releases that were under way already; how many are so at the end of patience.
async fn still_releasing(core: &Arc<Core>, patience: Moment) -> usize {
    loop {
        let holds = core.holds.all();
        let releasing = holds
            .iter()
            .filter(|hold| hold.state().phase == Phase::Ended);
        match releasing.count() {
            0 => return 0,
            left if core.clock.now() >= patience => return left,
            _ => tokio::time::sleep(LOOK_AGAIN).await,
        }
    }
}

const LOOK_AGAIN: Duration = Duration::from_millis(2);
