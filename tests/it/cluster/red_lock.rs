//! A RedLock whose instances are whole clusters: one of three masters with a replica each, and two of
//! a single master that has all slots.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockdog::error::InstanceState;
use lockdog::{Client, ClientBuilder, Error, Owner, RedLock, Unlocked};
use tokio::task::JoinSet;

use super::{LONG, SOON, ms, soon};
use crate::red_lock::decided;
use crate::support::cluster::slot;
use crate::support::{Action, Cell, Cluster, Rule, eventually, named, timed};

/// Each instance is a whole cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_red_lock_is_acquired_and_released_on_all_clusters() {
    let clusters = Clusters::start().await;
    let (mine, yours) = (clusters.clients().await, clusters.clients().await);
    let (lock, other) = (lock(&mine), lock(&yours));
    let guard = lock.lock().await.unwrap();
    eventually(SOON, "all clusters have it", async || {
        clusters.taken().await == 3
    })
    .await;
    eventually(SOON, "all count", async || guard.margin() == 1).await;
    let acquired = |it: &lockdog::error::Instance| matches!(it.state, InstanceState::Acquired);
    assert!(guard.instances().iter().all(acquired));
    assert!(decided(|| other.try_lock()).await.is_none());
    let waiting = tokio::spawn({
        let other = other.clone();
        async move { other.lock().owner(&Owner::new()).await }
    });
    tokio::time::sleep(ms(300)).await;
    assert!(!waiting.is_finished());
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    let guard = soon("the other client acquires it", waiting)
        .await
        .unwrap()
        .unwrap();
    guard.unlock().await.unwrap();
    eventually(SOON, "no cluster has it", async || {
        clusters.taken().await == 0
    })
    .await;
    shut_down(mine.into_iter().chain(yours)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fencing_tokens_grow_with_each_holder() {
    let clusters = Clusters::start().await;
    let (mine, yours) = (clusters.clients().await, clusters.clients().await);
    let locks = [lock(&mine).fenced(), lock(&yours).fenced()];
    let mut largest = 0;
    for turn in 0..6 {
        let guard = locks[turn % 2].lock().await.unwrap();
        let token = guard.token().unwrap();
        assert!(token > largest, "{token} after {largest}");
        largest = token;
        guard.unlock().await.unwrap();
    }
    shut_down(mine.into_iter().chain(yours)).await;
}

/// A cluster cannot store an epoch for itself, because it may lose each of its slots separately.
#[tokio::test]
async fn clusters_refuse_a_quarantine_on_the_server() {
    let cluster = Cluster::start(1, 0).await;
    let builder = Client::builder().url(cluster.url());
    let error = builder.quarantine_on_server(true).build().await;
    let error = error.unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
    assert!(error.to_string().contains("cluster"), "{error}");
    let client = Client::connect(cluster.url()).await.unwrap();
    let error = client.provision().await.unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
    client.shutdown().await;
}

/// A whole cluster is down. The other two are a quorum, and no call waits for the one that is down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_red_lock_is_acquired_while_one_cluster_is_down() {
    let clusters = Clusters::start().await;
    let (mine, yours) = (clusters.clients().await, clusters.clients().await);
    let (lock, other) = (lock(&mine), lock(&yours));
    let held = lock.lock().await.unwrap();
    eventually(SOON, "all count", async || held.margin() == 1).await;
    clusters.all[1].nodes[0].server.kill();
    assert!(decided(|| other.try_lock()).await.is_none());
    assert!(held.is_valid());
    held.unlock().await.unwrap();
    let mut durations = Vec::new();
    for turn in 0..20 {
        let lock = if turn % 2 == 0 { &lock } else { &other };
        let (guard, took) = timed(lock.lock().owner(&Owner::new()).into_future()).await;
        durations.push(took);
        guard.unwrap().unlock().await.unwrap();
    }
    durations.sort_unstable();
    // A busy machine delays some calls. Waiting for the cluster that is down would delay all by a command
    // timeout.
    let usual = durations[durations.len() / 2];
    println!("{usual:?} for an acquire");
    assert!(usual < ms(2500), "{durations:?}");
    // With two clusters down there is no quorum.
    clusters.all[2].nodes[0].server.kill();
    let refused = lock.try_lock().await;
    assert!(refused.unwrap_err().is_retriable());
    shut_down(mine.into_iter().chain(yours)).await;
}

/// A client that knew the cluster before does not count the new master while another client may hold a lock
/// that the master has forgotten.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_master_that_may_have_lost_locks_does_not_count_at_first() {
    let clusters = Clusters::start().await;
    let clients = clusters.clients_with(|it| it.watchdog_lease(LEASE)).await;
    let lock = lock(&clients).max_lease(LEASE);
    lock.lock().await.unwrap().unlock().await.unwrap();
    let [failing, busy, _] = &clusters.all[..] else {
        panic!("there are three");
    };
    let old = failing.owner(slot(NAME)).await;
    let replica = failing.replica_of(&old).await;
    let view = replica.redis().await;
    eventually(SOON, "the replica has executed the unlock", async || {
        view.ask::<u64>(&["DBSIZE"]).await == 0
    })
    .await;
    replica.server.pause();
    let redis = old.redis().await;
    let cut = redis.cut_replicas().await;
    assert_eq!(cut, 1);
    // Another owner holds two of the three.
    let others = [Client::connect(failing.url()), Client::connect(busy.url())];
    let others: Vec<_> = join_all(others)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let forgotten = others[0].lock(NAME).lock().lease(LONG).await.unwrap();
    let kept = others[1].lock(NAME).lock().lease(LONG).await.unwrap();
    assert!(decided(|| lock.try_lock()).await.is_none());
    // The client may see the switch before the test does.
    let began = Instant::now();
    old.server.kill();
    replica.server.resume();
    let new = failing.await_successor(slot(NAME), &old).await;
    let redis = new.redis().await;
    assert!(!redis.exists(NAME).await, "it was replicated");
    let guard = soon("it counts", async {
        loop {
            match lock.try_lock().await {
                Ok(Some(guard)) => return guard,
                Ok(None) => {}
                Err(error) => assert!(error.is_retriable(), "{error:?}"),
            }
            tokio::time::sleep(ms(20)).await;
        }
    })
    .await;
    println!("had after {:?}", began.elapsed());
    assert!(began.elapsed() > LEASE * 3 / 4, "{:?}", began.elapsed());
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    assert!(kept.is_valid());
    drop((forgotten, kept));
    shut_down(clients.into_iter().chain(others)).await;
}

/// A slot that one master gives to another keeps all its data, so it counts at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_moved_slot_counts_at_once() {
    let clusters = Clusters::start().await;
    let clients = clusters.clients().await;
    let lock = lock(&clients);
    lock.lock().await.unwrap().unlock().await.unwrap();
    let [moving, busy, _] = &clusters.all[..] else {
        panic!("there are three");
    };
    let old = moving.owner(slot(NAME)).await;
    let mut masters = moving.nodes[..3].iter();
    let to = masters.find(|it| it.id != old.id).expect("there are three");
    moving.move_slot(slot(NAME), to).await;
    let other = Client::connect(busy.url()).await.unwrap();
    let kept = other.lock(NAME).lock().await.unwrap();
    // A quarantine would last as long as the longest lease of a red lock, which is two minutes here.
    let (guard, took) = timed(soon("it is acquired", lock.lock().into_future())).await;
    println!("had after {took:?}");
    assert_eq!(guard.unwrap().unlock().await.unwrap(), Unlocked::Released);
    kept.unlock().await.unwrap();
    shut_down(clients.into_iter().chain([other])).await;
}

/// The lock spans three clusters. The master of one cluster is killed while clients hold the lock and
/// contend for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contending_clients_continue_while_one_cluster_fails_over() {
    let clusters = Clusters::start().await;
    let clients = clusters.clients_with(|it| it.watchdog_lease(LEASE)).await;
    let held = RedLock::new(clients.iter().map(|client| client.lock("held")));
    let held = held.lock().await.unwrap();
    let crowd = Crowd::start(&clusters).await;
    let cluster = &clusters.all[0];
    let old = cluster.owner(slot(NAME)).await;
    old.server.kill();
    crowd.goes_on().await;
    let new = cluster.await_switch(slot(NAME), &old).await;
    crowd.goes_on().await;
    assert!(held.is_valid());
    // The new master grants the lock, too.
    let is_there = async || new.redis().await.exists(NAME).await;
    eventually(LEASE * 4, "the new master has it", async || {
        is_there().await
    })
    .await;
    eventually(LEASE * 4, "all count", async || held.margin() == 1).await;
    assert!(held.is_valid());
    assert_eq!(held.unlock().await.unwrap(), Unlocked::Released);
    crowd.goes_on().await;
    crowd.end().await;
    shut_down(clients).await;
    eventually(SOON, "no cluster has it", async || {
        clusters.taken().await == 0
    })
    .await;
}

/// The call is abandoned while the client asks the cluster about the server that granted it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abandoned_acquire_is_undone_on_a_cluster_whose_answer_is_being_judged() {
    let clusters = Clusters::behind_proxies().await;
    let lease = SOON * 5;
    let mine = clusters.clients_with(|it| it.watchdog_lease(lease)).await;
    let lock = lock(&mine);
    lock.lock().await.unwrap().unlock().await.unwrap();
    eventually(SOON, "it is free", async || clusters.taken().await == 0).await;
    let cluster = &clusters.all[0];
    let mut is_abandoned = false;
    for _ in 0..10 {
        let known = cluster.owner(slot(NAME)).await;
        let mut masters = cluster.nodes[..3].iter();
        let to = masters
            .find(|it| it.id != known.id)
            .expect("there are three");
        cluster.move_slot(slot(NAME), to).await;
        known.redis().await.reset_stats().await;
        // Two instances do not answer, so the call is undecided.
        let others = clusters.all[1..].iter().map(|other| &other.nodes[0]);
        let others = others.map(|node| node.proxy().on(named("EVALSHA"), Action::DropReply));
        let nodes = cluster.nodes.iter();
        let nodes = nodes.map(|node| node.proxy().on(named("CLUSTER"), Action::DropReply));
        let silent: Vec<_> = others.chain(nodes).map(Rule::always).collect();

        let mut left = Box::pin(lock.try_lock().into_future());
        let granted = async {
            while !to.redis().await.exists(NAME).await {
                tokio::time::sleep(ms(5)).await;
            }
        };
        let mut is_over = tokio::select! {
            _ = &mut left => true,
            () = granted => false,
        };
        if !is_over {
            // The client reads the answer, and asks the cluster.
            is_over = tokio::time::timeout(ms(100), &mut left).await.is_ok();
        }
        let errors = known.redis().await.errorstats().await;
        if !is_over && errors.contains_key("MOVED") {
            is_abandoned = true;
            eventually(SOON, "it is free, long before the lease ends", async || {
                !to.redis().await.exists(NAME).await
            })
            .await;
            drop(left);
            break;
        }
        // On a busy machine the call may end earlier, or the client may have learned of the move. All answer again, so
        // that the next call begins as this one did.
        drop(left);
        silent.iter().for_each(Rule::remove);
        lock.lock().await.unwrap().unlock().await.unwrap();
        eventually(SOON, "it is free", async || clusters.taken().await == 0).await;
    }
    assert!(is_abandoned, "no call was abandoned after its grant");
    shut_down(mine).await;
}

pub(super) struct Clusters {
    pub(super) all: Vec<Cluster>,
}

impl Clusters {
    pub(super) async fn start() -> Self {
        let shapes = [(3, 1), (1, 0), (1, 0)];
        let starts = shapes.map(|(masters, replicas)| Cluster::that_elects(masters, replicas));
        let all = join_all(starts).await;
        Self { all }
    }

    /// With a proxy in front of each node.
    pub(super) async fn behind_proxies() -> Self {
        let shapes = [(3, 1), (1, 0), (1, 0)];
        let starts = shapes.map(|(masters, replicas)| {
            let cluster = Cluster::builder(masters, replicas);
            cluster.announce_proxies().elects().start()
        });
        let all = join_all(starts).await;
        Self { all }
    }

    async fn clients(&self) -> Vec<Client> {
        self.clients_with(|builder| builder).await
    }

    /// One client for each cluster.
    pub(super) async fn clients_with(
        &self,
        set: impl Fn(ClientBuilder) -> ClientBuilder,
    ) -> Vec<Client> {
        let clients = self.all.iter().map(async |cluster| {
            let builder = set(Client::builder().url(cluster.url()));
            builder.build().await.unwrap()
        });
        join_all(clients).await
    }

    /// On how many of them the lock's key exists.
    async fn taken(&self) -> usize {
        let mut taken = 0;
        for cluster in &self.all {
            let redis = cluster.owner_of(NAME).await.redis().await;
            taken += usize::from(redis.exists(NAME).await);
        }
        taken
    }
}

pub(super) fn lock(clients: &[Client]) -> RedLock {
    RedLock::new(clients.iter().map(|client| client.lock(NAME)))
}

pub(super) async fn shut_down(clients: impl IntoIterator<Item = Client>) {
    for client in clients {
        client.shutdown().await;
    }
}

/// Twelve tasks of three clients.
struct Crowd {
    clients: Vec<Client>,
    cell: Cell,
    taken: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

impl Crowd {
    async fn start(clusters: &Clusters) -> Self {
        let mut crowd = Self {
            clients: Vec::new(),
            cell: Cell::new(),
            taken: Arc::default(),
            over: Arc::default(),
            tasks: JoinSet::new(),
        };
        for _ in 0..3 {
            let clients = clusters.clients_with(|it| it.watchdog_lease(LEASE)).await;
            for _ in 0..4 {
                let lock = lock(&clients).max_lease(LEASE);
                let (cell, taken, over) =
                    (crowd.cell.clone(), crowd.taken.clone(), crowd.over.clone());
                crowd.tasks.spawn(async move {
                    while !over.load(Ordering::SeqCst) {
                        let guard = match lock.lock().await {
                            Ok(guard) => guard,
                            Err(error) if error.is_retriable() => continue,
                            Err(error) => panic!("{error:?}"),
                        };
                        if cell.bump_while(ms(1), || guard.is_valid()).await {
                            taken.fetch_add(1, Ordering::SeqCst);
                        }
                        let _unlocked_or_lost = guard.unlock().await;
                    }
                });
            }
            crowd.clients.extend(clients);
        }
        crowd.goes_on().await;
        crowd
    }

    async fn goes_on(&self) {
        let before = (self.taken.load(Ordering::SeqCst), Instant::now());
        eventually(LONG, "the tasks acquire the lock again", async || {
            self.taken.load(Ordering::SeqCst) >= before.0 + 24
        })
        .await;
        println!("acquired again after {:?}", before.1.elapsed());
    }

    async fn end(mut self) {
        self.over.store(true, Ordering::SeqCst);
        soon("all end", async {
            while self.tasks.join_next().await.transpose().unwrap().is_some() {}
        })
        .await;
        let taken = self.taken.load(Ordering::SeqCst);
        assert_eq!(self.cell.value(), taken as i64, "an update was lost");
        println!("{taken} turns");
        shut_down(self.clients).await;
    }
}

const NAME: &str = "l";
const LEASE: Duration = Duration::from_secs(8);
