//! Asks one node about the cluster.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ConnectionAddr, ConnectionInfo, Value};

use super::view::ClusterView;
use crate::server::failure::Failure;
use crate::server::login::{Logins, log_in};
use crate::server::user_connector::Purpose;
use crate::server::wire::{open, password, text};

/// A node that the client queries, with a connection that is kept for the next query.
pub(super) struct NodeLink {
    pub(super) info: ConnectionInfo,
    logins: Option<Logins>,
    /// Whether the last query was answered.
    pub(super) answered: bool,
    kept: Option<MultiplexedConnection>,
}

/// A node's answer.
pub(super) struct NodeAnswer {
    /// The address that the query was sent to.
    pub(super) by: ConnectionAddr,
    pub(super) view: ClusterView,
    /// Whether the node supports sharded channels, if it said so.
    pub(super) sharded: Option<bool>,
}

impl NodeLink {
    pub(super) fn to(info: ConnectionInfo, logins: Option<Logins>) -> Self {
        Self {
            info,
            logins,
            answered: false,
            kept: None,
        }
    }

    pub(super) async fn ask(&mut self, limit: Duration) -> Result<NodeAnswer, Failure> {
        self.answered = false;
        // Boxed: opening a connection needs a large future, which would otherwise enlarge every
        // call's.
        let answer = tokio::time::timeout(limit, Box::pin(self.ask_now(limit))).await;
        let answer = answer.unwrap_or_else(|_| Err(Failure::silent(limit)));
        self.answered = answer.is_ok();
        answer.map_err(|failure| {
            self.kept = None;
            let server = self.info.addr().to_string();
            tracing::debug!(
                target: "lockdog::server",
                server, %failure, "CLUSTER NODES failed"
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
                let connect = |client: redis::Client| async move { open(&client, limit).await };
                // The watchdog waits for the map, so the limits for renewals apply.
                let purpose = Purpose::Renewals;
                let opened = log_in(self.logins.as_ref(), &client, purpose, limit, connect).await?;
                self.kept.insert(opened).clone()
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
        let nodes =
            nodes.ok_or_else(|| Failure::Unsent("CLUSTER NODES returned no text".into()))?;
        let host = match self.info.addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
            _ => "",
        };
        Ok(NodeAnswer {
            by: self.info.addr().clone(),
            view: ClusterView::new(nodes, slots.ok().as_ref(), host),
            sharded: match sharded {
                Ok(_) => Some(true),
                // Before Redis 7, or not permitted.
                Err(failure @ Failure::Refused { .. }) if !failure.passes() => Some(false),
                Err(_) => None,
            },
        })
    }
}
