//! Asking one node what the cluster looks like.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ConnectionAddr, ConnectionInfo, Value};

use super::view::ClusterView;
use crate::server::failure::Failure;
use crate::server::wire::{open, password, text};

/// One node that is asked, and the connection to it that is kept for the next question.
pub(super) struct NodeLink {
    pub(super) info: ConnectionInfo,
    /// The last question was answered.
    pub(super) answered: bool,
    kept: Option<MultiplexedConnection>,
}

/// What a node told.
pub(super) struct NodeAnswer {
    /// Where it was asked.
    pub(super) by: ConnectionAddr,
    pub(super) view: ClusterView,
    /// It knows messages that go to one shard only.
    pub(super) sharded: bool,
}

impl NodeLink {
    pub(super) fn to(info: ConnectionInfo) -> Self {
        Self {
            info,
            answered: false,
            kept: None,
        }
    }

    pub(super) async fn ask(&mut self, limit: Duration) -> Result<NodeAnswer, Failure> {
        self.answered = false;
        // Boxed: what opens a connection is large, and part of every call otherwise.
        let answer = tokio::time::timeout(limit, Box::pin(self.ask_now(limit))).await;
        let answer = answer.unwrap_or_else(|_| Err(Failure::silent(limit)));
        self.answered = answer.is_ok();
        answer.map_err(|failure| {
            self.kept = None;
            let server = self.info.addr().to_string();
            tracing::debug!(
                target: "lockdog::server",
                server, ?failure, "a node does not tell of the cluster"
            );
            match failure {
                Failure::Silent { .. } => {
                    Failure::Unsent(format!("no answer from {server}").into())
                }
                failure => failure,
            }
        })
    }

    async fn ask_now(&mut self, limit: Duration) -> Result<NodeAnswer, Failure> {
        let connection = match &self.kept {
            Some(kept) => kept.clone(),
            None => {
                let client = redis::Client::open(self.info.clone());
                let client =
                    client.map_err(|error| Failure::of_connect(&error, password(&self.info)))?;
                self.kept.insert(open(&client, limit).await?).clone()
            }
        };
        let question = async |words: [&str; 2]| {
            let mut question = redis::cmd(words[0]);
            question.arg(words[1]);
            let answer = connection.clone().send_packed_command(&question).await;
            let answer = answer.and_then(Value::extract_error);
            answer.map_err(|error| Failure::of_command(error, limit))
        };
        let (nodes, slots, sharded) = tokio::join!(
            question(["CLUSTER", "NODES"]),
            question(["CLUSTER", "SLOTS"]),
            question(["PUBSUB", "SHARDNUMSUB"])
        );
        let nodes = nodes?;
        let nodes = text(&nodes);
        let nodes = nodes.ok_or_else(|| Failure::Unsent("it tells no nodes".into()))?;
        let host = match self.info.addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
            _ => "",
        };
        Ok(NodeAnswer {
            by: self.info.addr().clone(),
            view: ClusterView::new(nodes, slots.ok().as_ref(), host),
            sharded: sharded.is_ok(),
        })
    }
}
