//! Making one cluster of several servers.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::Cluster;
use super::node::Node;
use super::slot::SLOTS;
use crate::support::binary::Binary;
use crate::support::port::free_port;
use crate::support::proxy::Proxy;
use crate::support::server::{RedisServer, ServerBuilder};
use crate::support::wait::eventually;

#[derive(Clone, Debug)]
#[must_use = "builder does nothing itself, use `.start()` to start the cluster"]
pub(crate) struct ClusterBuilder {
    masters: usize,
    replicas: usize,
    announce_proxies: bool,
    elects: bool,
    tls: bool,
    server: ServerBuilder,
}

impl ClusterBuilder {
    pub(super) fn new(masters: usize, replicas_per_master: usize) -> Self {
        // A new replica is not to wait for others that might come.
        let server = RedisServer::builder()
            .cluster_node()
            .arg("--cluster-node-timeout", &NODE_TIMEOUT.to_string())
            .arg("--repl-diskless-sync-delay", "0");
        Self {
            masters,
            replicas: replicas_per_master,
            announce_proxies: false,
            elects: false,
            tls: false,
            server,
        }
    }

    /// Puts a proxy in front of each node, whose address the node announces in place of its own.
    pub(crate) fn announce_proxies(mut self) -> Self {
        self.announce_proxies = true;
        self
    }

    /// A replica takes over from a master that is silent for the node timeout. Defaults to no: on a busy machine
    /// a master that is only stopped would be replaced, too.
    pub(crate) fn elects(mut self) -> Self {
        self.elects = true;
        self
    }

    /// Requires a password at each node. Defaults to none.
    pub(crate) fn password(mut self, password: &str) -> Self {
        self.server = self.server.password(password).arg("--masterauth", password);
        self
    }

    /// Takes a command away from each node.
    pub(crate) fn without_command(mut self, name: &str) -> Self {
        self.server = self.server.without_command(name);
        self
    }

    /// The nodes use TLS with each other and with clients, which must have certificates. The test
    /// connects to another port without TLS. `options` name the files.
    pub(crate) fn tls(mut self, options: [(&'static str, String); 3]) -> Self {
        self.tls = true;
        // Debian's server supports TLS. The one of the wheels may not.
        self.server = self.server.binary(Binary::Redis7);
        for (option, value) in options {
            self.server = self.server.arg(&format!("--{option}"), &value);
        }
        for option in ["cluster", "replication", "auth-clients"] {
            self.server = self.server.arg(&format!("--tls-{option}"), "yes");
        }
        self
    }

    /// Starts all nodes, and waits until each says that the cluster is well and knows all others.
    pub(crate) async fn start(self) -> Cluster {
        let numbers = 1..=self.masters * (1 + self.replicas);
        let nodes = join_all(numbers.map(|number| self.node(Some(number)))).await;
        let cluster = Cluster {
            nodes: nodes.into_iter().map(Arc::new).collect(),
            builder: self,
        };
        let (masters, replicas) = cluster.nodes.split_at(cluster.builder.masters);
        // At once: a master that has no slots counts its time as one of a minority.
        let each = SLOTS / masters.len() as u16;
        join_all(masters.iter().enumerate().map(async |(number, master)| {
            let first = number as u16 * each;
            let is_last = number + 1 == masters.len();
            let last = if is_last { SLOTS } else { first + each } - 1;
            take_slots(master, first, last).await;
        }))
        .await;
        join_all(
            cluster
                .nodes
                .iter()
                .enumerate()
                .map(async |(number, node)| {
                    for other in &cluster.nodes[number + 1..] {
                        meet(node, other).await;
                    }
                }),
        )
        .await;
        cluster.await_full_mesh().await;
        join_all(replicas.iter().enumerate().map(async |(number, replica)| {
            let master = &masters[number % masters.len()];
            replica
                .cmd(&format!("CLUSTER REPLICATE {}", master.id))
                .await;
        }))
        .await;
        if !cluster.builder.elects {
            join_all(cluster.nodes.iter().map(async |node| {
                node.cmd("CONFIG SET cluster-replica-no-failover yes").await;
            }))
            .await;
        }
        cluster.await_health().await;
        cluster
    }

    /// A node without a cluster. `epoch` orders its claims against those of others. A node that joins
    /// later gets one when it needs one.
    pub(super) async fn node(&self, epoch: Option<usize>) -> Node {
        let mut server = self.server.clone();
        let mut proxy = None;
        if self.announce_proxies {
            // Redis 6.2 accepts the port only at its start, so the proxy exists before the server.
            let ahead = Proxy::to_port(0).await;
            server = server.arg("--cluster-announce-port", &ahead.port().to_string());
            proxy = Some(ahead);
        }
        let tls = self.tls.then(free_port);
        if let Some(port) = tls {
            server = server.arg("--tls-port", &port.to_string());
        }
        let server = server.start().await;
        if let Some(proxy) = &mut proxy {
            proxy.aim(&server);
        }
        let redis = server.redis().await;
        if let Some(epoch) = epoch {
            let epoch = epoch.to_string();
            redis.cmd(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]).await;
        }
        let id = redis.ask(&["CLUSTER", "MYID"]).await;
        Node {
            server,
            id,
            proxy,
            tls,
        }
    }
}

/// Makes free slots a node's own.
pub(crate) async fn take_slots(master: &Node, first: u16, last: u16) {
    if Binary::under_test().has_cluster_port() {
        master
            .cmd(&format!("CLUSTER ADDSLOTSRANGE {first} {last}"))
            .await;
        return;
    }
    let slots: Vec<_> = (first..=last).map(|slot| slot.to_string()).collect();
    master
        .cmd(&format!("CLUSTER ADDSLOTS {}", slots.join(" ")))
        .await;
}

/// Makes two nodes know each other.
pub(crate) async fn meet(node: &Node, other: &Node) {
    let (port, bus) = (other.client_port(), other.server.bus());
    node.cmd(&format!("CLUSTER MEET 127.0.0.1 {port} {bus}"))
        .await;
}

impl Cluster {
    /// Waits until each node that runs has met all nodes, by the addresses that these announce.
    pub(super) async fn await_full_mesh(&self) {
        eventually(FORMS_WITHIN, "all nodes know all nodes", async || {
            let views = join_all(self.nodes.iter().map(|node| node.view())).await;
            views.iter().flatten().all(|view| {
                self.nodes.iter().all(|node| {
                    let mut known = view.iter().filter(|seen| !seen.is("handshake"));
                    known.any(|seen| seen.id == node.id && seen.port == node.port())
                })
            })
        })
        .await;
    }

    /// Waits until each node that runs says that the cluster is well, each replica follows, and all
    /// agree on who has which slots and who follows whom.
    pub(crate) async fn await_health(&self) {
        eventually(FORMS_WITHIN, "the cluster is well", async || {
            let agree = self.agreement().await.is_some();
            let well = self.nodes.iter().map(async |node| {
                let info: Option<String> = node.try_ask("CLUSTER INFO").await;
                let replication: Option<String> = node.try_ask("INFO replication").await;
                let (Some(info), Some(replication)) = (info, replication) else {
                    return true;
                };
                info.contains("cluster_state:ok")
                    && !replication.contains("master_link_status:down")
            });
            agree && join_all(well).await.into_iter().all(|it| it)
        })
        .await;
    }
}

/// After how many milliseconds without an answer the others consider a node down.
const NODE_TIMEOUT: u32 = 2000;
const FORMS_WITHIN: Duration = Duration::from_secs(60);
