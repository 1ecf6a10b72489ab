//! Checks an answer of one of the cluster's servers against the answers of the other nodes.

use std::sync::Arc;

use super::Cluster;
use super::shard::Certainty;
use crate::clock::Moment;
use crate::server::connection::Connection;
use crate::server::data_loss::DataLoss;
use crate::server::failure::Failure;
use crate::server::node::Node;
use crate::slot::slot;

impl Cluster {
    /// The possible data loss behind an answer for this key on this connection, in addition to the loss of the
    /// server that answered. It includes the loss that the slot brought from an earlier owner, and the loss of
    /// the slot's owner, which may have redirected the command.
    pub(in crate::server) fn lost(&self, key: &str, on: Option<&Connection>) -> DataLoss {
        let slot = slot(key);
        let map = self.map.read();
        let brought = map.lost(slot);
        let owner = map.owner(slot);
        let other = owner.filter(|owner| on.is_none_or(|on| !owner.endpoint().has(on)));
        other.map_or(brought, |owner| brought.max(owner.loss()))
    }

    /// Fails if another server has this key, by the nodes' last answers. A server that was asked with `ASKING`
    /// while the slot is being moved counts like the owner.
    pub(in crate::server) fn has_key_on(&self, key: &str, on: &Connection) -> Result<(), Failure> {
        let map = self.map.read();
        let owner = map.owner(slot(key));
        if on.is_asking() || owner.is_some_and(|owner| owner.endpoint().has(on)) {
            return Ok(());
        }
        let cause = "the nodes of the cluster do not agree yet on the slot's owner";
        Err(Failure::Unsent(cause.into()))
    }

    /// Waits until nodes were asked after this moment and some of them answered.
    pub(in crate::server) async fn queried_since(&self, since: Moment) {
        let mut queried = self.queried.subscribe();
        while *queried.borrow_and_update() < since {
            self.ask_now.notify_one();
            // The sender lives in `self`.
            let _ = queried.changed().await;
        }
    }

    /// Waits until another node that was asked after this moment said that this server is a master
    /// that has not failed, or that it is no master any more.
    pub(in crate::server) async fn confirm(&self, node: &Arc<Node>, since: Moment) {
        let mut queried = self.queried.subscribe();
        loop {
            let last_query = *queried.borrow_and_update();
            let certainty = self.map.read().certainty(|it| Arc::ptr_eq(it, node));
            // `answered < last_query`: no other node answered the last query, so no node that the client can
            // reach has taken over. A node that is not in the map has no slots, or has none yet.
            let is_enough = match certainty {
                Some(Certainty { sure, answered }) => sure >= since || answered < last_query,
                None => true,
            };
            if last_query >= since && is_enough {
                return;
            }
            self.ask_now.notify_one();
            // The sender lives in `self`.
            let _ = queried.changed().await;
        }
    }
}
