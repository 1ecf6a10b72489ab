//! What nearly every test needs.

use std::time::Duration;

/// A time limit for steps that take milliseconds on an idle machine.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// As [`SOON`], but below the default lease of 30 s, so a lock that is free by then was released.
pub(crate) const WITHIN_A_LEASE: Duration = Duration::from_secs(20);

/// Longer than every test: for leases, poll caps and quarantines.
pub(crate) const LONG: Duration = Duration::from_secs(300);

pub(crate) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Polls a future once. Gives its output if it is ready.
pub(crate) async fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    tokio::select! {
        biased;
        output = future => Some(output),
        () = std::future::ready(()) => None,
    }
}
