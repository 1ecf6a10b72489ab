//! The servers of a deployment, and the assignment of keys to them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::aio::PubSub;
use tokio::sync::{Notify, watch};

use super::ack::ReplicaAck;
use super::address::Address;
use super::cluster::{Cluster, NodeEndpoints};
use super::connection::Connection;
use super::context::Context;
use super::endpoint::Endpoint;
use super::failure::Failure;
use super::login::Logins;
use super::node::Node;
use super::route::Route;
use super::subscriber::Subscriber;
use super::user_pool::UserPool;
use crate::clock::Moment;
use crate::error::Error;
use crate::slot::slot;

/// The servers of a deployment.
pub(super) enum Nodes {
    One {
        node: Arc<Node>,
        /// The server refuses commands whose keys are in several slots: it is a proxy of a cluster.
        has_slots: AtomicBool,
    },
    Cluster(Arc<Cluster>),
}

/// The servers of one client.
pub(crate) struct Server {
    pub(super) nodes: Nodes,
    pub(super) context: Context,
    /// What a lock waits for before it counts as granted.
    pub(super) ack: ReplicaAck,
    /// Notified when a server becomes silent.
    pub(super) suspicions: Arc<Notify>,
    /// True once the client is shut down.
    pub(super) closed: AtomicBool,
}

impl Server {
    /// One server, or one master.
    pub(crate) fn new(endpoint: Endpoint, context: Context) -> Self {
        let suspicions = Arc::new(Notify::new());
        let node = Arc::new(Node::new(endpoint, &context, &suspicions));
        let has_slots = AtomicBool::new(false);
        Self {
            nodes: Nodes::One { node, has_slots },
            context,
            ack: ReplicaAck::Off,
            suspicions,
            closed: AtomicBool::new(false),
        }
    }

    /// The deployment at this address or in this pool: see [`Endpoint::new`].
    pub(crate) fn at(
        address: Option<Address>,
        pool: Option<UserPool>,
        name: Option<String>,
        logins: Option<Logins>,
        context: Context,
    ) -> Result<Self, Error> {
        let Some(Address::Cluster { seeds }) = address else {
            let endpoint = Endpoint::new(address, pool, name, &context)?;
            return Ok(Self::new(endpoint.logging_in(logins.as_ref()), context));
        };
        let suspicions = Arc::new(Notify::new());
        let Some(info) = seeds.first().cloned() else {
            let why = "at least one node URL is required".to_owned();
            return Err(Error::invalid("cluster", why));
        };
        let members = NodeEndpoints {
            info,
            name,
            logins,
            suspicions: suspicions.clone(),
            ended: AtomicBool::new(false),
        };
        let cluster = Cluster::new(seeds, members, context.clone());
        Ok(Self {
            nodes: Nodes::Cluster(Arc::new(cluster)),
            context,
            ack: ReplicaAck::Off,
            suspicions,
            closed: AtomicBool::new(false),
        })
    }

    /// The server that has this key.
    pub(crate) fn node(&self, key: &str) -> Result<Arc<Node>, Failure> {
        match &self.nodes {
            Nodes::One { node, .. } => Ok(node.clone()),
            Nodes::Cluster(cluster) => cluster.node(key),
        }
    }

    /// Like [`Server::node`], but waits until the cluster is known.
    pub(super) async fn find(&self, key: &str, limit: Duration) -> Result<Route, Failure> {
        if let Nodes::Cluster(cluster) = &self.nodes
            && !cluster.is_known()
        {
            // Boxed: it is rare, and would otherwise enlarge the future of every call.
            Box::pin(cluster.discover(limit)).await?;
        }
        let node = self.node(key)?;
        Ok(Route::plain(node))
    }

    /// The route to which the server behind this connection redirected a command. If the cluster may have
    /// changed, this also triggers a query of the cluster.
    pub(crate) fn redirected(&self, failure: &Failure, from: Option<&Connection>) -> Option<Route> {
        let Nodes::Cluster(cluster) = &self.nodes else {
            return None;
        };
        if failure.may_be_a_change() {
            cluster.ask_soon();
        }
        let (host, port, asking) = failure.redirection()?;
        let host = if host.is_empty() { from?.host() } else { host };
        let node = cluster.at(host, port);
        Some(Route { node, asking })
    }

    /// All servers that have keys, as far as they are known.
    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        match &self.nodes {
            Nodes::One { node, .. } => vec![node.clone()],
            Nodes::Cluster(cluster) => cluster.nodes(),
        }
    }

    /// The server to which this connection leads.
    pub(super) fn node_of(&self, connection: &Connection) -> Option<Arc<Node>> {
        let leads_to = |node: &Arc<Node>| node.endpoint().has(connection);
        self.nodes().into_iter().find(leads_to)
    }

    /// Splits a batch so that the keys of each part may be in one command.
    pub(crate) fn split<T>(&self, crowd: Vec<T>, key: impl Fn(&T) -> &str) -> Vec<Vec<T>> {
        if !self.has_slots() {
            return vec![crowd];
        }
        let mut parts: Vec<(u16, Vec<T>)> = Vec::new();
        for one in crowd {
            let slot = slot(key(&one));
            match parts.iter_mut().find(|(other, _)| *other == slot) {
                Some((_, part)) => part.push(one),
                None => parts.push((slot, vec![one])),
            }
        }
        parts.into_iter().map(|(_, part)| part).collect()
    }

    /// Whether one command may have both keys.
    pub(crate) fn may_share(&self, one: &str, other: &str) -> bool {
        !self.has_slots() || slot(one) == slot(other)
    }

    /// The lock's key and its other keys have to be in one slot.
    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.nodes, Nodes::Cluster(_))
    }

    fn has_slots(&self) -> bool {
        match &self.nodes {
            Nodes::One { has_slots, .. } => has_slots.load(Ordering::Relaxed),
            Nodes::Cluster(_) => true,
        }
    }

    /// Records that a command with several keys was refused because of their slots.
    pub(crate) fn note_slots(&self, failure: &Failure) {
        if let (Nodes::One { has_slots, .. }, true) = (&self.nodes, failure.is_of_slots()) {
            has_slots.store(true, Ordering::Relaxed);
        }
    }

    /// The command that publishes a message to a lock's waiters.
    pub(crate) fn publishes(&self) -> &'static str {
        match &self.nodes {
            Nodes::Cluster(cluster) if cluster.is_sharded() => "spublish",
            _ => "publish",
        }
    }

    /// Host and port, the path of a unix socket, a master's name, a cluster's nodes, or "pool".
    /// Never a user or password.
    pub(crate) fn address(&self) -> String {
        match &self.nodes {
            Nodes::One { node, .. } => node.address(),
            Nodes::Cluster(cluster) => cluster.address(),
        }
    }

    /// The address of the server that has this key, as far as is known.
    pub(crate) fn address_of(&self, key: &str) -> String {
        let node = self.node(key);
        node.map_or_else(|_| self.address(), |node| node.address())
    }

    /// The only server reports this identity, and the caller marks its data as complete.
    pub(crate) fn trust(&self, who: String) {
        if let Nodes::One { node, .. } = &self.nodes {
            node.trust(who);
        }
    }

    /// Ends the pauses before attempts to connect and before queries about the deployment.
    pub(crate) fn retry_now(&self) {
        if let Nodes::Cluster(cluster) = &self.nodes {
            cluster.attempt().retry_now();
        }
        for node in self.nodes() {
            node.retry_now();
        }
    }

    /// Connects, so that a wrong address or password is detected before the first lock.
    pub(crate) async fn connect(&self) -> Result<(), Failure> {
        let limit = self.command_timeout();
        match &self.nodes {
            Nodes::One { node, .. } => node.connection(limit).await.map(drop),
            Nodes::Cluster(cluster) => cluster.discover(limit).await,
        }
    }

    /// Repeatedly checks which servers are masters, at this interval, if that can change. Never
    /// ends.
    pub(crate) async fn watch(&self, every: Duration) {
        match &self.nodes {
            Nodes::One { node, .. } => node.endpoint().watch(every).await,
            Nodes::Cluster(cluster) => cluster.watch(every).await,
        }
    }

    /// Whether another server may take a server's place, with less data.
    pub(crate) fn is_switched(&self) -> bool {
        match &self.nodes {
            Nodes::One { node, .. } => node.endpoint().is_switched(),
            Nodes::Cluster(_) => true,
        }
    }

    /// Counts how often a server took another's place.
    pub(crate) fn switches(&self) -> watch::Receiver<u64> {
        match &self.nodes {
            Nodes::One { node, .. } => node.endpoint().term_changes(),
            Nodes::Cluster(cluster) => cluster.switches(),
        }
    }

    /// Whether the key's server has changed since the switch with this number.
    pub(crate) fn was_switched(&self, key: &str, since: u64) -> bool {
        match &self.nodes {
            Nodes::One { node, .. } => node.endpoint().identity().term.current() > since,
            Nodes::Cluster(cluster) => cluster.was_switched(key, since),
        }
    }

    /// Fails if the key's server was not confirmed as a master within the last lease, or within the
    /// last seconds if the lease is shorter. An old master that comes back must not prolong a hold.
    pub(crate) fn verify(&self, key: &str, now: Moment, lease: Duration) -> Result<(), Failure> {
        match &self.nodes {
            Nodes::One { node, .. } => node.endpoint().verify(now, lease),
            Nodes::Cluster(cluster) if now.since(cluster.named(key)) > lease.max(SOME_SECONDS) => {
                let cause = "no other cluster node has confirmed this master within the lease";
                Err(Failure::Unsent(cause.into()))
            }
            Nodes::Cluster(_) => Ok(()),
        }
    }

    /// A connection for messages to a deployment of one server, if an address is known.
    pub(crate) fn open_pubsub(
        &self,
        limit: Duration,
    ) -> impl Future<Output = Result<PubSub, Failure>> + Send + use<> {
        let endpoint = match &self.nodes {
            Nodes::One { node, .. } => Some(node.endpoint().clone()),
            Nodes::Cluster(_) => None,
        };
        async move {
            match endpoint {
                Some(endpoint) => endpoint.open_pubsub(limit).await,
                None => Err(Failure::Unsent("each node has its own messages".into())),
            }
        }
    }

    /// Whether the server has slots of the cluster, as far as is known.
    pub(crate) fn has(&self, node: &Arc<Node>) -> bool {
        match &self.nodes {
            Nodes::One { .. } => true,
            Nodes::Cluster(cluster) => cluster.has(node),
        }
    }

    /// A connection for messages of one server of a cluster. `on_message` gets the channel of each
    /// message.
    pub(crate) async fn subscriber(
        &self,
        node: &Node,
        on_message: impl Fn(&str, &[u8]) + Send + Sync + 'static,
        limit: Duration,
    ) -> Result<Subscriber, Failure> {
        let sharded = match &self.nodes {
            Nodes::One { .. } => false,
            Nodes::Cluster(cluster) => cluster.is_sharded(),
        };
        let opened = node.endpoint().subscriber(sharded, on_message, limit);
        let opened = tokio::time::timeout(limit, Box::pin(opened)).await;
        opened.unwrap_or_else(|_| Err(Failure::Unsent("no connection in time".into())))
    }

    /// Abandons a connection that does not answer. The next call opens another one.
    pub(crate) fn abandon(&self, connection: &Connection) {
        for node in self.nodes() {
            node.abandon(connection);
        }
    }

    /// Asks the server to close an abandoned connection: see [`Node::kill`].
    pub(crate) async fn kill(&self, old: &Connection, limit: Duration) -> bool {
        match self.node_of(old) {
            Some(node) => node.kill(old, limit).await,
            // A server that has left the deployment runs nothing that counts.
            None => true,
        }
    }

    /// Closes the callers' connections once no call waits for an answer on them.
    pub(crate) fn disconnect(&self) {
        for node in self.nodes() {
            node.disconnect();
        }
    }
}

/// Shows addresses, never passwords.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.nodes {
            Nodes::One { node, .. } => node.endpoint().fmt(f),
            Nodes::Cluster(cluster) => f.debug_tuple("Cluster").field(&cluster.address()).finish(),
        }
    }
}

/// Enough for several queries of the cluster.
const SOME_SECONDS: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::support::free_port;

    #[tokio::test]
    async fn retry_now_skips_the_backoff_of_the_cluster_query() {
        let unused = format!("redis+cluster://127.0.0.1:{}", free_port());
        let address = Address::parse(&unused).unwrap();
        let context = Context::here(&Clock::default());
        let server = Server::at(Some(address), None, None, None, context).unwrap();
        server.connect().await.unwrap_err();
        let Nodes::Cluster(cluster) = &server.nodes else {
            unreachable!("it is the address of one")
        };
        assert!(cluster.attempt().is_delayed());
        server.retry_now();
        assert!(!cluster.attempt().is_delayed());
    }
}
