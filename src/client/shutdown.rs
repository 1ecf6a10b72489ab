//! A clean end: nothing that this client holds stays behind.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock::Moment;
use crate::error::LostReason;
use crate::hold::{HoldPhase, HoldState};
use crate::session::{Core, Job, JobOutcome};

/// What a shutdown came to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Holds that Redis confirmed to be released.
    pub released: u32,
    /// Holds that may be left in Redis until their leases are over, because it did not answer or
    /// refused the release: those still held at the shutdown, and those that were being released.
    pub unconfirmed: u32,
}

/// Takes every hold from its guards and releases it.
pub(super) async fn release_all(core: &Arc<Core>) -> ShutdownReport {
    core.close();
    // What is to be released may have to be connected for, in the time that is left.
    core.server.retry_now();
    let patience = core.clock.now() + core.server.command_timeout() * 2;
    let mut report = ShutdownReport::default();
    let (mut held, mut under_way) = (Vec::new(), Vec::new());
    for hold in core.holds.all() {
        if hold.state().left > 0 {
            // Its guards are told, and its lease ends it.
            core.lose_quietly(&hold, LostReason::ShutDown);
        } else if core.lose_quietly(&hold, LostReason::ShutDown) {
            let (job, answer) = Job::answering(hold);
            core.settle_in_background(job);
            held.push(answer);
        } else if hold.is_with_caller() {
            // Its call may be polled no more. What it asked for is undone without it.
            core.holds.change(&hold, HoldState::end_pending);
            let (job, answer) = Job::if_listed(hold);
            core.settle_in_background(job);
            under_way.push(answer);
        }
    }
    for answer in held {
        match outcome(core, answer, patience).await {
            JobOutcome::Unanswered => report.unconfirmed += 1,
            JobOutcome::Done | JobOutcome::Nothing => report.released += 1,
        }
    }
    for answer in under_way {
        // One that was granted was a hold; one without an answer is counted below.
        let outcome = outcome(core, answer, patience).await;
        report.released += u32::from(outcome == JobOutcome::Done);
    }
    let behind = still_releasing(core, patience).await + core.unreleased();
    report.unconfirmed += u32::try_from(behind).unwrap_or(u32::MAX);
    report
}

async fn outcome(
    core: &Core,
    answer: oneshot::Receiver<JobOutcome>,
    patience: Moment,
) -> JobOutcome {
    tokio::select! {
        answer = answer => answer.unwrap_or(JobOutcome::Unanswered),
        () = core.clock.sleep_until(patience) => JobOutcome::Unanswered,
    }
}

/// Waits for the releases that were under way already; how many are so at the end of patience.
async fn still_releasing(core: &Arc<Core>, patience: Moment) -> usize {
    loop {
        let holds = core.holds.all();
        let releasing = holds
            .iter()
            .filter(|hold| hold.state().phase == HoldPhase::Ended);
        match releasing.count() {
            0 => return 0,
            left if core.clock.now() >= patience => return left,
            _ => tokio::time::sleep(LOOK_AGAIN).await,
        }
    }
}

const LOOK_AGAIN: Duration = Duration::from_millis(2);
