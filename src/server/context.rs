//! Settings that all servers of a client share.

use std::time::Duration;

use crate::background::Background;
use crate::clock::Clock;
use crate::observe::Observers;

/// Settings that all servers of a client share.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) clock: Clock,
    /// Runs work that several callers wait for.
    pub(crate) background: Background,
    pub(crate) command_timeout: Duration,
    /// The length of the leases that the watchdog renews.
    pub(crate) watchdog_lease: Duration,
    /// They get the client's events.
    pub(crate) observers: Observers,
}
