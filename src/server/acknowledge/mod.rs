//! What a deployment's locks wait for, and at which of its servers.

mod master;
mod replicas;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use super::ack::{PendingWrite, ReplicaAck, Unacknowledged};
use super::failure::Failure;
use super::node::Node;
use super::nodes::{Nodes, Server};
use crate::clock::Moment;

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
        written: PendingWrite<'_>,
        until: Moment,
    ) -> Result<(), Unacknowledged> {
        let Some(node) = self.node_of(written.on) else {
            return match self.ack.is_required() {
                true => Err(Unacknowledged::left()),
                false => Ok(()),
            };
        };
        let (ack, clock) = (self.ack, &self.context.clock);
        let acknowledged = node.acknowledge(ack, written, clock, until);
        let (timeout, is_required) = match ack {
            ReplicaAck::Off => return Ok(()),
            ReplicaAck::BestEffort { timeout } => (timeout, false),
            ReplicaAck::Require { timeout, .. } | ReplicaAck::RequireAof { timeout, .. } => {
                (timeout, true)
            }
        };
        let answered = clock.now();
        let confirm = || {
            let limit = timeout.min(until.since(clock.now()));
            self.confirm(&node, answered, limit)
        };
        if is_required {
            // A replica of a master that was replaced acknowledges until it follows the new one, so
            // what it says is worth nothing while others are gone.
            return match acknowledged.await? || confirm().await {
                true => Ok(()),
                false => Err(Unacknowledged::unconfirmed()),
            };
        }
        // Boxed: its type is part of every acquire otherwise, and deeper than the compiler looks.
        let mut acknowledged = acknowledged.boxed();
        if let Ok(is_shared) = tokio::time::timeout(SOON, &mut acknowledged).await {
            if !is_shared? {
                confirm().await;
            }
            return Ok(());
        }
        // Replicas that are late may take all the time that there is.
        let mut confirmed = pin!(confirm());
        tokio::select! {
            is_shared = &mut acknowledged => if !is_shared? {
                confirmed.await;
            },
            _ = &mut confirmed => {
                acknowledged.await?;
            }
        }
        Ok(())
    }

    /// Waits until others said, asked after this moment, who the master is. One of before that stood
    /// still grants what it reads first, and its connections are not current once that is known. Answers
    /// whether they said so in time.
    async fn confirm(&self, node: &Arc<Node>, since: Moment, limit: Duration) -> bool {
        let confirmed = async {
            match &self.nodes {
                Nodes::One { node, .. } => node.endpoint().confirm(since).await,
                Nodes::Cluster(cluster) => cluster.confirm(node, since).await,
            }
        };
        let is_confirmed = tokio::time::timeout(limit, confirmed).await.is_ok();
        if !is_confirmed {
            let server = node.address();
            tracing::debug!(
                target: "lockdog::server",
                server, "no other server says who the master is"
            );
        }
        is_confirmed
    }
}

/// Replicas that follow acknowledge sooner than this.
const SOON: Duration = Duration::from_millis(50);
