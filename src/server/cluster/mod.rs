//! A cluster: which of its masters has a key, by what its nodes say.
//!
//! The client's own thread asks some of the nodes each second, and at once when somebody met with a
//! sign of a change; where a key is, callers look up. A server that says `MOVED` or `ASK` is believed
//! for the one command that it says so of.

mod answers;
mod ask;
mod learn;
mod node_link;
mod shard;
mod shown;
mod slot_claim;
mod slot_map;
mod view;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use redis::{ConnectionAddr, ConnectionInfo};
use tokio::sync::{Notify, watch};

use super::Context;
use super::endpoint::Endpoint;
use super::failure::Failure;
use super::membership::Membership;
use super::node::Node;
use super::single_flight::SingleFlight;
use super::wire::address_like;
use crate::clock::Moment;
use crate::slot::slot;
use node_link::NodeLink;
use slot_map::{Change, MasterData, SlotMap};
use view::{ClusterView, NodeView};

/// The servers of one cluster.
pub(super) struct Cluster {
    /// The nodes that the user named.
    seeds: Vec<ConnectionInfo>,
    members: NodeEndpoints,
    context: Context,
    map: RwLock<SlotMap<Arc<Node>>>,
    /// Servers that others named, until the next look says what they have.
    strangers: Mutex<Vec<(Moment, Arc<Node>)>>,
    /// Whose views are believed.
    membership: Mutex<Membership>,
    /// The addresses of all nodes that live.
    known: Mutex<Vec<(String, u16)>>,
    /// Counts the choices of nodes that are asked, so that others come to it.
    chosen: AtomicUsize,
    switches: watch::Sender<u64>,
    /// Something may have changed, or somebody has to know that it has not.
    news: Notify,
    /// When the nodes were last asked of which some answered.
    looks: watch::Sender<Moment>,
    /// One look is for all who wait for the first one.
    learning: SingleFlight<()>,
    /// Messages go to the nodes of one shard only. Nothing until it is known.
    sharded: Mutex<Option<bool>>,
}

/// How to connect to a node, wherever it is.
pub(super) struct NodeEndpoints {
    pub(super) info: ConnectionInfo,
    pub(super) name: Option<String>,
    pub(super) suspicions: Arc<Notify>,
}

impl Cluster {
    pub(super) fn new(
        seeds: Vec<ConnectionInfo>,
        members: NodeEndpoints,
        context: Context,
    ) -> Self {
        Self {
            seeds,
            members,
            learning: SingleFlight::new(&context.clock),
            context,
            map: RwLock::new(SlotMap::new()),
            strangers: Mutex::default(),
            membership: Mutex::default(),
            known: Mutex::default(),
            chosen: AtomicUsize::new(0),
            switches: watch::Sender::new(0),
            news: Notify::new(),
            looks: watch::Sender::new(Moment(0)),
            sharded: Mutex::default(),
        }
    }

    /// The seeds' hosts and ports.
    pub(super) fn address(&self) -> String {
        let seeds = self.seeds.iter().map(|seed| seed.addr().to_string());
        format!("cluster {}", seeds.collect::<Vec<_>>().join(","))
    }

    /// The server that has this key.
    pub(super) fn node(&self, key: &str) -> Result<Arc<Node>, Failure> {
        let node = self.map.read().owner(slot(key)).cloned();
        node.ok_or_else(|| {
            self.news.notify_one();
            Failure::Unsent("no server of the cluster has the slot".into())
        })
    }

    /// It has slots, as far as is known.
    pub(super) fn has(&self, node: &Arc<Node>) -> bool {
        self.map
            .read()
            .nodes()
            .any(|known| Arc::ptr_eq(known, node))
    }

    /// It was learnt which servers it has.
    pub(super) fn is_known(&self) -> bool {
        !self.map.read().is_empty()
    }

    /// The masters that have slots, and those that others named.
    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        let mut nodes: Vec<_> = self.map.read().nodes().cloned().collect();
        let strangers = self.strangers.lock();
        nodes.extend(strangers.iter().map(|(_, node)| node.clone()));
        nodes
    }

    /// The server at an address that another one named.
    pub(super) fn at(&self, host: &str, port: u16) -> Arc<Node> {
        let map = self.map.read();
        if let Some(node) = map.at(host, port) {
            return node.clone();
        }
        let mut strangers = self.strangers.lock();
        let address = self.members.address(host, port).to_string();
        if let Some((_, node)) = strangers.iter().find(|(_, node)| node.address() == address) {
            return node.clone();
        }
        let node = self.members.node(host, port, &self.context);
        if !map.has_master(host, port) {
            // It may have taken over from one that failed.
            node.endpoint().succeed();
        }
        strangers.push((self.context.clock.now(), node.clone()));
        node
    }

    /// Something happened that may come with a change.
    pub(super) fn is_news(&self) {
        self.news.notify_one();
    }

    /// Counts the times that slots got other owners.
    pub(super) fn switches(&self) -> watch::Receiver<u64> {
        self.switches.subscribe()
    }

    /// The key's slot got another owner after so many switches.
    pub(super) fn was_switched(&self, key: &str, since: u64) -> bool {
        self.map.read().switched(slot(key)) > since
    }

    /// When another node last said that the key's server is a master.
    pub(super) fn named(&self, key: &str) -> Moment {
        let named = self.map.read().named(slot(key));
        named.unwrap_or(Moment(0))
    }

    /// Messages go to the nodes of one shard only.
    pub(super) fn is_sharded(&self) -> bool {
        self.sharded.lock().unwrap_or_default()
    }

    /// Asks again and again, this often and when there are news. Never ends.
    pub(super) async fn watch(&self, every: Duration) {
        let mut links: Vec<NodeLink> = Vec::new();
        loop {
            self.choose(&mut links);
            if let Err(failure) = self.ask(&mut links, ENOUGH, PATIENCE, PATIENCE).await {
                tracing::debug!(
                    target: "lockdog::server",
                    ?failure, "no node tells of the cluster"
                );
            }
            // Those that did not answer leave their places to others.
            links.retain(|link| link.answered);
            tokio::time::sleep(SHORTEST_PAUSE.min(every)).await;
            tokio::select! {
                () = tokio::time::sleep(every) => {}
                () = self.news.notified() => {}
            }
        }
    }

    /// Fills the list of those who are asked: with nodes that are known, and with seeds while there
    /// are too few.
    fn choose(&self, links: &mut Vec<NodeLink>) {
        let known = self.known.lock().clone();
        let known = known
            .into_iter()
            .map(|(host, port)| self.members.info(&host, port));
        let candidates: Vec<ConnectionInfo> = known.chain(self.seeds.iter().cloned()).collect();
        let start = self.chosen.fetch_add(1, Ordering::Relaxed);
        for at in 0..candidates.len() {
            if links.len() >= ASKED {
                return;
            }
            let candidate = &candidates[(start + at) % candidates.len()];
            if links
                .iter()
                .all(|link| link.info.addr() != candidate.addr())
            {
                links.push(NodeLink::to(candidate.clone()));
            }
        }
    }

    fn take_in(&self, views: &[ClusterView], asked: Moment, looked: &[Arc<Node>]) {
        let nodes = views.iter().flat_map(|view| &view.nodes);
        let living = nodes.filter(|node| !node.has_failed);
        let mut living: Vec<_> = living.map(|node| (node.host.clone(), node.port)).collect();
        living.sort();
        living.dedup();
        *self.known.lock() = living;
        let mut map = self.map.write();
        let mut strangers = self.strangers.lock();
        strangers.retain(|(since, _)| asked.since(*since) < STRANGE);
        let make = |seen: &NodeView| {
            let address = self.members.address(&seen.host, seen.port).to_string();
            let known = strangers
                .iter()
                .position(|(_, node)| node.address() == address);
            match known {
                Some(known) => strangers.swap_remove(known).1,
                None => self.members.node(&seen.host, seen.port, &self.context),
            }
        };
        let lost = |node: &Arc<Node>| MasterData {
            loss: node.loss(),
            looked_at: looked.iter().any(|it| Arc::ptr_eq(it, node)),
        };
        let change = map.take_in(views, asked, make, lost);
        drop(strangers);
        // Before anybody sees the new map.
        for heir in &change.heirs {
            heir.endpoint().succeed();
        }
        for node in &change.doubtful {
            node.endpoint().doubt();
        }
        for node in &change.left {
            node.endpoint().end_term();
        }
        let switches = map.switches();
        drop(map);
        self.log_change(&change, switches);
    }

    /// Wakes those who wait for a change, and logs it: wakers and the user's subscriber run where no
    /// lock is held.
    fn log_change(&self, change: &Change<Arc<Node>>, switches: u64) {
        if change.is_switch {
            // The watchdog looks at the holds: before any waker that may take its time.
            self.switches.send_replace(switches);
        }
        for node in &change.left {
            node.endpoint().log_term();
        }
        if change.is_switch {
            tracing::debug!(
                target: "lockdog::server",
                cluster = self.address(), "slots have other owners"
            );
        }
        for heir in &change.heirs {
            tracing::warn!(
                target: "lockdog::server",
                cluster = self.address(),
                server = heir.address(),
                "the cluster switched a master"
            );
        }
    }
}

impl NodeEndpoints {
    fn address(&self, host: &str, port: u16) -> ConnectionAddr {
        address_like(&self.info, host.to_owned(), port)
    }

    fn info(&self, host: &str, port: u16) -> ConnectionInfo {
        self.info.clone().set_addr(self.address(host, port))
    }

    fn node(&self, host: &str, port: u16, context: &Context) -> Arc<Node> {
        let endpoint = Endpoint::member(self.info(host, port), self.name.clone(), &context.clock);
        Arc::new(Node::new(endpoint, context, &self.suspicions))
    }
}

/// So long a server is known that others named, and that has no slots.
const STRANGE: Duration = Duration::from_secs(10);
/// So many nodes are asked at a time.
const ASKED: usize = 5;
/// So many answers are waited for while there is time: what a master says of itself does not make it one.
const ENOUGH: usize = 2;
const PATIENCE: Duration = Duration::from_secs(1);
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;
    use crate::clock::Clock;
    use crate::user_code::{FreeAtEachCall, OnEvent};

    #[tokio::test]
    async fn a_switch_wakes_callers_and_is_logged_while_no_lock_is_held() {
        let seed = redis::Client::open("redis://127.0.0.1:1").unwrap();
        let members = NodeEndpoints {
            info: seed.get_connection_info().clone(),
            name: None,
            suspicions: Arc::default(),
        };
        let seeds = vec![members.info.clone()];
        let cluster = Cluster::new(seeds, members, Context::here(&Clock::default()));
        let cluster = Arc::new(cluster);
        let before = "a h:1@2 myself,master - 0 0 1 connected 0-16383\n\
            b h:3@4 slave a 0 0 1 connected\n";
        let after = "a h:1@2 master,fail - 0 0 1 disconnected\n\
            b h:3@4 myself,master - 0 0 2 connected 0-16383\n";
        let second = Moment(0) + Duration::from_secs(1);
        cluster.take_in(&[ClusterView::new(before, None, "h")], second, &[]);
        let seen = cluster.clone();
        let free = FreeAtEachCall::new(move || {
            seen.map.try_write().is_some() && seen.strangers.try_lock().is_some()
        });
        let left = cluster.node("l").unwrap();
        let mut over = pin!(left.endpoint().until_left());
        assert!(free.poll(over.as_mut()).is_pending());
        let subscriber = OnEvent(free.check());
        tracing::subscriber::with_default(subscriber, || {
            let view = ClusterView::new(after, None, "h");
            cluster.take_in(&[view], second + Duration::from_secs(1), &[]);
        });
        // One waker and two events.
        assert_eq!(free.calls(), [true, true, true]);
        assert!(free.poll(over.as_mut()).is_ready());
        assert!(cluster.was_switched("l", 0));
    }
}
