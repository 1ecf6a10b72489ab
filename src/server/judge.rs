//! Checks an answer against the possible data loss of the server that gave it.
//!
//! The server that gave an answer decides its meaning, not the server that the map names for the
//! slot (design: invariant 15).

use super::connection::Connection;
use super::data_loss::DataLoss;
use super::failure::Failure;
use super::followers;
use super::nodes::{Nodes, Server};
use super::sent::Sent;
use super::wire::field;
use crate::clock::Moment;
use std::time::Duration;

impl Connection {
    /// Whether the server says that it is a master. `None` if it does not say its role, or not in time. Fails if the
    /// connection ends before the answer: nobody knows then which server gave the answers before it.
    pub(crate) async fn leads_to_master(&self, limit: Duration) -> Result<Option<bool>, Failure> {
        // Boxed: it is rare, and would otherwise enlarge the future of every renewal.
        match Box::pin(self.send(&followers::question(), limit)).await {
            Ok(info) => Ok(field(&info, "role").map(|role| role == "master")),
            // The user may lack the permission, and a distant server needs more time.
            Err(Failure::Refused { .. } | Failure::Silent { .. }) => Ok(None),
            Err(failure) => Err(failure),
        }
    }
}

impl Server {
    /// Since when the data behind an answer on this connection may be incomplete, as far as is
    /// known now.
    pub(crate) fn lost(&self, key: &str, on: &Connection) -> DataLoss {
        let own = on.identity().run.loss();
        match &self.nodes {
            Nodes::One { .. } => own,
            Nodes::Cluster(cluster) => own.max(cluster.lost(key, Some(on))),
        }
    }

    /// The same for the server that the map names for this key. That server may not have been
    /// asked.
    pub(crate) fn lost_at(&self, key: &str) -> DataLoss {
        match &self.nodes {
            Nodes::One { node, .. } => node.loss(),
            Nodes::Cluster(cluster) => cluster.lost(key, None),
        }
    }

    /// Abandons the connection of an answer if another server's identity was seen since the connection was opened. It
    /// may lead to an old master, which answers questions as a replica. Returns whether it did.
    pub(crate) fn abandon_outdated(&self, sent: &Sent) -> bool {
        let outdated = |on: &&Connection| on.server_run().1 != on.identity().run.reborn();
        let Some(on) = sent.on.as_ref().filter(outdated) else {
            return false;
        };
        self.abandon(on);
        true
    }

    /// Like [`Server::lost`], but first checks the server's identity if it is in doubt. Fails if that is not
    /// complete at `until`, or if another server has the key now.
    pub(crate) async fn judge(
        &self,
        key: &str,
        sent: &Sent,
        until: Moment,
    ) -> Result<DataLoss, Failure> {
        let Some(on) = &sent.on else {
            return Ok(self.lost_at(key));
        };
        if sent.moved || on.identity().run.doubts().is_some() {
            let limit = until.since(self.context.clock.now());
            // Boxed: it is rare, and would otherwise enlarge the future of every acquire of a
            // quorum's member.
            let known = Box::pin(self.query_server(key, on, sent.moved, limit));
            let known = tokio::time::timeout(limit, known).await;
            known
                .unwrap_or_else(|_| Err(Failure::Unsent("server identity not known yet".into())))?;
        }
        Ok(self.lost(key, on))
    }

    /// Queries which server gave an answer, and whether it has the key.
    async fn query_server(
        &self,
        key: &str,
        on: &Connection,
        moved: bool,
        limit: Duration,
    ) -> Result<(), Failure> {
        if let (Nodes::Cluster(cluster), true) = (&self.nodes, moved) {
            // The slot may have been moved with its data, or taken over without it.
            cluster.queried_since(self.context.clock.now()).await;
            cluster.has_key_on(key, on)?;
        }
        match on.identity().run.doubts() {
            Some(doubts) => on.clear_up(doubts, limit).await,
            None => Ok(()),
        }
    }
}
