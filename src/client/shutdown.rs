//! The shutdown of a client: it releases everything that the client holds.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock::Moment;
use crate::hold::HoldPhase;
use crate::observe::End;
use crate::session::{Core, Job, JobOutcome};

/// The result of a shutdown, from [`Client::shutdown`](crate::Client::shutdown).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// The number of holds whose release Redis confirmed. Those that it keeps for the rest of
    /// [`hold_at_least`](crate::request::LockRequest::hold_at_least) are among them.
    pub released: u32,
    /// The number of holds that may remain in Redis until their leases end, because Redis did not answer
    /// or refused the release. Permits without leases remain until
    /// [`Semaphore::reclaim`](crate::Semaphore::reclaim). It includes releases that began before the shutdown.
    pub unconfirmed: u32,
    /// The number of calls that Redis has not answered: [`CountDownLatch::count_down`],
    /// `add_permits`, [`Semaphore::release`] and [`Semaphore::release_if_exists`] of this client. They may have counted.
    ///
    /// [`CountDownLatch::count_down`]: crate::CountDownLatch::count_down
    /// [`Semaphore::release`]: crate::Semaphore::release
    /// [`Semaphore::release_if_exists`]: crate::Semaphore::release_if_exists
    pub unanswered_calls: u32,
}

/// When a shutdown without a limit stops waiting for answers.
pub(super) fn usual_end(core: &Core) -> Moment {
    core.clock.now() + core.server.command_timeout() * 2
}

/// Takes every hold from its guards and releases it. Waits for the answers until `deadline`.
pub(super) async fn release_all(core: &Arc<Core>, deadline: Moment) -> ShutdownReport {
    core.close();
    // A release may need a new connection, so the client must not wait out a reconnect delay.
    core.server.retry_now();
    let mut report = ShutdownReport::default();
    let (mut held, mut in_flight) = (Vec::new(), Vec::new());
    for hold in core.holds.all() {
        if hold.state().left > 0 {
            // A claim was left to the lease: notify the other guards, and let the lease end the hold.
            core.lose_in_shutdown(&hold);
            core.notify_released(&hold, true);
        } else if core.lose_in_shutdown(&hold) {
            hold.state().ended_as = End::ShutDown;
            let (job, answer) = Job::answering(hold.clone());
            core.settle_in_background(job);
            held.push((hold, answer));
        } else if hold.is_with_caller() {
            // The caller may never poll its future again, so the background undoes the acquire.
            core.end_pending(&hold);
            let (job, answer) = Job::if_listed(hold);
            core.settle_in_background(job);
            in_flight.push(answer);
        }
    }
    let counted: HashSet<u64> = held.iter().map(|(hold, _)| hold.number()).collect();
    for (hold, answer) in held {
        let outcome = outcome(core, answer, deadline).await;
        core.notify_released(&hold, outcome != JobOutcome::Unanswered);
        match outcome {
            JobOutcome::Unanswered => report.unconfirmed += 1,
            JobOutcome::Done | JobOutcome::Nothing => report.released += 1,
        }
    }
    for answer in in_flight {
        // A granted acquire counts as a released hold. One without an answer is counted below.
        let outcome = outcome(core, answer, deadline).await;
        report.released += u32::from(outcome == JobOutcome::Done);
    }
    let unfinished = still_releasing(core, &counted, deadline).await + core.unreleased();
    report.unconfirmed += u32::try_from(unfinished).unwrap_or(u32::MAX);
    let calls = core.finish_calls(deadline).await;
    report.unanswered_calls = u32::try_from(calls).unwrap_or(u32::MAX);
    report
}

async fn outcome(
    core: &Core,
    answer: oneshot::Receiver<JobOutcome>,
    deadline: Moment,
) -> JobOutcome {
    tokio::select! {
        answer = answer => answer.unwrap_or(JobOutcome::Unanswered),
        () = core.clock.sleep_until(deadline) => JobOutcome::Unanswered,
    }
}

/// Waits for the releases that began before the shutdown. Returns how many are unfinished at `deadline`. `counted` are
/// the numbers of the holds that the shutdown released: they end too when their last guards are dropped.
async fn still_releasing(core: &Arc<Core>, counted: &HashSet<u64>, deadline: Moment) -> usize {
    loop {
        let holds = core.holds.all();
        let releasing = holds.iter().filter(|hold| {
            hold.state().phase == HoldPhase::Ended && !counted.contains(&hold.number())
        });
        match releasing.count() {
            0 => return 0,
            left if core.clock.now() >= deadline => return left,
            _ => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

const POLL_INTERVAL: Duration = Duration::from_millis(2);
