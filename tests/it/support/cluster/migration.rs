//! A slot on its way from one node to another, step by step.

use std::sync::Arc;

use super::Cluster;
use super::node::Node;

/// Begun by `Cluster::migrate`. Dropped before `finish`, the slot stays in between.
#[derive(Debug)]
#[must_use = "the slot is on its way"]
pub(crate) struct Migration<'a> {
    cluster: &'a Cluster,
    pub(crate) slot: u16,
    pub(crate) from: Arc<Node>,
    pub(crate) to: Arc<Node>,
}

impl Cluster {
    /// Begins to move a slot: its owner answers ASK for keys that it does not have (any more), and
    /// the other one takes those who say ASKING.
    pub(crate) async fn migrate(&self, slot: u16, to: &Arc<Node>) -> Migration<'_> {
        let from = self.owner(slot).await;
        let (source, target) = (&from.id, &to.id);
        to.cmd(&format!("CLUSTER SETSLOT {slot} IMPORTING {source}"))
            .await;
        from.cmd(&format!("CLUSTER SETSLOT {slot} MIGRATING {target}"))
            .await;
        Migration {
            cluster: self,
            slot,
            from,
            to: to.clone(),
        }
    }

    /// Moves a slot with all that is in it.
    pub(crate) async fn move_slot(&self, slot: u16, to: &Arc<Node>) {
        let migration = self.migrate(slot, to).await;
        migration.move_keys().await;
        migration.finish().await;
    }
}

impl Migration<'_> {
    /// What is still at the old owner.
    pub(crate) async fn keys(&self) -> Vec<String> {
        let slot = self.slot.to_string();
        let redis = self.from.redis().await;
        redis
            .ask(&["CLUSTER", "GETKEYSINSLOT", &slot, "10000"])
            .await
    }

    /// Moves one key; false if it is not at the old owner.
    pub(crate) async fn move_key(&self, key: &str) -> bool {
        let port = self.to.tls;
        let port = port.unwrap_or_else(|| self.to.server.port()).to_string();
        let mut command = vec!["MIGRATE", "127.0.0.1", &port, key, "0", "5000"];
        if let Some(password) = self.to.server.password() {
            command.extend(["AUTH", password]);
        }
        let answer: String = self.from.redis().await.ask(&command).await;
        answer == "OK"
    }

    /// How many commands the two nodes have refused with TRYAGAIN. A server before 7.0 answers ASK for a command
    /// of which it has only some keys, so only the new owner refuses it.
    pub(crate) async fn refused(&self) -> u64 {
        let mut refused = 0;
        for node in [&self.from, &self.to] {
            let errors = node.redis().await.errorstats().await;
            refused += errors.get("TRYAGAIN").copied().unwrap_or_default();
        }
        refused
    }

    /// Moves key after key until none is left.
    pub(crate) async fn move_keys(&self) {
        loop {
            let keys = self.keys().await;
            if keys.is_empty() {
                return;
            }
            for key in keys {
                self.move_key(&key).await;
            }
        }
    }

    /// Makes all masters record the owner of the slot, the new owner first, and waits until all agree.
    ///
    /// # Panics
    /// If the old owner still has keys of it.
    pub(crate) async fn finish(self) {
        self.cluster.give(self.slot, &self.from, &self.to).await;
    }

    /// Ends the migration in its current state: each node serves the slots that it was assigned.
    pub(crate) async fn abandon(self) {
        for node in [&self.from, &self.to] {
            let slot = self.slot;
            node.cmd(&format!("CLUSTER SETSLOT {slot} STABLE")).await;
        }
    }
}
