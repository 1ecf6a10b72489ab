//! A cluster of which a part or the whole is down. Calls fail within their time limits, and holders are
//! notified at their deadlines.

use std::future::IntoFuture;
use std::time::Instant;

use lockdog::error::LostReason;
use lockdog::{Client, Guard, Owner, Unlocked};

use super::{LONG, SOON, ms, soon};
use crate::support::cluster::{meet, slot, take_slots};
use crate::support::{Cluster, Data, eventually, timed, until_ok};
use crate::turn::turn;

/// By default a cluster without one of its masters refuses every command (CLUSTERDOWN). No call hangs, and
/// all calls succeed again when the master is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_fail_in_time_while_the_cluster_is_down_and_work_after_it() {
    let cluster = Cluster::start(3, 0).await;
    let lease = ms(4500);
    let client = Client::builder().url(cluster.url()).watchdog_lease(lease);
    let client = client.command_timeout(ms(1000));
    let client = until_ok(SOON, async || client.clone().build().await).await;
    let [gone, well, _] = &cluster.nodes[..] else {
        panic!("there are three");
    };
    let names = [
        cluster.names_at(gone, "l", 3).await,
        cluster.names_at(well, "l", 3).await,
    ];
    let mut guards = Vec::new();
    for [watched, leased, _] in names.clone().map(|it| <[String; 3]>::try_from(it).unwrap()) {
        let owner = Owner::new();
        for request in [
            client.lock(&watched).try_lock(),
            client.lock(&leased).try_lock().lease(LONG),
        ] {
            let guard = request.wait(SOON).owner(&owner).await.unwrap();
            guards.push(guard.expect("it is free"));
        }
    }
    gone.server.restart(Data::Kept).await;
    // The master kept its data, and the connections to it are new.
    eventually(SOON * 3, "the cluster is healthy", async || {
        client.lock(&names[0][2]).is_locked().await.is_ok()
    })
    .await;
    gone.server.kill();
    eventually(SOON * 3, "the cluster is down", async || {
        let info: Option<String> = well.try_ask("CLUSTER INFO").await;
        info.is_some_and(|it| it.contains("cluster_state:fail"))
    })
    .await;
    for name in [&names[0][2], &names[1][2]] {
        let lock = client.lock(name);
        let (refused, took) = timed(lock.lock().into_future()).await;
        println!("lock: {refused:?} after {took:?}");
        assert!(refused.unwrap_err().is_retriable() && took < SOON);
        let (refused, took) = timed(lock.try_lock().into_future()).await;
        println!("try_lock: {refused:?} after {took:?}");
        assert!(refused.is_err_and(|it| it.is_retriable()) && took < SOON);
        let (refused, took) = timed(lock.try_lock().wait(ms(1500)).into_future()).await;
        println!("try_lock for 1.5 s: {refused:?} after {took:?}");
        assert!(refused.is_err_and(|it| it.is_retriable()) && took < SOON);
    }
    // The renewed holds end at their deadlines. The holds with a fixed lease stay valid.
    for guard in guards.iter().step_by(2) {
        let lost = soon("the guard reports the loss", guard.lost()).await;
        assert_eq!(lost.reason(), LostReason::Deadline);
    }
    assert!(guards.iter().skip(1).step_by(2).all(Guard::is_valid));
    let kept = guards.swap_remove(3);
    let (unknown, took) = timed(guards.swap_remove(1).unlock()).await;
    println!("unlock: {unknown:?} after {took:?}");
    assert!(unknown.is_err() && took < SOON);
    drop(guards);

    gone.server.restart(Data::Lost).await;
    // The node has a new id and no slots.
    let id: String = gone.redis().await.ask(&["CLUSTER", "MYID"]).await;
    assert_ne!(id, gone.id);
    well.cmd(&format!("CLUSTER FORGET {}", gone.id)).await;
    cluster.nodes[2]
        .cmd(&format!("CLUSTER FORGET {}", gone.id))
        .await;
    take_slots(gone, 0, 5460).await;
    for other in [well, &cluster.nodes[2]] {
        meet(other, gone).await;
    }
    let began = Instant::now();
    for name in [&names[0][2], &names[1][2]] {
        eventually(SOON * 6, "locks are acquired again", async || match client
            .lock(name)
            .lock()
            .await
        {
            Ok(guard) => guard.unlock().await.is_ok(),
            Err(error) => {
                assert!(error.is_retriable(), "{error:?}");
                false
            }
        })
        .await;
    }
    println!("acquired again after {:?}", began.elapsed());
    drop(kept);
    for name in &names[1] {
        let redis = well.redis().await;
        eventually(SOON, "it is free", async || !redis.exists(name).await).await;
    }
    client.shutdown().await;
}

/// No server has the slot: the call waits until its deadline, or until a server has the slot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_wait_for_a_slot_without_an_owner() {
    let cluster = Cluster::start(3, 0).await;
    for node in &cluster.nodes {
        node.cmd("CONFIG SET cluster-require-full-coverage no")
            .await;
    }
    let client = Client::connect(cluster.url()).await.unwrap();
    let name = "orders";
    let owner = cluster.owner_of(name).await;
    let all = format!("CLUSTER DELSLOTS {}", slot(name));
    for node in &cluster.nodes {
        node.cmd(&all).await;
    }
    let lock = client.lock(name);
    let patience = ms(700);
    let (refused, took) = timed(lock.try_lock().wait(patience).into_future()).await;
    println!("{refused:?} after {took:?}");
    assert!(refused.is_err_and(|it| it.is_retriable()));
    assert!(took >= patience && took < patience + SOON, "{took:?}");
    // The other slots are not affected.
    let elsewhere = &cluster.names_at(&owner, "l", 1).await[0];
    turn(&client.lock(elsewhere)).await;
    let waiting = tokio::spawn(lock.try_lock().wait(SOON).into_future());
    tokio::time::sleep(patience).await;
    assert!(!waiting.is_finished());
    owner.cmd(&format!("CLUSTER ADDSLOTS {}", slot(name))).await;
    let guard = soon("it is acquired", waiting).await.unwrap().unwrap();
    assert_eq!(guard.unwrap().unlock().await.unwrap(), Unlocked::Released);
    client.shutdown().await;
}

/// A master freezes and no replica replaces it. Calls for locks of other masters are as fast as usual.
/// Calls for its own locks wait until their deadlines.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_master_does_not_delay_locks_of_other_masters() {
    let cluster = Cluster::start(3, 0).await;
    for node in &cluster.nodes {
        node.cmd("CONFIG SET cluster-node-timeout 600000").await;
    }
    let (lease, timeout) = (ms(6000), ms(2000));
    let client = Client::builder().url(cluster.url()).watchdog_lease(lease);
    let client = client.command_timeout(timeout);
    let client = until_ok(SOON, async || client.clone().build().await).await;
    let [frozen, well, other] = &cluster.nodes[..] else {
        panic!("there are three");
    };
    let there = &cluster.names_at(frozen, "l", 1).await[0];
    let mut here = cluster.names_at(well, "l", 10).await;
    here.extend(cluster.names_at(other, "l", 10).await);
    let lost = until_ok(SOON, async || client.lock(there).lock().await).await;
    let mut held = Vec::new();
    for name in &here[1..] {
        held.push(until_ok(SOON, async || client.lock(name).lock().await).await);
    }
    frozen.server.pause();
    let began = Instant::now();
    let mut durations = Vec::new();
    while began.elapsed() < lease * 2 {
        let turn = async {
            let guard = client.lock(&here[0]).lock().await?;
            guard.unlock().await
        };
        let (turn, took) = timed(turn).await;
        if let Err(error) = turn {
            println!("{error} after {took:?}");
        }
        durations.push(took);
        tokio::time::sleep(ms(20)).await;
    }
    durations.sort_unstable();
    // A busy machine delays some calls. The frozen master would delay all of them.
    let usual = durations[durations.len() / 2];
    println!("{usual:?} for a lock elsewhere");
    assert!(usual < timeout / 2, "{durations:?}");
    assert!(held.iter().all(Guard::is_valid), "they are renewed");
    assert!(!lost.is_valid());
    let (refused, took) = timed(client.lock(there).lock().owner(&Owner::new()).into_future()).await;
    println!("{refused:?} after {took:?}");
    assert!(refused.is_err_and(|it| it.is_retriable()) && took < SOON);
    frozen.server.resume();
    eventually(SOON, "it is acquired", async || {
        let guard = client.lock(there).lock().owner(&Owner::new()).await;
        guard.is_ok()
    })
    .await;
    client.shutdown().await;
}
