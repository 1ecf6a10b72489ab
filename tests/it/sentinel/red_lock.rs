//! A RedLock of three instances: the sentinels' master, and two single servers.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockdog::error::InstanceState;
use lockdog::{Client, Guard, Owner, RedLock, Unlocked};

use super::{SOON, ms};
use crate::red_lock::decided;
use crate::support::sentinels::{MASTER, is_master};
use crate::support::{RedisServer, Sentinels, eventually};

/// The sentinels' master is killed, and no other owner acquires the lock meanwhile. The new master has
/// the lock, but may have forgotten others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_red_lock_is_held_during_a_sentinel_failover() {
    let test = Fixture::start().await;
    let (mine, yours) = (test.clients().await, test.clients().await);
    let held = lock(&mine, NAME).lock().await.unwrap();
    eventually(SOON, "all count", async || held.margin() == 1).await;
    let other = lock(&yours, NAME);
    assert!(decided(|| other.try_lock()).await.is_none());
    let contender = tokio::spawn({
        let other = other.clone();
        async move { first_had(&other).await }
    });

    test.all.await_replication().await;
    let old = &test.all.servers[0];
    let killed = Instant::now();
    old.kill();
    let new = test.all.await_switch_from(old.port()).await;
    // The two others are a quorum for each new caller. All clients check at the same time, because the
    // new master counts again after a lease.
    let looks = [(&mine, "first"), (&yours, "second")].map(async |(clients, name)| {
        let lock = lock(clients, name);
        eventually(SOON, "the new master is known not to count", async || {
            let guard = first_had(&lock).await;
            let state = state_at_sentinels(&guard);
            assert!(!matches!(state, InstanceState::Acquired), "it counts");
            assert_eq!(guard.margin(), 0);
            assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
            // Until they have found the new master, they cannot ask it.
            matches!(state, InstanceState::Quarantined { .. })
        })
        .await;
    });
    join_all(looks).await;
    println!("does not count: seen after {:?}", killed.elapsed());
    eventually(LEASE * 4, "all count", async || {
        assert!(held.is_valid() && !contender.is_finished());
        let guard = first_had(&lock(&yours, "another")).await;
        let margin = guard.margin();
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        margin == 1 && held.margin() == 1
    })
    .await;
    println!("counts again after {:?}", killed.elapsed());
    // The clients detect the switch later than this.
    assert!(killed.elapsed() > LEASE, "{:?}", killed.elapsed());
    assert!(new.redis().await.exists(NAME).await);
    assert!(held.is_valid() && !contender.is_finished(), "two have it");
    assert_eq!(held.unlock().await.unwrap(), Unlocked::Released);
    let next = tokio::time::timeout(SOON, contender).await;
    let next = next.expect("the other has it").unwrap();
    assert_eq!(next.unlock().await.unwrap(), Unlocked::Released);
    shut_down(mine.into_iter().chain(yours)).await;
}

/// A promoted replica without the lock does not count until every lock that it may have forgotten
/// has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_lost_a_lock_allows_no_second_quorum() {
    let test = Fixture::start().await;
    let clients = test.clients().await;
    let lock = lock(&clients, NAME);
    lock.lock().await.unwrap().unlock().await.unwrap();
    let (old, replicas) = test.all.servers.split_first().unwrap();
    for replica in replicas {
        replica.pause();
    }
    // The replicas are disconnected, so that no further write waits in their sockets.
    let cut = old.redis().await.cut_replicas().await;
    assert_eq!(cut, 2);
    // An owner that holds or may hold two of three.
    let others = test.clients().await;
    let long = LEASE * 30;
    let forgotten = others[0].lock(NAME).lock().lease(long).await.unwrap();
    let kept = others[1].lock(NAME).lock().lease(long).await.unwrap();
    assert!(decided(|| lock.try_lock()).await.is_none());
    let killed = Instant::now();
    old.kill();
    for replica in replicas {
        replica.resume();
    }
    let new = test.all.await_switch_from(old.port()).await;
    assert!(!new.redis().await.exists(NAME).await, "it was replicated");
    let guard = tokio::time::timeout(SOON, first_had(&lock)).await;
    let guard = guard.expect("it counts");
    println!("had after {:?}", killed.elapsed());
    // The client detects the switch later than this.
    assert!(killed.elapsed() > LEASE, "{:?}", killed.elapsed());
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    assert!(kept.is_valid());
    drop((forgotten, kept));
    shut_down(clients.into_iter().chain(others)).await;
}

/// The old master continues as a replica of the new one and later replaces it, as the same process with
/// the same run id. Each time the new master lacks the latest grants of the old one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_and_a_switch_back_allow_no_second_quorum() {
    let test = Fixture::start().await;
    let servers = &test.all.servers;
    let never = ["CONFIG", "SET", "replica-priority", "0"];
    servers[2].redis().await.cmd(&never).await;
    let (clients, others) = (test.clients().await, test.clients().await);
    let lock = lock(&clients, NAME);
    lock.lock().await.unwrap().unlock().await.unwrap();
    for (old, new) in [(&servers[0], &servers[1]), (&servers[1], &servers[0])] {
        let redis = old.redis().await;
        // Else the new master could still have the lock from its time as the master.
        test.all.await_replication().await;
        assert!(!new.redis().await.exists(NAME).await, "it has old data");
        redis.reset_stats().await;
        // The master sends its replicas no further writes.
        let keep = ["ACL", "SETUSER", "default", "-psync", "-sync"];
        redis.cmd(&keep).await;
        let cut = redis.cut_replicas().await;
        assert_eq!(cut, 2);
        // An owner that holds or may hold two of three.
        let [first, second] = [0, 1].map(|at| others[at].lock(NAME).lock().lease(LEASE * 30));
        let (forgotten, kept) = (first.await.unwrap(), second.await.unwrap());
        assert!(decided(|| lock.try_lock()).await.is_none());
        assert!(redis.exists(NAME).await);
        eventually(SOON, "it refuses a replica", async || {
            redis.errorstats().await.contains_key("NOPERM")
        })
        .await;
        let began = Instant::now();
        assert_eq!(test.all.failover_at_once().await.port(), new.port());
        assert!(!new.redis().await.exists(NAME).await, "it was replicated");
        let give = ["ACL", "SETUSER", "default", "+psync", "+sync"];
        old.redis().await.cmd(&give).await;
        let guard = tokio::time::timeout(SOON * 2, first_had(&lock)).await;
        let guard = guard.expect("it counts again");
        println!("had after {:?}", began.elapsed());
        // The client detects the switch later than this.
        assert!(began.elapsed() > LEASE, "{:?}", began.elapsed());
        assert!(kept.is_valid());
        eventually(SOON * 4, "it runs as a replica", async || {
            is_master(old).await == Some(false)
        })
        .await;
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        drop(forgotten);
        assert_eq!(kept.unlock().await.unwrap(), Unlocked::Released);
    }
    shut_down(clients.into_iter().chain(others)).await;
}

struct Fixture {
    all: Sentinels,
    singles: [RedisServer; 2],
}

impl Fixture {
    async fn start() -> Self {
        let (all, first, second) = tokio::join!(
            Sentinels::start(),
            RedisServer::start(),
            RedisServer::start()
        );
        let singles = [first, second];
        Self { all, singles }
    }

    /// One client for each instance, the sentinels' first.
    async fn clients(&self) -> Vec<Client> {
        let urls = [self.all.url(), self.singles[0].url(), self.singles[1].url()];
        let clients = urls.map(|url| Client::builder().url(url).watchdog_lease(LEASE).build());
        let clients = join_all(clients).await.into_iter();
        clients.map(Result::unwrap).collect()
    }
}

fn state_at_sentinels(guard: &Guard) -> InstanceState {
    let server = format!("sentinel master {MASTER}");
    let mut instances = guard.instances().into_iter();
    let its = instances.find(|it| it.server == server);
    its.expect("one is the sentinels'").state
}

fn lock(clients: &[Client], name: &str) -> RedLock {
    RedLock::new(clients.iter().map(|client| client.lock(name))).max_lease(LEASE)
}

/// Tries until the lock is acquired; each error on the way is retriable.
async fn first_had(lock: &RedLock) -> Guard {
    loop {
        match lock.try_lock().owner(&Owner::new()).await {
            Ok(Some(guard)) => return guard,
            Ok(None) => {}
            Err(error) => assert!(error.is_retriable(), "{error:?}"),
        }
        tokio::time::sleep(ms(20)).await;
    }
}

async fn shut_down(clients: impl IntoIterator<Item = Client>) {
    for client in clients {
        client.shutdown().await;
    }
}

const NAME: &str = "l";
const LEASE: Duration = Duration::from_secs(8);
