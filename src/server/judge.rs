//! What an answer means, by what the data of the server that gave it may lack.
//!
//! The server that gave an answer decides what the answer means, not the server that the map names for
//! the slot (design: invariant 15).

use super::connection::Connection;
use super::data_loss::DataLoss;
use super::failure::Failure;
use super::nodes::{Nodes, Server};
use super::sent::Sent;
use crate::clock::Moment;
use std::time::Duration;

impl Server {
    /// What the data behind an answer on this connection may lack, as far as is known at this moment.
    pub(crate) fn lost(&self, key: &str, on: &Connection) -> DataLoss {
        let own = on.identity().loss();
        match &self.nodes {
            _ if mutant!("judged_by_the_map") => self.lost_at(key),
            Nodes::One { .. } => own,
            Nodes::Cluster(cluster) => own.max(cluster.lost(key, Some(on))),
        }
    }

    /// The same of the server that has this key as far as is known, which may not be asked at all then.
    pub(crate) fn lost_at(&self, key: &str) -> DataLoss {
        match &self.nodes {
            Nodes::One { node, .. } => node.loss(),
            Nodes::Cluster(cluster) => cluster.lost(key, None),
        }
    }

    /// As [`Server::lost`], once it is known what is to be known: fails where that takes longer than
    /// `until`, and where another server has the key by then.
    pub(crate) async fn judge(
        &self,
        key: &str,
        sent: &Sent,
        until: Moment,
    ) -> Result<DataLoss, Failure> {
        let Some(on) = &sent.on else {
            return Ok(self.lost_at(key));
        };
        if sent.moved || on.identity().doubts().is_some() {
            let limit = until.since(self.context.clock.now());
            // Boxed: it is rare, and part of every acquire of a quorum's member otherwise.
            let known = Box::pin(self.know(key, on, sent.moved, limit));
            let known = tokio::time::timeout(limit, known).await;
            known
                .unwrap_or_else(|_| Err(Failure::Unsent("who answered is not known yet".into())))?;
        }
        Ok(self.lost(key, on))
    }

    /// Learns who gave an answer, and whether the key is there.
    async fn know(
        &self,
        key: &str,
        on: &Connection,
        moved: bool,
        limit: Duration,
    ) -> Result<(), Failure> {
        if let (Nodes::Cluster(cluster), true) = (&self.nodes, moved) {
            // The slot may have been moved with all that is in it, or taken over without.
            if !mutant!("judged_by_the_map") {
                cluster.look_since(self.context.clock.now()).await;
                cluster.has_key_on(key, on)?;
            }
        }
        match on.identity().doubts() {
            Some(doubts) => on.clear_up(doubts, limit).await,
            None => Ok(()),
        }
    }
}
