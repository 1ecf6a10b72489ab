//! What an answer of one of the cluster's servers is worth, by what the others say.

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
    /// What the data may lack behind an answer for this key on this connection, beside what its own
    /// server lost: what the slot brought along, and what its owner lost, who may have sent us on.
    pub(in crate::server) fn lost(&self, key: &str, on: Option<&Connection>) -> DataLoss {
        let slot = slot(key);
        let map = self.map.read();
        let brought = map.lost(slot);
        let owner = map.owner(slot);
        let other = owner.filter(|owner| on.is_none_or(|on| !owner.endpoint().has(on)));
        other.map_or(brought, |owner| brought.max(owner.loss()))
    }

    /// Fails if another server has this key, by the last look. One that is asked while the slot is on its
    /// way has it as well as its owner.
    pub(in crate::server) fn has_key_on(&self, key: &str, on: &Connection) -> Result<(), Failure> {
        let map = self.map.read();
        let owner = map.owner(slot(key));
        if on.is_asking() || owner.is_some_and(|owner| owner.endpoint().has(on)) {
            return Ok(());
        }
        let cause = "the nodes of the cluster do not agree yet who has the slot";
        Err(Failure::Unsent(cause.into()))
    }

    /// Waits until nodes were asked after this moment, and some answered.
    pub(in crate::server) async fn look_since(&self, since: Moment) {
        let mut looks = self.looks.subscribe();
        while *looks.borrow_and_update() < since {
            self.news.notify_one();
            // The sender is our own.
            let _ = looks.changed().await;
        }
    }

    /// Waits until another node said that this one is a master and has not failed, or that it is none
    /// any more, and was asked after this moment.
    pub(in crate::server) async fn confirm(&self, node: &Arc<Node>, since: Moment) {
        let mut looks = self.looks.subscribe();
        loop {
            let looked = *looks.borrow_and_update();
            let certainty = self.map.read().certainty(|it| Arc::ptr_eq(it, node));
            // Where nobody else answers, nobody has taken over whom anybody could reach; one that is
            // not known has no slots any more, or not yet.
            let is_enough = match certainty {
                Some(Certainty { sure, heard }) => sure >= since || heard < looked,
                None => true,
            };
            if looked >= since && is_enough {
                return;
            }
            self.news.notify_one();
            // The sender is our own.
            let _ = looks.changed().await;
        }
    }
}
