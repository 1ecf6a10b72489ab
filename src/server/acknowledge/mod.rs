//! What a deployment's locks wait for, and on which of its servers.

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
    /// Sets what a lock waits for before it counts as granted.
    pub(crate) fn acknowledging(mut self, ack: ReplicaAck) -> Self {
        self.ack = ack;
        self
    }

    /// What a lock waits for before it counts as granted.
    pub(crate) fn ack(&self) -> ReplicaAck {
        self.ack
    }

    /// The reason why the server of this key cannot acknowledge its locks as required, if that is
    /// known.
    pub(crate) fn ack_refusal(&self, key: &str) -> Option<Failure> {
        if !self.ack.is_required() {
            return None;
        }
        let node = self.node(key).ok()?;
        node.acker().refusal(&node.current()?)
    }

    /// Waits until the replicas have the write, as far as the setting requires it, at most up to
    /// `until`.
    ///
    /// # Cancel safety
    ///
    /// If dropped, a command that changes nothing may still run.
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
            // A replica of a replaced master acknowledges until it follows the new one. So its answer
            // proves nothing while other replicas are missing.
            return match acknowledged.await? || confirm().await {
                true => Ok(()),
                false => Err(Unacknowledged::unconfirmed()),
            };
        }
        // Boxed: its type would otherwise be part of every acquire's, and exceed the compiler's
        // recursion limit.
        let mut acknowledged = acknowledged.boxed();
        if let Ok(is_shared) = tokio::time::timeout(SOON, &mut acknowledged).await {
            if !is_shared? {
                confirm().await;
            }
            return Ok(());
        }
        // The replicas are late, and may use all of the time. So the confirmation runs in parallel.
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

    /// Waits until sentinels or other nodes confirm the master, in answers to queries after `since`. A frozen
    /// master executes its queued commands when it continues, although it may have been replaced. Once the client
    /// knows that it was replaced, its connections are not current any more. Returns whether the confirmation
    /// came in time.
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
                server, "the master could not be confirmed by sentinels or other nodes"
            );
        }
        is_confirmed
    }
}

/// Replicas that keep up acknowledge sooner than this.
const SOON: Duration = Duration::from_millis(50);
