//! A client that hands a lock from task to task sees the waiters that listen at the lock's shard.

use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use lockdog::{Client, Owner};
use tokio::task::JoinSet;

use super::{load_scripts, sent, soon, without_polling};
use crate::faults::scripts::transfer;
use crate::support::{Cell, Cluster, eventually, timed};

/// A waiter that relies on messages gets the lock from a client whose tasks hand it to each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_clients_get_a_lock_that_one_client_hands_over() {
    let cluster = Cluster::builder(3, 0).announce_proxies().start().await;
    load_scripts(&cluster).await;
    let client = Client::connect(cluster.url()).await.unwrap();
    let other = without_polling(&cluster).await;
    let (cell, over, turns) = (
        Cell::new(),
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let lock = client.lock("l");
        let (cell, over, turns) = (cell.clone(), over.clone(), turns.clone());
        tasks.spawn(async move {
            while !over.load(Ordering::SeqCst) {
                let guard = lock.lock().await.unwrap();
                cell.bump_at_once().await;
                turns.fetch_add(1, Ordering::SeqCst);
                guard.unlock().await.unwrap();
            }
        });
    }
    eventually(super::SOON, "it is handed on", async || {
        sent(&cluster, transfer()) > 50
    })
    .await;
    let lock = other.lock("l");
    for _ in 0..5 {
        let owner = Owner::new();
        let (guard, took) = timed(soon(
            "the other has it",
            lock.lock().owner(&owner).into_future(),
        ))
        .await;
        println!("had after {took:?}");
        cell.bump_at_once().await;
        turns.fetch_add(1, Ordering::SeqCst);
        guard.unwrap().unlock().await.unwrap();
    }
    over.store(true, Ordering::SeqCst);
    soon("all end", tasks.join_all()).await;
    cell.assert_exclusive(turns.load(Ordering::SeqCst) as i64);
    println!(
        "{} hand-overs in {} turns",
        sent(&cluster, transfer()),
        cell.value()
    );
    cluster.assert_clean().await;
    for client in [client, other] {
        client.shutdown().await;
    }
}
