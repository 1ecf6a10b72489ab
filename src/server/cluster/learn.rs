//! Learning a cluster that is not known yet.

use std::sync::Arc;
use std::time::Duration;

use super::Cluster;
use super::line::Line;
use crate::server::failure::Failure;

impl Cluster {
    /// Learns the cluster from its seeds, unless it is known. The background asks them, once for all
    /// callers who wait for it.
    pub(in crate::server) async fn learn(self: &Arc<Self>, limit: Duration) -> Result<(), Failure> {
        if self.is_known() {
            return Ok(());
        }
        let own = self.clone();
        let learn = || async move {
            let mut lines: Vec<Line> = own.seeds.iter().cloned().map(Line::to).collect();
            own.ask(&mut lines, 1, own.context.command_timeout).await?;
            if !own.is_known() {
                return Err(Failure::Unsent("no server of the cluster has slots".into()));
            }
            Ok(())
        };
        let background = self.context.background.runtime();
        self.learning.get(background, limit, learn).await
    }
}
