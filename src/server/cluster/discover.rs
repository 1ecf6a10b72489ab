//! Discovers a cluster that the client does not know yet.

use std::sync::Arc;
use std::time::Duration;

use super::Cluster;
use super::ask::SOON;
use super::node_link::NodeLink;
use crate::server::failure::Failure;
use crate::server::single_flight::Attempt;

impl Cluster {
    /// Asks the seeds about the cluster, unless it is known. The background asks them once for all
    /// waiting callers.
    pub(in crate::server) async fn discover(
        self: &Arc<Self>,
        limit: Duration,
    ) -> Result<(), Failure> {
        if self.is_known() {
            return Ok(());
        }
        let own = self.clone();
        let discover = || async move {
            let seeds = own.seeds.iter().cloned();
            let mut links: Vec<NodeLink> = seeds.map(|seed| own.link(seed)).collect();
            // Waits for most of the seeds if they answer soon after the first: one may belong to
            // another cluster.
            let enough = links.len() / 2 + 1;
            let limit = own.context.command_timeout;
            loop {
                let asked = own.ask(&mut links, enough, SOON.min(limit / 4), limit);
                match asked.await {
                    Err(_) if own.sharding.asks_again() => {}
                    asked => break asked?,
                }
            }
            if !own.is_known() {
                return Err(Failure::Unsent("no server of the cluster has slots".into()));
            }
            Ok(())
        };
        let background = self.context.background.runtime();
        self.discovery.get(background, limit, discover).await
    }

    /// The attempt to discover the servers from the seeds.
    pub(in crate::server) fn attempt(&self) -> &dyn Attempt {
        &self.discovery
    }
}
