//! The calls that end a client.

use std::time::Duration;

use super::Client;
use super::shutdown::{ShutdownReport, release_all, usual_end};
use crate::clock::Moment;

impl Client {
    /// Shuts the client down. Corresponds to Redisson's `shutdown()`, which releases nothing.
    ///
    /// It releases every hold and waits until Redis has confirmed that. Two kinds of holds stay: those that
    /// [`Guard::leave_to_lease`](crate::Guard::leave_to_lease) or
    /// [`LeasedPermit::leave_to_lease`](crate::LeasedPermit::leave_to_lease) left to their leases, and those with
    /// [`hold_at_least`](crate::request::LockRequest::hold_at_least), for the rest of that time.
    /// Guards that still exist report their locks as lost. Calls that wait or acquire end with
    /// [`Error::Closed`](crate::Error::Closed), and the client undoes what they acquired. The client also continues to send the calls of
    /// [`CountDownLatch::count_down`](crate::CountDownLatch::count_down), `add_permits` and
    /// [`Semaphore::release`](crate::Semaphore::release) that have no answer yet. Then it waits for the end of
    /// the client's thread and connections. The report counts the released holds.
    ///
    /// It takes at most 2x the command timeout, or 4x (12 s by default) if the server does not answer.
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled, the steps that began continue in the background. Call it again to finish.
    pub async fn shutdown(&self) -> ShutdownReport {
        self.shutdown_by(Moment::NEVER).await
    }

    /// As [`Client::shutdown`], but ends after `limit` at the latest. Use it for a service that is killed a fixed
    /// time after it received a signal to stop. Corresponds to Redisson's
    /// `shutdown(quietPeriod, timeout, unit)`, without the quiet period.
    ///
    /// The report counts a release as unconfirmed if Redis has not confirmed it by then. That hold ends with its
    /// lease. The client continues to release it in the background while the process runs, for up to four command
    /// timeouts. Then the client's thread and connections end, even if handles of the client still exist.
    ///
    /// # Cancel safety
    ///
    /// If it is cancelled, the steps that began continue in the background. Call it again to finish.
    pub async fn shutdown_within(&self, limit: Duration) -> ShutdownReport {
        let latest = self.session.core().clock.now() + limit;
        self.shutdown_by(latest).await
    }

    async fn shutdown_by(&self, latest: Moment) -> ShutdownReport {
        let core = self.session.core();
        let report = release_all(core, latest.min(usual_end(core))).await;
        core.ending.cancel();
        tokio::select! {
            () = self.ended.cancelled() => {}
            // What is still being released needs its connections. The background closes them at its end.
            () = core.clock.sleep_until(latest) => {}
        }
        report
    }
}
