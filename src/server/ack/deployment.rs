//! What a deployment's locks wait for, and at which of its servers.

use super::{ReplicaAck, Unacknowledged, Written};
use crate::clock::Moment;
use crate::server::{Failure, Server};

impl Server {
    /// With locks that count as granted when replicas have them.
    pub(crate) fn acknowledging(mut self, ack: ReplicaAck) -> Self {
        self.ack = ack;
        self
    }

    /// What a lock waits for before it counts as granted.
    pub(crate) fn ack(&self) -> ReplicaAck {
        self.ack
    }

    /// Why it is known that the server of this key cannot do what is required for its locks.
    pub(crate) fn ack_refusal(&self, key: &str) -> Option<Failure> {
        if !self.ack.is_required() {
            return None;
        }
        let node = self.node(key).ok()?;
        node.acker().refusal(&node.current()?)
    }

    /// Waits until the replicas have what was written, as far as that is asked for, up to `until`.
    ///
    /// # Cancel safety
    ///
    /// Cancelling it leaves a command that changes nothing.
    pub(crate) async fn acknowledge(
        &self,
        written: Written<'_>,
        until: Moment,
    ) -> Result<(), Unacknowledged> {
        match self.node_of(written.on) {
            Some(node) => {
                let (ack, clock) = (self.ack, &self.clock);
                node.acknowledge(ack, written, clock, until).await
            }
            None if self.ack.is_required() => Err(Unacknowledged::left()),
            None => Ok(()),
        }
    }
}
