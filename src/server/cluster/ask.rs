//! One look at the cluster: the client asks some nodes and believes those that belong to the cluster.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::ASKED;
use super::Cluster;
use super::node_link::{NodeAnswer, NodeLink};
use super::view::ClusterView;
use crate::clock::Moment;
use crate::server::failure::Failure;
use crate::server::membership::{GRACE, Witness};

impl Cluster {
    /// Asks these nodes and processes the answers of those that belong to this cluster. Once enough
    /// nodes have answered, or enough time has passed since the first answer, it does not wait for the
    /// rest.
    pub(super) async fn ask(
        &self,
        links: &mut [NodeLink],
        enough: usize,
        soon: Duration,
        limit: Duration,
    ) -> Result<(), Failure> {
        let asked = self.context.clock.now();
        let answers = links.iter_mut().map(|link| link.ask(limit)).collect();
        let told = gather(answers, enough, soon, limit).await?;
        let told = self.of_ours(told, links, asked)?;
        let sharded = told.iter().all(|told| told.sharded);
        let views: Vec<ClusterView> = told.into_iter().map(|told| told.view).collect();
        self.sharded.lock().get_or_insert(sharded);
        let givers = self.map.read().givers(&views, asked);
        let mut looked = Vec::new();
        // One after the other: usually there is none or one.
        for giver in givers {
            if giver.look(LOOK).await.is_ok() {
                looked.push(giver);
            }
        }
        self.take_in(&views, asked, &looked);
        self.looks.send_replace(asked);
        Ok(())
    }

    /// Drops the answers of other clusters' nodes. Other nodes are asked in their place next time.
    fn of_ours(
        &self,
        told: Vec<NodeAnswer>,
        links: &mut [NodeLink],
        asked: Moment,
    ) -> Result<Vec<NodeAnswer>, Failure> {
        let is_seed = |told: &NodeAnswer| self.seeds.iter().any(|seed| *seed.addr() == told.by);
        let witnesses: Vec<_> = told
            .iter()
            .map(|told| Witness {
                ids: told.view.nodes.iter().map(|node| node.id.clone()).collect(),
                also: None,
                is_seed: is_seed(told),
                claims: told.view.masters().any(|node| !node.slots.is_empty()),
            })
            .collect();
        let seeds = self.seeds.len().min(ASKED);
        let believed = self.membership.lock().choose(&witnesses, seeds, asked);
        let is_kin = match &believed {
            Ok(believed) => believed.is_kin.clone(),
            Err(_) => vec![false; told.len()],
        };
        let mut ours = Vec::new();
        for (told, is_kin) in told.into_iter().zip(is_kin) {
            if is_kin {
                ours.push(told);
                continue;
            }
            let mut links = links.iter_mut();
            if let Some(link) = links.find(|link| *link.info.addr() == told.by) {
                link.answered = false;
            }
            if believed.as_ref().is_ok_and(|believed| believed.is_news) {
                tracing::warn!(
                    target: "lockdog::server",
                    cluster = self.address(),
                    server = told.by.to_string(),
                    "ignoring a node of another cluster at a known node's address"
                );
            }
        }
        believed.map(|_| ours)
    }
}

/// The answers of the nodes: of all, or of those that answer soon after the first. At least one.
async fn gather<A>(
    mut answers: FuturesUnordered<A>,
    enough: usize,
    soon: Duration,
    limit: Duration,
) -> Result<Vec<NodeAnswer>, Failure>
where
    A: Future<Output = Result<NodeAnswer, Failure>>,
{
    let mut told = Vec::new();
    let mut failed = Failure::Unsent("no node of the cluster is known".into());
    let mut patience = std::pin::pin!(tokio::time::sleep(limit));
    loop {
        tokio::select! {
            answer = answers.next() => match answer {
                Some(Ok(answer)) => {
                    told.push(answer);
                    if told.len() == 1 {
                        let soon = tokio::time::Instant::now() + soon;
                        let soon = soon.min(patience.deadline());
                        patience.as_mut().reset(soon);
                    }
                    if told.len() == enough {
                        let soon = tokio::time::Instant::now() + GRACE.min(limit / 4);
                        patience.as_mut().reset(soon);
                    }
                }
                // A refusal is more informative than a failed connection.
                Some(Err(failure)) => if !matches!(failed, Failure::Refused { .. }) {
                    failed = failure;
                },
                None => break,
            },
            () = &mut patience => break,
        }
    }
    if told.is_empty() {
        return Err(failed);
    }
    Ok(told)
}

/// How long to wait for most of the seeds after the first answer.
pub(super) const SOON: Duration = Duration::from_millis(500);
/// How long to wait for the identity of a master that gives slots away.
const LOOK: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use redis::ConnectionAddr;

    use super::*;
    use crate::server::cluster::{ENOUGH, PATIENCE};

    /// The node nearest to the client may be the very master that the others have to confirm.
    #[tokio::test]
    async fn a_slower_second_node_is_awaited() {
        let late = PATIENCE / 4;
        let answers = |late: &[Duration]| -> FuturesUnordered<_> {
            let answer = |late: &Duration| {
                let (view, sharded, late) = (ClusterView::default(), true, *late);
                let by = ConnectionAddr::Tcp(String::new(), 0);
                async move {
                    tokio::time::sleep(late).await;
                    Ok(NodeAnswer { by, view, sharded })
                }
            };
            late.iter().map(answer).collect()
        };
        for (lates, enough, expected) in [
            (vec![Duration::ZERO, late], ENOUGH, 2),
            (vec![Duration::ZERO, late], 1, 1),
            (vec![Duration::ZERO, Duration::ZERO, late], ENOUGH, 2),
            (vec![Duration::ZERO, PATIENCE * 9], ENOUGH, 1),
            (vec![PATIENCE * 9; 2], ENOUGH, 0),
        ] {
            let told = gather(answers(&lates), enough, PATIENCE, PATIENCE).await;
            assert_eq!(told.map_or(0, |told| told.len()), expected, "{lates:?}");
        }
    }
}
