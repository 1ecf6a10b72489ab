//! A private Redis Cluster of one test, and the operations of an administrator on it.

mod form;
mod migration;
mod node;
mod slot;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use crate::support::wait::eventually;
use form::ClusterBuilder;
use node::Seen;

pub(crate) use form::{meet, take_slots};
pub(crate) use node::Node;
pub(crate) use slot::{names, slot};

/// The masters are the first of the nodes, at the start; the replicas follow in the same order.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Arc<Node>>,
    builder: ClusterBuilder,
}

impl Cluster {
    pub(crate) async fn start(masters: usize, replicas_per_master: usize) -> Self {
        Self::builder(masters, replicas_per_master).start().await
    }

    /// As [`Cluster::start`], and a replica takes over from a master that is silent.
    pub(crate) async fn that_elects(masters: usize, replicas_per_master: usize) -> Self {
        let builder = Self::builder(masters, replicas_per_master);
        builder.elects().start().await
    }

    pub(crate) fn builder(masters: usize, replicas_per_master: usize) -> ClusterBuilder {
        ClusterBuilder::new(masters, replicas_per_master)
    }

    /// All nodes, as clients reach them, in one URL.
    pub(crate) fn url(&self) -> String {
        let hosts = self.nodes.iter();
        let hosts = hosts.map(|node| format!("127.0.0.1:{}", node.client_port()));
        let hosts: Vec<_> = hosts.collect();
        let scheme = self.nodes[0].tls.map_or("redis", |_| "rediss");
        let login = self.nodes[0].server.password();
        let login = login.map_or_else(String::new, |password| format!(":{password}@"));
        format!("{scheme}+cluster://{login}{}", hosts.join(","))
    }

    /// A URL for each node.
    pub(crate) fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.url()).collect()
    }

    /// The owner of the slot according to the nodes themselves.
    pub(crate) async fn owner(&self, slot: u16) -> Arc<Node> {
        let what = format!("a node that answers has slot {slot}");
        let mut owner = None;
        // During a takeover or on a busy machine there may be no owner for a moment.
        eventually(SWITCHED_WITHIN, &what, async || {
            owner = self.try_owner(slot).await;
            owner.is_some()
        })
        .await;
        owner.expect("it is there")
    }

    /// The node that has the slot of this name.
    pub(crate) async fn owner_of(&self, name: &str) -> Arc<Node> {
        self.owner(slot(name)).await
    }

    async fn try_owner(&self, slot: u16) -> Option<Arc<Node>> {
        let views = join_all(self.nodes.iter().map(|node| node.view())).await;
        let selves = self.nodes.iter().zip(views).filter_map(|(node, view)| {
            let own = view?.into_iter().find(|seen| seen.is("myself"))?;
            (own.is("master") && own.has(slot)).then_some((own.epoch, node))
        });
        let latest = selves.max_by_key(|(epoch, _)| *epoch);
        latest.map(|(_, node)| node.clone())
    }

    /// The first names of the form `<prefix>:<number>` that belong to this node now.
    pub(crate) async fn names_at(&self, node: &Node, prefix: &str, n: usize) -> Vec<String> {
        let mut own = None;
        eventually(SWITCHED_WITHIN, "the node answers", async || {
            let view = node.view().await.unwrap_or_default();
            own = view.into_iter().find(|seen| seen.is("myself"));
            own.is_some()
        })
        .await;
        let own = own.expect("it is there");
        names(prefix, n, |slot| own.has(slot))
    }

    /// A node that follows this one. On a busy machine it may not answer at once.
    pub(crate) async fn replica_of(&self, master: &Node) -> Arc<Node> {
        let mut replica = None;
        eventually(
            SWITCHED_WITHIN,
            "it has a replica that answers",
            async || {
                replica = self.try_replica_of(master).await;
                replica.is_some()
            },
        )
        .await;
        replica.expect("it is there")
    }

    async fn try_replica_of(&self, master: &Node) -> Option<Arc<Node>> {
        let views = join_all(self.nodes.iter().map(|node| node.view())).await;
        let mut selves = self.nodes.iter().zip(views).filter(|(_, view)| {
            let own = view.iter().flatten().find(|seen| seen.is("myself"));
            own.is_some_and(|own| own.master == master.id)
        });
        selves.next().map(|(replica, _)| replica.clone())
    }

    /// Waits until another node than `old` says that the slot is its own.
    pub(crate) async fn await_successor(&self, slot: u16, old: &Node) -> Arc<Node> {
        eventually(SWITCHED_WITHIN, "the slot has a new owner", async || {
            let owner = self.try_owner(slot).await;
            owner.is_some_and(|owner| owner.id != old.id)
        })
        .await;
        self.owner(slot).await
    }

    /// As `await_successor`, and waits until all answering nodes agree on it and the cluster state is ok.
    pub(crate) async fn await_switch(&self, slot: u16, old: &Node) -> Arc<Node> {
        self.await_successor(slot, old).await;
        self.await_health().await;
        self.owner(slot).await
    }

    /// Makes a replica the owner of its dead master's slots at once, instead of after the others' node timeout.
    pub(crate) async fn take_over(&self, slot: u16, replica: &Node) {
        eventually(SWITCHED_WITHIN, "the replica took over", async || {
            let _begun: Option<String> = replica.try_ask("CLUSTER FAILOVER TAKEOVER").await;
            let owner = self.try_owner(slot).await;
            owner.is_some_and(|owner| owner.id == replica.id)
        })
        .await;
        self.await_health().await;
    }

    /// Makes a replica of the healthy owner of the slot the owner.
    pub(crate) async fn fail_over(&self, slot: u16) -> Arc<Node> {
        let old = self.owner(slot).await;
        let replica = self.replica_of(&old).await;
        // A replica that has just attached refuses or fails. Then the test asks again.
        eventually(SWITCHED_WITHIN, "the failover took place", async || {
            let _begun: Option<String> = replica.try_ask("CLUSTER FAILOVER").await;
            for _ in 0..100 {
                let owner = self.try_owner(slot).await;
                if owner.is_some_and(|owner| owner.id == replica.id) {
                    return true;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            false
        })
        .await;
        self.await_switch(slot, &old).await
    }

    /// Waits until the replica of the owner of a name's slot has all that the owner executed before this call.
    pub(crate) async fn await_replication(&self, name: &str) {
        let redis = self.owner_of(name).await.redis().await;
        // WAIT counts the replicas that have the last write of its own connection.
        redis.cmd(&["SET", &format!("{{{name}}}:last"), "1"]).await;
        eventually(SWITCHED_WITHIN, "its replica has all of it", async || {
            redis.ask::<u32>(&["WAIT", "1", "1000"]).await == 1
        })
        .await;
    }

    /// Kills the owner of a name's slot when its replica has all of its data, and makes the replica the owner.
    pub(crate) async fn crash(&self, name: &str) -> Arc<Node> {
        self.await_replication(name).await;
        let old = self.owner_of(name).await;
        let successor = self.replica_of(&old).await;
        old.server.kill();
        self.take_over(slot(name), &successor).await;
        successor
    }

    /// Starts one more node, a master without slots, and waits until all know it.
    pub(crate) async fn join(&mut self) -> Arc<Node> {
        let node = Arc::new(self.builder.node(None).await);
        let running = self.nodes.iter().filter(|it| it.server.is_running());
        join_all(running.map(|it| meet(it, &node))).await;
        self.nodes.push(node.clone());
        self.await_full_mesh().await;
        self.await_health().await;
        node
    }

    /// Makes all masters record the new owner of a slot.
    async fn give(&self, slot: u16, from: &Node, to: &Node) {
        let assign = format!("CLUSTER SETSLOT {slot} NODE {}", to.id);
        // The new owner first: otherwise no server has the slot if it fails.
        to.cmd(&assign).await;
        let others = self.nodes.iter().filter(|it| it.id != to.id);
        for other in std::iter::once(from).chain(others.map(Arc::as_ref)) {
            // Replicas refuse this and get it from their masters. A node that gave its last slot away
            // may be a replica by now.
            let _answer: Option<String> = other.try_ask(&assign).await;
        }
        eventually(SWITCHED_WITHIN, "all agree on the slot", async || {
            let agreed = self.agreement().await;
            agreed.is_some_and(|all| all.iter().any(|it| it.id == to.id && it.has(slot)))
        })
        .await;
    }

    /// The state on which all answering nodes agree, without nodes that are down: slots and masters.
    async fn agreement(&self) -> Option<Vec<Seen>> {
        let views = join_all(self.nodes.iter().map(|node| node.view())).await;
        let mut views = views.into_iter().flatten();
        let first = views.next()?;
        let roles = |view: &[Seen]| -> BTreeSet<_> {
            let living = view.iter().filter(|it| !it.is("fail") && !it.is("fail?"));
            let roles = living.map(|it| {
                let slots: Vec<_> = it.slots.iter().map(|it| (*it.start(), *it.end())).collect();
                (it.id.clone(), it.master.clone(), slots)
            });
            roles.collect()
        };
        let expected = roles(&first);
        views.all(|view| roles(&view) == expected).then_some(first)
    }

    /// Fails if a master has a key without an expiry, or a channel with a subscriber.
    pub(crate) async fn assert_clean(&self) {
        for node in &self.nodes {
            let view = node.view().await.unwrap_or_default();
            if view.iter().any(|it| it.is("myself") && it.is("master")) {
                node.redis().await.assert_clean().await;
            }
        }
    }
}

/// Two seconds until the node is considered down, and a few for the votes and their delays.
const SWITCHED_WITHIN: Duration = Duration::from_secs(60);
