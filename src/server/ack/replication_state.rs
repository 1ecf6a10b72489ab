//! What is known of a master's replicas, so that nobody waits for those who do not acknowledge.

use std::time::Duration;

use crate::clock::Moment;
use crate::server::connection::Connection;
use crate::server::failure::Failure;

#[derive(Default)]
pub(in crate::server) struct ReplicationState {
    /// When the replicas were last counted.
    pub(in crate::server) counted: Option<Moment>,
    /// The server does not know the command, and where that was.
    pub(in crate::server) unknown: Option<(Connection, Failure)>,
    pub(in crate::server) behind: Option<Behind>,
}

/// Not all replicas acknowledged in time.
#[derive(Clone, Copy)]
pub(in crate::server) struct Behind {
    /// So many did.
    pub(in crate::server) acknowledged: u32,
    /// More are not waited for before this.
    pub(in crate::server) until: Moment,
    pub(in crate::server) pause: Duration,
    /// Because the user may not ask them: that says nothing of them.
    pub(in crate::server) forbidden: bool,
}

/// Whom a lock that needs no acknowledgement waits for.
#[derive(Default)]
pub(in crate::server) struct AwaitedReplicas {
    pub(in crate::server) count: u32,
    /// There are more, who did not acknowledge the last time, or there were more a while ago.
    pub(in crate::server) others: bool,
}
