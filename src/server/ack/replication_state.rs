//! The state of a master's replicas, so that no lock waits for replicas that do not acknowledge.

use std::time::Duration;

use crate::clock::Moment;
use crate::server::connection::ServerRun;
use crate::server::failure::Failure;

#[derive(Default)]
pub(in crate::server) struct ReplicationState {
    /// When the replicas were last counted.
    pub(in crate::server) counted: Option<Moment>,
    /// The server that said that it does not know the command. A connection to it would stay open for this.
    pub(in crate::server) unknown: Option<(ServerRun, Failure)>,
    pub(in crate::server) behind: Option<Behind>,
}

/// Not all replicas acknowledged in time.
#[derive(Clone, Copy)]
pub(in crate::server) struct Behind {
    /// How many acknowledged.
    pub(in crate::server) acknowledged: u32,
    /// Until this moment the client waits for that many replicas only.
    pub(in crate::server) until: Moment,
    pub(in crate::server) pause: Duration,
    /// The user has no permission for `WAIT`. That says nothing about the replicas.
    pub(in crate::server) forbidden: bool,
}

/// The replicas that a lock with [`ReplicaAck::BestEffort`](crate::ReplicaAck::BestEffort) waits for.
#[derive(Default)]
pub(in crate::server) struct AwaitedReplicas {
    pub(in crate::server) count: u32,
    /// There are more replicas that did not acknowledge the last time, or there were more recently.
    pub(in crate::server) others: bool,
}
