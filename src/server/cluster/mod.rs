//! A cluster, and the assignment of its slots to masters by its nodes' answers.
//!
//! The client's own thread asks some of the nodes every second, and immediately after a sign of a change.
//! Callers look keys up in the resulting map. A redirection (`MOVED` or `ASK`) is followed for the one
//! command that it answers.

mod answers;
mod ask;
mod discover;
mod node_link;
mod shard;
mod sharding;
mod shown;
mod slot_claim;
mod slot_map;
mod view;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use redis::{ConnectionAddr, ConnectionInfo};
use tokio::sync::{Notify, watch};

use super::Context;
use super::endpoint::Endpoint;
use super::failure::Failure;
use super::login::Logins;
use super::membership::Membership;
use super::node::Node;
use super::single_flight::SingleFlight;
use super::wire::address_like;
use crate::clock::Moment;
use crate::slot::slot;
use node_link::NodeLink;
use sharding::Sharding;
use slot_map::{Change, MasterData, SlotMap};
use view::{ClusterView, NodeView};

/// The servers of one cluster.
pub(super) struct Cluster {
    /// The nodes that the user configured.
    seeds: Vec<ConnectionInfo>,
    members: NodeEndpoints,
    context: Context,
    map: RwLock<SlotMap<Arc<Node>>>,
    /// Servers that a redirection named, until a later query says which slots they have.
    strangers: Mutex<Vec<(Moment, Arc<Node>)>>,
    /// Decides which nodes belong to the cluster.
    membership: Mutex<Membership>,
    /// The addresses of all nodes that have not failed.
    known: Mutex<Vec<(String, u16)>>,
    /// The users and passwords for the links to the nodes, by address: a link without an answer is replaced, and the
    /// calls of the user's code that it made may not have returned. Those calls are limited for each address.
    link_logins: Mutex<HashMap<String, Logins>>,
    /// Counts the selections of nodes to ask, so that each selection begins elsewhere.
    chosen: AtomicUsize,
    switches: watch::Sender<u64>,
    /// Notified when something may have changed, or when a caller needs current answers.
    ask_now: Notify,
    /// When the last query with an answer began.
    queried: watch::Sender<Moment>,
    /// The query that discovers the cluster. All waiting callers share it.
    discovery: SingleFlight<()>,
    sharding: Sharding,
}

/// How to connect to a node at any address.
pub(super) struct NodeEndpoints {
    pub(super) info: ConnectionInfo,
    pub(super) name: Option<String>,
    pub(super) logins: Option<Logins>,
    pub(super) suspicions: Arc<Notify>,
    /// The client has ended: new nodes open no connections.
    pub(super) ended: AtomicBool,
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
            discovery: SingleFlight::new(&context.clock),
            context,
            map: RwLock::new(SlotMap::new()),
            strangers: Mutex::default(),
            membership: Mutex::default(),
            known: Mutex::default(),
            link_logins: Mutex::default(),
            chosen: AtomicUsize::new(0),
            switches: watch::Sender::new(0),
            ask_now: Notify::new(),
            queried: watch::Sender::new(Moment(0)),
            sharding: Sharding::default(),
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
            self.ask_now.notify_one();
            Failure::Unsent("no server of the cluster has the slot".into())
        })
    }

    /// Whether the node has slots, as far as is known.
    pub(super) fn has(&self, node: &Arc<Node>) -> bool {
        self.map
            .read()
            .nodes()
            .any(|known| Arc::ptr_eq(known, node))
    }

    /// Whether the cluster's servers are known.
    pub(super) fn is_known(&self) -> bool {
        !self.map.read().is_empty()
    }

    /// The masters that have slots, and those that redirections named.
    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        // Both are locked: an update of the map moves a server from the one to the other, and it would be in neither.
        let map = self.map.read();
        let strangers = self.strangers.lock();
        let named = strangers.iter().map(|(_, node)| node);
        map.nodes().chain(named).cloned().collect()
    }

    /// The client has ended. See [`Node::end`].
    pub(super) fn end(&self) {
        // Before the known nodes end: a node that does not see it is among them, because it is made and listed
        // under one lock.
        self.members.ended.store(true, Ordering::Release);
        for node in self.nodes() {
            node.end();
        }
    }

    /// The server at an address that a redirection named.
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
            // A server that was no master may have taken over from a failed one, without all its data.
            node.endpoint().succeed();
        }
        strangers.push((self.context.clock.now(), node.clone()));
        node
    }

    /// Reports a sign of a possible change.
    pub(super) fn ask_soon(&self) {
        self.ask_now.notify_one();
    }

    /// Counts how often slots changed their owner.
    pub(super) fn switches(&self) -> watch::Receiver<u64> {
        self.switches.subscribe()
    }

    /// Whether the key's slot changed its owner after the switch with this number.
    pub(super) fn was_switched(&self, key: &str, since: u64) -> bool {
        self.map.read().switched(slot(key)) > since
    }

    /// When another node last said that the key's server is a master.
    pub(super) fn named(&self, key: &str) -> Moment {
        let named = self.map.read().named(slot(key));
        named.unwrap_or(Moment(0))
    }

    /// Whether messages use sharded channels.
    pub(super) fn is_sharded(&self) -> bool {
        self.sharding.is_sharded()
    }

    /// Asks the nodes repeatedly, at this interval and after signs of a change. Never ends.
    pub(super) async fn watch(&self, every: Duration) {
        let mut links: Vec<NodeLink> = Vec::new();
        loop {
            self.choose(&mut links);
            if let Err(failure) = self.ask(&mut links, ENOUGH, ASK_TIMEOUT, ASK_TIMEOUT).await {
                tracing::debug!(
                    target: "lockdog::server",
                    %failure, "no cluster node answered CLUSTER NODES"
                );
            }
            // Nodes that did not answer make room for others.
            links.retain(|link| link.answered);
            tokio::time::sleep(SHORTEST_PAUSE.min(every)).await;
            tokio::select! {
                () = tokio::time::sleep(every) => {}
                () = self.ask_now.notified() => {}
            }
        }
    }

    fn link(&self, info: ConnectionInfo) -> NodeLink {
        let of_address = |logins: &Logins| {
            let mut known = self.link_logins.lock();
            let of_address = known.entry(info.addr().to_string());
            of_address.or_insert_with(|| logins.separate()).clone()
        };
        let logins = self.members.logins.as_ref().map(of_address);
        NodeLink::to(info, logins)
    }

    /// Fills the list of nodes to ask: with known nodes, and with seeds while there are too few.
    fn choose(&self, links: &mut Vec<NodeLink>) {
        let known = self.known.lock().clone();
        let known = known
            .into_iter()
            .map(|(host, port)| self.members.info(&host, port));
        let candidates: Vec<ConnectionInfo> = known.chain(self.seeds.iter().cloned()).collect();
        let mut logins = self.link_logins.lock();
        if logins.len() > candidates.len() {
            // Some are of nodes that have left.
            let known = candidates.iter().map(|it| it.addr().to_string());
            let known: HashSet<String> = known.collect();
            logins.retain(|address, _| known.contains(address));
        }
        drop(logins);
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
                links.push(self.link(candidate.clone()));
            }
        }
    }

    /// Processes the nodes' views. `identified` are the servers whose identity was just queried.
    fn update_map(&self, views: &[ClusterView], asked: Moment, identified: &[Arc<Node>]) {
        let nodes = views.iter().flat_map(|view| &view.nodes);
        // A failed node would not answer the next query.
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
            is_current: identified.iter().any(|it| Arc::ptr_eq(it, node)),
        };
        let change = map.update(views, asked, make, lost);
        drop(strangers);
        // Done before other threads see the new map.
        for successor in &change.successors {
            successor.endpoint().succeed();
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

    /// Wakes the waiters for a change, and logs it. No lock is held, because wakers and log
    /// subscribers are the user's code.
    fn log_change(&self, change: &Change<Arc<Node>>, switches: u64) {
        if change.is_switch {
            // The watchdog checks the holds. It is woken first, because other wakers may be slow.
            self.switches.send_replace(switches);
        }
        for node in &change.left {
            node.endpoint().log_term();
        }
        if change.is_switch {
            tracing::debug!(
                target: "lockdog::server",
                cluster = self.address(), "slots changed their owners"
            );
        }
        for successor in &change.successors {
            tracing::warn!(
                target: "lockdog::server",
                cluster = self.address(),
                server = successor.address(),
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
        let endpoint = Endpoint::member(self.info(host, port), self.name.clone(), context);
        let endpoint = endpoint.logging_in(self.logins.as_ref());
        let node = Node::new(endpoint, context, &self.suspicions);
        if self.ended.load(Ordering::Acquire) {
            node.end();
        }
        Arc::new(node)
    }
}

/// How long a server without slots stays known after a redirection named it.
const STRANGE: Duration = Duration::from_secs(10);
/// How many nodes are asked at a time.
const ASKED: usize = 5;
/// How many answers the client waits for while there is time. One is not enough: a master cannot confirm
/// itself.
const ENOUGH: usize = 2;
const ASK_TIMEOUT: Duration = Duration::from_secs(1);
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::mpsc;

    use super::*;
    use crate::background::Background;
    use crate::clock::Clock;
    use crate::server::login::CredentialSource;
    use crate::user_code::{FreeAtEachCall, OnEvent};

    fn cluster() -> Cluster {
        let seed = redis::Client::open("redis://127.0.0.1:1").unwrap();
        let members = NodeEndpoints {
            info: seed.get_connection_info().clone(),
            name: None,
            logins: None,
            suspicions: Arc::default(),
            ended: AtomicBool::new(false),
        };
        let seeds = vec![members.info.clone()];
        Cluster::new(seeds, members, Context::here(&Clock::default()))
    }

    #[tokio::test]
    async fn a_call_that_is_redirected_after_the_end_opens_no_connection() {
        let cluster = cluster();
        let limit = Duration::from_secs(60);
        let before = cluster.at("127.0.0.1", 1);
        let refused = before.connection(limit).await.err();
        assert!(matches!(refused, Some(Failure::Unsent(_))), "{refused:?}");
        cluster.end();
        for node in [before, cluster.at("127.0.0.1", 2)] {
            let closed = node.connection(limit).await.err();
            assert!(matches!(closed, Some(Failure::Closed)), "{closed:?}");
        }
    }

    /// Each query replaces a link without an answer, and the new link asks for credentials again.
    #[tokio::test]
    async fn credentials_that_hang_occupy_few_threads_for_one_node() {
        let (background, _thread) = Background::start().unwrap();
        let a_minute = Duration::from_secs(60);
        let context = Context {
            background: background.clone(),
            command_timeout: a_minute,
            watchdog_lease: a_minute * 6,
            ..Context::here(&Clock::default())
        };
        let asked = Arc::new(AtomicUsize::new(0));
        let (unblock, blocked) = mpsc::channel::<()>();
        let (counted, blocked) = (asked.clone(), Mutex::new(blocked));
        let source: CredentialSource = Arc::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            let _sender_gone = blocked.lock().recv();
            Box::pin(std::future::pending())
        });
        let mut cluster = cluster();
        cluster.members.logins = Some(Logins::new(source, &context));
        let query = async || {
            let mut link = cluster.link(cluster.members.info.clone());
            let query = async move { link.ask(Duration::from_millis(20)).await.is_err() };
            assert!(background.spawn(query).await.unwrap());
        };
        // On a busy machine a query may end before its call begins.
        while asked.load(Ordering::Relaxed) < 3 {
            query().await;
        }
        for _ in 0..5 {
            query().await;
        }
        assert_eq!(asked.load(Ordering::Relaxed), 3);
        drop(unblock);
    }

    #[tokio::test]
    async fn a_switch_wakes_callers_and_is_logged_without_a_mutex_held() {
        let cluster = Arc::new(cluster());
        let before = "a h:1@2 myself,master - 0 0 1 connected 0-16383\n\
            b h:3@4 slave a 0 0 1 connected\n";
        let after = "a h:1@2 master,fail - 0 0 1 disconnected\n\
            b h:3@4 myself,master - 0 0 2 connected 0-16383\n";
        let second = Moment(0) + Duration::from_secs(1);
        cluster.update_map(&[ClusterView::new(before, None, "h")], second, &[]);
        let seen = cluster.clone();
        let free = FreeAtEachCall::new(move || {
            seen.map.try_write().is_some() && seen.strangers.try_lock().is_some()
        });
        let left = cluster.node("l").unwrap();
        let mut over = pin!(left.endpoint().until_left());
        assert!(free.poll(over.as_mut()).is_pending());
        let subscriber = OnEvent(free.check());
        subscriber.during(|| {
            let view = ClusterView::new(after, None, "h");
            cluster.update_map(&[view], second + Duration::from_secs(1), &[]);
        });
        // One waker and two events.
        assert_eq!(free.calls(), [true, true, true]);
        assert!(free.poll(over.as_mut()).is_ready());
        assert!(cluster.was_switched("l", 0));
    }
}
