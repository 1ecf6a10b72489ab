//! What all servers of a client have in common.

use std::time::Duration;

use crate::background::Background;
use crate::clock::Clock;

/// What all servers of a client have in common.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) clock: Clock,
    /// Where it runs what several callers wait for.
    pub(crate) background: Background,
    pub(crate) command_timeout: Duration,
    /// The length of the leases that the watchdog renews.
    pub(crate) watchdog_lease: Duration,
}

impl Context {
    /// With this runtime as its background.
    #[cfg(test)]
    pub(crate) fn here(clock: &Clock) -> Self {
        Self {
            clock: clock.clone(),
            background: Background::here(),
            command_timeout: Duration::from_secs(3),
            watchdog_lease: Duration::from_secs(30),
        }
    }
}
