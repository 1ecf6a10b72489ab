//! One query of the cluster: the client asks some nodes, and uses the answers of those that belong to the
//! cluster.

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
        let pending = links.iter_mut().map(|link| link.ask(limit)).collect();
        let answers = gather(pending, enough, soon, limit).await?;
        let answers = self.of_ours(answers, links, asked)?;
        let sharded: Vec<_> = answers.iter().map(|answer| answer.sharded).collect();
        let views: Vec<ClusterView> = answers.into_iter().map(|answer| answer.view).collect();
        self.sharding.decide(&sharded)?;
        // A master that gives slots away may have restarted without its data. So its identity is queried before
        // the new owners take over what is known of its data.
        let givers = self.map.read().givers(&views, asked);
        let mut identified = Vec::new();
        // One after the other: usually there is none or one.
        for giver in givers {
            if giver.check_identity(IDENTITY_LIMIT).await.is_ok() {
                identified.push(giver);
            }
        }
        self.update_map(&views, asked, &identified);
        self.queried.send_replace(asked);
        Ok(())
    }

    /// Drops the answers of other clusters' nodes. The next query asks other nodes in place of these.
    fn of_ours(
        &self,
        answers: Vec<NodeAnswer>,
        links: &mut [NodeLink],
        asked: Moment,
    ) -> Result<Vec<NodeAnswer>, Failure> {
        let is_seed = |answer: &NodeAnswer| self.seeds.iter().any(|seed| *seed.addr() == answer.by);
        let witnesses: Vec<_> = answers
            .iter()
            .map(|answer| Witness {
                ids: answer
                    .view
                    .nodes
                    .iter()
                    .map(|node| node.id.clone())
                    .collect(),
                also: None,
                is_seed: is_seed(answer),
                claims: answer.view.masters().any(|node| !node.slots.is_empty()),
            })
            .collect();
        let seeds = self.seeds.len().min(ASKED);
        let believed = self.membership.lock().choose(&witnesses, seeds, asked);
        let belongs = match &believed {
            Ok(believed) => believed.belongs.clone(),
            Err(_) => vec![false; answers.len()],
        };
        let mut ours = Vec::new();
        for (answer, belongs) in answers.into_iter().zip(belongs) {
            if belongs {
                ours.push(answer);
                continue;
            }
            let mut links = links.iter_mut();
            if let Some(link) = links.find(|link| *link.info.addr() == answer.by) {
                link.answered = false;
            }
            if believed
                .as_ref()
                .is_ok_and(|believed| believed.is_first_report)
            {
                tracing::warn!(
                    target: "lockdog::server",
                    cluster = self.address(),
                    server = answer.by.to_string(),
                    "ignoring a node of another cluster at a known node's address"
                );
            }
        }
        believed.map(|_| ours)
    }
}

/// The answers of the nodes: of all, or of those that answer soon after the first. At least one.
async fn gather<A>(
    mut pending: FuturesUnordered<A>,
    enough: usize,
    soon: Duration,
    limit: Duration,
) -> Result<Vec<NodeAnswer>, Failure>
where
    A: Future<Output = Result<NodeAnswer, Failure>>,
{
    let mut answers = Vec::new();
    let mut failed = Failure::Unsent("no node of the cluster is known".into());
    let mut timer = std::pin::pin!(tokio::time::sleep(limit));
    loop {
        tokio::select! {
            answer = pending.next() => match answer {
                Some(Ok(answer)) => {
                    answers.push(answer);
                    if answers.len() == 1 {
                        // The first answer shows how fast nodes answer.
                        let soon = tokio::time::Instant::now() + soon;
                        let soon = soon.min(timer.deadline());
                        timer.as_mut().reset(soon);
                    }
                    if answers.len() == enough {
                        // Answers that are nearly here may be newer, so this waits for them briefly.
                        let soon = tokio::time::Instant::now() + GRACE.min(limit / 4);
                        timer.as_mut().reset(soon);
                    }
                }
                // A refusal is more informative than a failed connection.
                Some(Err(failure)) => if !matches!(failed, Failure::Refused { .. }) {
                    failed = failure;
                },
                None => break,
            },
            () = &mut timer => break,
        }
    }
    if answers.is_empty() {
        return Err(failed);
    }
    Ok(answers)
}

/// How long to wait for most of the seeds after the first answer.
pub(super) const SOON: Duration = Duration::from_millis(500);
/// How long to wait for the identity of a master that gives slots away.
const IDENTITY_LIMIT: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use redis::ConnectionAddr;

    use super::*;
    use crate::server::cluster::{ASK_TIMEOUT, ENOUGH};

    /// The node nearest to the client may be the very master that the others have to confirm.
    #[tokio::test]
    async fn a_slower_second_node_is_awaited() {
        let late = ASK_TIMEOUT / 4;
        let answers = |late: &[Duration]| -> FuturesUnordered<_> {
            let answer = |late: &Duration| {
                let (view, sharded, late) = (ClusterView::default(), Some(true), *late);
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
            (vec![Duration::ZERO, ASK_TIMEOUT * 9], ENOUGH, 1),
            (vec![ASK_TIMEOUT * 9; 2], ENOUGH, 0),
        ] {
            let answers = gather(answers(&lates), enough, ASK_TIMEOUT, ASK_TIMEOUT).await;
            assert_eq!(
                answers.map_or(0, |answer| answer.len()),
                expected,
                "{lates:?}"
            );
        }
    }
}
