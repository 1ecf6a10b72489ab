//! A cluster as one instance of a RedLock. Its replicas take over and its slots move. The server that
//! answers decides whether the instance counts, and a quarantine moves with the data of a slot.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockdog::{Client, Guard, RedLock};

use super::red_lock::{Clusters, shut_down};
use super::{LONG, ms, soon};
use crate::support::cluster::{Node, slot};
use crate::support::{Action, Cluster, eventually, named};

/// The slot is quarantined at the master that took over. Its next owner has received the slot's data from
/// that master, and so misses the forgotten lock, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_after_a_failover_keeps_its_quarantine() {
    let stage = Stage::start(Clusters::start().await).await;
    let cluster = stage.cluster();
    let old = cluster.owner(slot(NAME)).await;
    let holders = stage.forget(&old).await;
    old.server.kill();
    let successor = stage.successor_of(&old).await;
    assert!(
        !successor.redis().await.exists(NAME).await,
        "it was replicated"
    );
    stage.sees_a_quarantine().await;
    let mut masters = cluster.nodes[..3].iter();
    let to = masters.find(|it| it.id != old.id).expect("there are three");
    cluster.move_slot(slot(NAME), to).await;
    stage.never_counts(&holders).await;
    // The owner after that does not count either.
    let mut masters = cluster.nodes[..3].iter();
    let next = masters.find(|it| it.id != old.id && it.id != to.id);
    cluster
        .move_slot(slot(NAME), next.expect("there are three"))
        .await;
    stage.never_counts(&holders).await;
    stage.end(holders).await;
}

/// The client asks the former owner of the slot, which redirects it to a server that took over from a
/// failed master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_after_moved_is_judged_by_the_server_that_gave_it() {
    behind_moved(Stage::start(Clusters::behind_proxies().await).await).await;
}

/// The same with fencing tokens, whose acquire is another command, with two keys.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fenced_grant_after_moved_is_judged_by_the_server_that_gave_it() {
    behind_moved(Stage::fenced(Clusters::behind_proxies().await).await).await;
}

async fn behind_moved(stage: Stage) {
    let cluster = stage.cluster();
    let known = cluster.owner(slot(NAME)).await;
    for node in &cluster.nodes {
        let refuse = Action::ReplyWith("-ERR not now".to_owned());
        node.proxy().on(named("CLUSTER"), refuse).always();
    }
    let mut masters = cluster.nodes[..3].iter();
    let failing = masters.find(|it| it.id != known.id);
    let failing = failing.expect("there are three").clone();
    cluster.move_slot(slot(NAME), &failing).await;
    let holders = stage.forget(&failing).await;
    failing.server.kill();
    let successor = stage.successor_of(&failing).await;
    assert!(
        !successor.redis().await.exists(NAME).await,
        "it was replicated"
    );
    known.redis().await.reset_stats().await;
    stage.never_counts(&holders).await;
    let errors = known.redis().await.errorstats().await;
    assert!(errors.contains_key("MOVED"), "{errors:?}");
    stage.end(holders).await;
}

/// The slot migrates to a master that took over from the first target of the migration.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_after_ask_is_judged_by_the_server_that_gave_it() {
    behind_ask(Stage::start(Clusters::start().await).await, "ASK").await;
}

/// The same with fencing tokens. During the migration no server grants anything, because no server has both
/// keys (`TRYAGAIN`). The server that has the slot afterwards may have forgotten the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fenced_grant_after_ask_is_judged_by_the_server_that_gave_it() {
    behind_ask(Stage::fenced(Clusters::start().await).await, "TRYAGAIN").await;
}

async fn behind_ask(stage: Stage, refusal: &str) {
    let cluster = stage.cluster();
    let from = cluster.owner(slot(NAME)).await;
    let mut masters = cluster.nodes[..3].iter();
    let failing = masters.find(|it| it.id != from.id);
    let failing = failing.expect("there are three").clone();
    let first = cluster.migrate(slot(NAME), &failing).await;
    let holders = stage.forget(&failing).await;
    failing.server.kill();
    let successor = stage.successor_of(&failing).await;
    drop(first);
    let (source, target) = (&from.id, &successor.id);
    let number = slot(NAME);
    successor
        .cmd(&format!("CLUSTER SETSLOT {number} IMPORTING {source}"))
        .await;
    from.cmd(&format!("CLUSTER SETSLOT {number} MIGRATING {target}"))
        .await;
    assert!(!successor.asking::<bool>(&["EXISTS", NAME]).await);
    for node in [&successor, &from] {
        node.redis().await.reset_stats().await;
    }
    stage.never_counts(&holders).await;
    let mut errors = from.redis().await.errorstats().await;
    // Without either key the old owner answers `ASK`. The new owner answers `TRYAGAIN`, because it does not
    // have both keys.
    errors.extend(successor.redis().await.errorstats().await);
    assert!(errors.contains_key(refusal), "{errors:?}");
    // The first lock wrote its register to two of the three servers, and in time perhaps to the third. A
    // server that has keys of a slot does not give the slot away.
    from.cmd("FLUSHALL").await;
    for node in [&successor, &from] {
        node.cmd(&format!("CLUSTER SETSLOT {number} NODE {target}"))
            .await;
    }
    stage.never_counts(&holders).await;
    stage.end(holders).await;
}

/// The former master lives on as a replica of its successor, and the slot moves on before the client asks
/// again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moved_on_after_a_failover_is_still_quarantined() {
    let stage = Stage::start(Clusters::behind_proxies().await).await;
    let cluster = stage.cluster();
    let old = cluster.owner(slot(NAME)).await;
    let holders = stage.forget(&old).await;
    let refused: Vec<_> = cluster
        .nodes
        .iter()
        .map(|node| {
            let refuse = Action::ReplyWith("-ERR not now".to_owned());
            node.proxy().on(named("CLUSTER"), refuse).always()
        })
        .collect();
    // It takes over without the master's consent and without its data, because the master sends nothing
    // more to it.
    old.cmd("ACL SETUSER default -psync -sync").await;
    let replica = stage.replica();
    replica.server.resume();
    eventually(LONG, "the replica took over", async || {
        let _begun: Option<String> = replica.try_ask("CLUSTER FAILOVER TAKEOVER").await;
        let info: Option<String> = replica.try_ask("INFO replication").await;
        info.is_some_and(|info| info.contains("role:master"))
    })
    .await;
    let successor = cluster.await_switch(slot(NAME), &old).await;
    let mut masters = cluster.nodes[..3].iter();
    let to = masters.find(|it| it.id != old.id).expect("there are three");
    assert!(
        !successor.redis().await.exists(NAME).await,
        "it was replicated"
    );
    cluster.move_slot(slot(NAME), to).await;
    for rule in refused {
        rule.remove();
    }
    stage.never_counts(&holders).await;
    stage.end(holders).await;
}

/// A client of a RedLock over a cluster and two more, which held the lock once, and other clients that
/// acquire it on two of the three without this client's knowledge.
struct Stage {
    clusters: Clusters,
    clients: Vec<Client>,
    others: Vec<Client>,
    lock: RedLock,
    replica: std::sync::OnceLock<Arc<Node>>,
}

impl Stage {
    async fn start(clusters: Clusters) -> Self {
        Self::with(clusters, |lock| lock.max_lease(LONG)).await
    }

    /// With fencing tokens.
    async fn fenced(clusters: Clusters) -> Self {
        Self::with(clusters, |lock| lock.max_lease(LONG).fenced()).await
    }

    async fn with(clusters: Clusters, set: impl FnOnce(RedLock) -> RedLock) -> Self {
        let clients = clusters.clients_with(|it| it.watchdog_lease(LEASE)).await;
        let lock = set(super::red_lock::lock(&clients));
        lock.lock().await.unwrap().unlock().await.unwrap();
        let others = [0, 1].map(|at| Client::connect(clusters.all[at].url()));
        let others = join_all(others).await.into_iter();
        Self {
            clusters,
            clients,
            others: others.map(Result::unwrap).collect(),
            lock,
            replica: std::sync::OnceLock::new(),
        }
    }

    fn cluster(&self) -> &Cluster {
        &self.clusters.all[0]
    }

    fn replica(&self) -> &Arc<Node> {
        self.replica.get().expect("it is cut off")
    }

    /// An owner takes the lock on two of three. The replica of this master does not receive it.
    async fn forget(&self, master: &Node) -> [Guard; 2] {
        let replica = self.cluster().replica_of(master).await;
        replica.server.pause();
        let redis = master.redis().await;
        let cut = redis.cut_replicas().await;
        assert_eq!(cut, 1);
        self.replica.set(replica).expect("once only");
        let [first, second] = [0, 1].map(|at| self.others[at].lock(NAME).lock().lease(LONG));
        let holders = [first.await.unwrap(), second.await.unwrap()];
        assert!(master.asking::<bool>(&["EXISTS", NAME]).await);
        holders
    }

    /// Lets the disconnected replica take over.
    async fn successor_of(&self, old: &Node) -> Arc<Node> {
        let replica = self.replica();
        replica.server.resume();
        eventually(LONG, "the replica took over", async || {
            let info: Option<String> = replica.try_ask("INFO replication").await;
            info.is_some_and(|info| info.contains("role:master"))
        })
        .await;
        let cluster = self.cluster();
        cluster.await_health().await;
        assert_ne!(old.id, replica.id);
        replica.clone()
    }

    async fn sees_a_quarantine(&self) {
        soon("the instance answers and does not count", async {
            while !matches!(self.lock.try_lock().await, Ok(None)) {
                tokio::time::sleep(ms(20)).await;
            }
        })
        .await;
    }

    /// No attempt acquires the lock while the other owners hold it.
    async fn never_counts(&self, holders: &[Guard; 2]) {
        let began = Instant::now();
        let mut tries = 0;
        while began.elapsed() < ms(3000) || tries < 3 {
            match self.lock.try_lock().await {
                Ok(None) => {}
                Ok(Some(_)) => panic!("two holders after {:?}", began.elapsed()),
                Err(error) => assert!(error.is_retriable(), "{error:?}"),
            }
            tries += 1;
            tokio::time::sleep(ms(20)).await;
        }
        println!("{tries} tries");
        // The holder on the cluster may know that its key is gone.
        assert!(holders[1].is_valid());
    }

    async fn end(self, holders: [Guard; 2]) {
        drop(holders);
        shut_down(self.clients.into_iter().chain(self.others)).await;
    }
}

const NAME: &str = "l";
const LEASE: Duration = Duration::from_secs(8);
