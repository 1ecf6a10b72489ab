//! A lock on a healthy cluster.

use std::collections::BTreeMap;
use std::future::IntoFuture;

use lockdog::config::ReplicaAck;
use lockdog::{Client, MultiLock, Owner, Unlocked};

use super::{LONG, SOON, load_scripts, ms, soon, waiter, without_polling};
use crate::support::cluster::{names, slot};
use crate::support::{Binary, Cluster, eventually, until_ok};
use crate::turn::turn;

/// The master of the slot executes the acquire, the re-entry and the release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_master_of_its_slot_keeps_a_lock() {
    let cluster = Cluster::start(3, 1).await;
    let client = Client::connect(cluster.url()).await.unwrap();
    for master in &cluster.nodes[..3] {
        let name = &cluster.names_at(master, "l", 1).await[0];
        let redis = master.redis().await;
        let lock = client.lock(name);
        let guard = lock.lock().await.unwrap();
        let holder = redis.hash(name).await;
        let (field, count) = holder.first_key_value().expect("one holder");
        assert!(field.starts_with(&client.id().to_string()));
        assert_eq!((holder.len(), &count[..]), (1, "1"));
        assert!((20_000..=30_000).contains(&redis.pttl(name).await));
        let inner = lock.lock().await.unwrap();
        assert_eq!(redis.hash(name).await[field], "2");
        let other = Owner::new();
        assert!(lock.try_lock().owner(&other).await.unwrap().is_none());
        assert!(lock.is_locked().await.unwrap() && lock.is_held().await.unwrap());
        assert_eq!(lock.hold_count().await.unwrap(), 2);
        let left = Unlocked::StillHeld { count: 1 };
        assert_eq!(inner.unlock().await.unwrap(), left);
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        assert!(!redis.exists(name).await && !lock.is_locked().await.unwrap());
        let brief = until_ok(SOON, async || lock.lock().lease(ms(1_000)).await).await;
        brief.forget();
        // Only the end of the lease frees it.
        let guard = soon("its lease ends", lock.lock().owner(&other).into_future());
        guard.await.unwrap().unlock().await.unwrap();
    }
    cluster.assert_clean().await;
    client.shutdown().await;
}

/// The acquire and the unlock are one command each, to the master of the slot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_uncontended_acquire_and_its_unlock_are_one_command_each() {
    let cluster = Cluster::start(3, 1).await;
    load_scripts(&cluster).await;
    let client = Client::builder().url(cluster.url());
    // No command is sent again.
    let client = client.replica_ack(ReplicaAck::Off).command_timeout(SOON);
    let client = client.build().await.unwrap();
    let master = &cluster.nodes[1];
    let name = &cluster.names_at(master, "l", 1).await[0];
    // Opens the connection.
    turn(&client.lock(name)).await;
    for node in &cluster.nodes {
        node.redis().await.reset_stats().await;
    }
    let guard = client.lock(name).lock().lease(LONG).await.unwrap();
    let acquired = spent(&cluster).await;
    assert_eq!(acquired, BTreeMap::from([("evalsha", [0, 1, 0])]));
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    let publish = match Binary::under_test() {
        Binary::Redis62 => "publish",
        _ => "spublish",
    };
    let unlocked = spent(&cluster).await;
    let expected = [("evalsha", [0, 2, 0]), (publish, [0, 1, 0])];
    assert_eq!(unlocked, BTreeMap::from(expected));
    client.shutdown().await;
}

/// How often each command of a lock was run by each of the masters.
async fn spent(cluster: &Cluster) -> BTreeMap<&'static str, [u64; 3]> {
    let mut spent: BTreeMap<_, [u64; 3]> = BTreeMap::new();
    for (number, node) in cluster.nodes[..3].iter().enumerate() {
        let stats = node.redis().await.commandstats().await;
        for name in ["eval", "evalsha", "publish", "spublish", "wait", "asking"] {
            if let Some(count) = stats.get(name) {
                spent.entry(name).or_default()[number] = *count;
            }
        }
    }
    spent
}

/// Servers from 7.0 on have sharded channels, older servers plain channels, as in Redisson. The waiters
/// belong to another client, and only messages wake them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sharded_messages_wake_waiters() {
    let cluster = Cluster::start(3, 0).await;
    let holder = Client::connect(cluster.url()).await.unwrap();
    let waiting = without_polling(&cluster).await;
    for master in &cluster.nodes {
        let name = &cluster.names_at(master, "l", 1).await[0];
        let redis = master.redis().await;
        let channel = format!("redisson_lock__channel:{{{name}}}");
        let (first, second) = (holder.lock(name), waiting.lock(name));
        let guard = first.lock().lease(LONG).await.unwrap();
        let waiter = waiter(&second);
        eventually(SOON, "it listens", async || {
            redis.channels().await == [channel.clone()]
        })
        .await;
        let sharded = redis.try_cmd(&["PUBSUB", "SHARDCHANNELS"]).await;
        let is_sharded = Binary::under_test() != Binary::Redis62;
        let expected = is_sharded.then(|| vec![channel.clone()]);
        let listed = sharded
            .ok()
            .map(|it| ::redis::from_redis_value(it).unwrap());
        assert_eq!(listed, expected);
        // The waiter has sent its second attempt.
        tokio::time::sleep(ms(50)).await;
        assert!(!waiter.is_finished());
        guard.unlock().await.unwrap();
        let guard = soon("it is woken", waiter).await.unwrap();
        guard.unlock().await.unwrap();
    }
    cluster.assert_clean().await;
    for client in [holder, waiting] {
        client.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn force_unlock_frees_a_lock_of_another_client_and_wakes_a_waiter() {
    let cluster = Cluster::start(3, 0).await;
    let holder = Client::connect(cluster.url()).await.unwrap();
    let forcing = Client::connect(cluster.url()).await.unwrap();
    let waiting = without_polling(&cluster).await;
    let name = "orders";
    let redis = cluster.owner_of(name).await.redis().await;
    let guard = holder.lock(name).lock().lease(LONG).await.unwrap();
    let waiter = waiter(&waiting.lock(name));
    eventually(SOON, "it listens", async || {
        !redis.channels().await.is_empty()
    })
    .await;
    tokio::time::sleep(ms(50)).await;
    assert!(forcing.lock(name).force_unlock().await.unwrap());
    let next = soon("it is woken", waiter).await.unwrap();
    assert!(guard.unlock().await.is_err());
    next.unlock().await.unwrap();
    assert!(!forcing.lock(name).force_unlock().await.unwrap());
    for client in [holder, forcing, waiting] {
        client.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_multi_lock_over_all_masters_is_acquired_and_released_as_a_whole() {
    let cluster = Cluster::start(3, 0).await;
    let client = Client::connect(cluster.url()).await.unwrap();
    let other = without_polling(&cluster).await;
    let mut members = Vec::new();
    for master in &cluster.nodes {
        members.extend(cluster.names_at(master, "m", 2).await);
    }
    // Two of the locks have the same slot.
    let shared = slot(&members[0]);
    members.push(names("same", 1, |it| it == shared).remove(0));
    let multi = |client: &Client| MultiLock::new(members.iter().map(|name| client.lock(name)));
    let existing = async || {
        let mut existing = 0;
        for name in &members {
            let redis = cluster.owner_of(name).await.redis().await;
            existing += usize::from(redis.exists(name).await);
        }
        existing
    };
    let guard = multi(&client).lock().await.unwrap();
    assert_eq!(existing().await, members.len());
    for name in &members {
        assert!(other.lock(name).try_lock().await.unwrap().is_none());
    }
    assert!(multi(&other).try_lock().await.unwrap().is_none());
    let waiting = multi(&other);
    let waiting = tokio::spawn(async move { waiting.lock().owner(&Owner::new()).await });
    tokio::time::sleep(ms(300)).await;
    assert!(!waiting.is_finished());
    guard.unlock().await.unwrap();
    let guard = soon("the other has it", waiting).await.unwrap().unwrap();
    assert_eq!(existing().await, members.len());
    // Another client frees one of them: the multi lock is lost, and its other locks are released.
    let freed = client.lock(&members[3]).force_unlock().await.unwrap();
    assert!(freed);
    drop(guard);
    eventually(SOON, "all are free", async || existing().await == 0).await;

    // If an owner holds one of them, the other owner gets none of them.
    let held = client.lock(&members[5]).lock().await.unwrap();
    assert!(multi(&other).try_lock().await.unwrap().is_none());
    eventually(SOON, "one is left", async || existing().await == 1).await;
    held.unlock().await.unwrap();
    cluster.assert_clean().await;
    for client in [client, other] {
        client.shutdown().await;
    }
}

/// The shutdown of a client and the drop of its guards release its locks at all masters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_and_drops_release_at_every_master() {
    let cluster = Cluster::start(3, 0).await;
    let client = Client::connect(cluster.url()).await.unwrap();
    let all = names("l", 30, |_| true);
    let mut guards = Vec::new();
    for name in &all {
        let lock = client.lock(name);
        guards.push(lock.lock().owner(&Owner::new()).await.unwrap());
    }
    let existing = async || {
        let mut existing = 0;
        for node in &cluster.nodes {
            existing += node.redis().await.keys().await.len();
        }
        existing
    };
    assert_eq!((existing().await, client.holds().len()), (30, 30));
    guards.truncate(15);
    eventually(SOON, "half of the locks are free", async || {
        existing().await == 15
    })
    .await;
    client.shutdown().await;
    assert_eq!(existing().await, 0);
    assert!(guards.iter().all(|guard| !guard.is_valid()));
}
