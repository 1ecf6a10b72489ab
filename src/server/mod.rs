//! One deployment of Redis: a standalone server, a master that sentinels watch over, or a cluster.
//!
//! Everything above says what to run; only this module knows connections and their failures.

mod address;
mod connection;
mod failure;
mod health;
mod identity;
mod node;
mod private;
mod sentinel;
mod source;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::PubSub;
use redis::{Cmd, Value};
use tokio::sync::{Notify, watch};

use crate::clock::{Clock, Moment};

pub(crate) use address::Address;
pub(crate) use connection::Connection;
pub(crate) use failure::Failure;
use failure::Remedy;
pub(crate) use node::Node;
pub(crate) use source::Source;

/// The servers of one client.
pub(crate) struct Server {
    nodes: Nodes,
    clock: Clock,
    command_timeout: Duration,
    /// A server fell silent.
    suspicions: Arc<Notify>,
}

enum Nodes {
    One(Arc<Node>),
}

/// When a call begins, and when it has to be over.
#[derive(Clone, Copy)]
pub(crate) struct Allotted {
    pub(crate) now: Moment,
    pub(crate) until: Moment,
}

/// What became of one call's sendings, kept outside the call so that it survives its cancellation.
#[derive(Clone, Default)]
pub(crate) struct Sent {
    /// The moment before the first sending.
    pub(crate) first: Option<Moment>,
    /// The connection of the last sending.
    pub(crate) on: Option<Connection>,
    /// A sending is without an answer: it may have run, or may run yet.
    pub(crate) unanswered: bool,
    /// An earlier sending is without an answer, though the last one has one.
    pub(crate) repeated: bool,
}

impl Sent {
    /// The answer is that of the only sending: what it says is all that happened. A refused
    /// reconnect says nothing of the sending before it.
    pub(crate) fn is_answered(&self) -> bool {
        !self.repeated && !self.unanswered
    }
}

/// Shows where connections go, never with what password.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.nodes {
            Nodes::One(node) => node.source().fmt(f),
        }
    }
}

impl Server {
    /// One server, or one master; its watchdog renews leases of this length.
    pub(crate) fn new(
        source: Source,
        clock: Clock,
        command_timeout: Duration,
        lease: Duration,
    ) -> Self {
        let suspicions = Arc::new(Notify::new());
        let node = Node::new(source, lease, &suspicions);
        Self {
            nodes: Nodes::One(Arc::new(node)),
            clock,
            command_timeout,
            suspicions,
        }
    }

    /// The server that has this key.
    pub(crate) fn node(&self, _key: &str) -> Result<Arc<Node>, Failure> {
        match &self.nodes {
            Nodes::One(node) => Ok(node.clone()),
        }
    }

    /// All servers that have keys, as far as they are known.
    fn nodes(&self) -> Vec<Arc<Node>> {
        match &self.nodes {
            Nodes::One(node) => vec![node.clone()],
        }
    }

    /// Takes a crowd apart so that the keys of each part may be in one command.
    pub(crate) fn split<T>(&self, crowd: Vec<T>, _key: impl Fn(&T) -> &str) -> Vec<Vec<T>> {
        match &self.nodes {
            Nodes::One(_) => vec![crowd],
        }
    }

    /// The server that this connection leads to.
    fn node_of(&self, connection: &Connection) -> Option<Arc<Node>> {
        let leads_to = |node: &Arc<Node>| node.source().has(connection);
        self.nodes().into_iter().find(leads_to)
    }

    /// Host and port, a unix socket's path, a master's name, or "pool"; never a user or password.
    pub(crate) fn address(&self) -> String {
        match &self.nodes {
            Nodes::One(node) => node.address(),
        }
    }

    /// Says that the server of this key does not answer: see [`Node::suspect`].
    pub(crate) fn suspect(&self, key: &str, failure: &Failure) {
        if let Ok(node) = self.node(key) {
            node.suspect(failure);
        }
    }

    /// Why the server of this key is thought not to answer, if it is.
    pub(crate) fn suspected(&self, key: &str) -> Option<Failure> {
        match self.node(key) {
            Ok(node) => node.suspected(),
            Err(failure) => Some(failure),
        }
    }

    /// The servers that are thought not to answer.
    pub(crate) fn suspects(&self) -> Vec<Arc<Node>> {
        let mut nodes = self.nodes();
        nodes.retain(|node| node.suspected().is_some());
        nodes
    }

    /// Ends when another server may be under suspicion. For one caller: the client's own thread.
    pub(crate) async fn suspicion(&self) {
        self.suspicions.notified().await;
    }

    /// See [`Node::reborn`].
    pub(crate) fn reborn(&self, key: &str) -> Option<Moment> {
        self.node(key).ok()?.reborn()
    }

    /// See [`Node::reborn_since`].
    pub(crate) fn reborn_since(&self, key: &str) -> u64 {
        self.node(key).map_or(0, |node| node.reborn_since())
    }

    /// The server is this one, as it says itself, and its data is what it should be.
    pub(crate) fn trust(&self, who: String) {
        match &self.nodes {
            Nodes::One(node) => node.trust(who),
        }
    }

    /// Connects, so that a wrong address or password shows before the first lock.
    pub(crate) async fn connect(&self) -> Result<(), Failure> {
        match &self.nodes {
            Nodes::One(node) => node.connection(self.command_timeout).await.map(drop),
        }
    }

    /// Keeps looking who the masters are, this often, where that can change. Never ends.
    pub(crate) async fn watch(&self, every: Duration) {
        match &self.nodes {
            Nodes::One(node) => node.source().watch(every).await,
        }
    }

    /// A connection for messages, where an address is known.
    pub(crate) async fn open_pubsub(&self, limit: Duration) -> Result<PubSub, Failure> {
        match &self.nodes {
            Nodes::One(node) => node.source().open_pubsub(limit).await,
        }
    }

    /// Another server may take a server's place, with less than that one knew.
    pub(crate) fn is_switched(&self) -> bool {
        match &self.nodes {
            Nodes::One(node) => node.source().is_switched(),
        }
    }

    /// Counts the times that a server took another's place.
    pub(crate) fn switches(&self) -> watch::Receiver<u64> {
        match &self.nodes {
            Nodes::One(node) => node.source().reigns(),
        }
    }

    /// Sends a script on the callers' connection until it is answered, cannot succeed, or `until`
    /// has come; an answer of a passing state is waited out.
    ///
    /// # Cancel safety
    ///
    /// `sent` tells what may have run.
    pub(crate) async fn call(
        &self,
        key: &str,
        script: impl Fn(bool) -> Cmd,
        time: Allotted,
        sent: &mut Sent,
    ) -> Result<Value, Failure> {
        let Allotted { mut now, until } = time;
        let mut pause = SHORTEST_PAUSE;
        let mut whole = false;
        let mut refusal = None;
        loop {
            let failure = match self.call_once(key, &script(whole), now, until, sent).await {
                Ok(value) => return Ok(value),
                Err(Failure::Refused { code, .. }) if code == "NOSCRIPT" && !whole => {
                    whole = true;
                    now = self.clock.now();
                    continue;
                }
                Err(failure) => failure,
            };
            match failure.remedy() {
                Remedy::GiveUp => return Err(failure),
                Remedy::Reconnect => {
                    if let Some(broken) = &sent.on {
                        self.abandon(broken);
                    }
                }
                Remedy::Wait => {}
            }
            let left = until.since(self.clock.now());
            // A sending without time for its answer would only hide why the others failed.
            if left <= pause * 2 {
                return Err(match (failure, refusal) {
                    (Failure::Unsent(_), Some(refusal)) => refusal,
                    (failure, _) => failure,
                });
            }
            tracing::debug!(?failure, "sending again");
            if matches!(failure, Failure::Refused { .. }) {
                refusal = Some(failure);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            now = self.clock.now();
        }
    }

    async fn call_once(
        &self,
        key: &str,
        command: &Cmd,
        mut now: Moment,
        until: Moment,
        sent: &mut Sent,
    ) -> Result<Value, Failure> {
        let node = self.node(key)?;
        let connection = match node.current() {
            Some(current) => current,
            None => {
                let opened = node.connection(self.limit(now, until)).await?;
                now = self.clock.now();
                opened
            }
        };
        let limit = self.limit(now, until);
        sent.repeated |= sent.unanswered;
        if mutant!("deadline_from_repetition") {
            sent.first = None;
        }
        sent.first = sent.first.or(Some(now));
        sent.unanswered = true;
        let answer = sent.on.insert(connection).send(command, limit).await;
        sent.unanswered = answer.as_ref().is_err_and(Failure::is_ambiguous);
        answer
    }

    /// Gives up the connection of a call that was not answered and that nobody settles: it may be
    /// half open, and no later question would find out.
    pub(crate) fn abandon_silent(&self, answer: &Result<Value, Failure>, sent: &Sent) {
        if let (Err(Failure::Silent(_)), Some(silent)) = (answer, &sent.on) {
            self.abandon(silent);
        }
    }

    /// Gives up a connection that does not answer: the next call opens another.
    pub(crate) fn abandon(&self, connection: &Connection) {
        for node in self.nodes() {
            node.abandon(connection);
        }
    }

    /// Asks the server to close a connection that was given up: see [`Node::kill`].
    pub(crate) async fn kill(&self, old: &Connection, limit: Duration) {
        // One that is not there any more runs nothing that counts.
        if let Some(node) = self.node_of(old) {
            node.kill(old, limit).await;
        }
    }

    /// Closes the callers' connections once nobody waits for an answer on them.
    pub(crate) fn disconnect(&self) {
        for node in self.nodes() {
            node.disconnect();
        }
    }

    /// What one command may take that begins now.
    pub(crate) fn allot(&self, now: Moment) -> Allotted {
        Allotted {
            now,
            until: now + self.command_timeout,
        }
    }

    pub(crate) fn command_timeout(&self) -> Duration {
        self.command_timeout
    }

    /// One sending may take the command timeout, and never longer than the whole call.
    fn limit(&self, now: Moment, until: Moment) -> Duration {
        let left = until.since(now);
        self.command_timeout.min(left).max(SHORTEST_PAUSE)
    }
}

const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
