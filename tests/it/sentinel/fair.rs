//! A queue of waiters while another server becomes the master.

use lockdog::error::LostReason;
use lockdog::{Client, Owner};
use tokio::task::JoinSet;

use super::{SOON, ms};
use crate::fair::{visit, visit_in_rounds};
use crate::support::prelude::LONG;
use crate::support::{Cell, Sentinels, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_queue_of_a_fair_lock_survives_a_failover_in_its_order() {
    let all = Sentinels::start().await;
    // No waiter is dropped, however long a failover takes on a busy machine.
    let connect = async || {
        let client = Client::builder().url(all.url()).fair_absence(LONG);
        client.build().await.unwrap()
    };
    let holder = connect().await;
    let others = [connect().await, connect().await];
    let held = holder
        .fair_lock("door")
        .lock()
        .lease(SOON * 4)
        .await
        .unwrap();
    let mut waiters = Vec::new();
    let view = all.servers[0].redis().await;
    for number in 0..4 {
        let request = others[number % 2].fair_lock("door").try_lock();
        let request = request.owner(&Owner::new()).wait(SOON * 4);
        waiters.push(tokio::spawn(async move { request.await }));
        eventually(SOON, "it waits in the queue", async || {
            view.ask::<usize>(&["LLEN", QUEUE]).await == number + 1
        })
        .await;
    }
    let before: Vec<String> = view.ask(&["LRANGE", QUEUE, "0", "-1"]).await;
    for replica in &all.servers[1..] {
        let replica = replica.redis().await;
        eventually(SOON, "the queue is replicated", async || {
            replica.ask::<usize>(&["LLEN", QUEUE]).await == 4
        })
        .await;
    }
    let master = all.failover().await.redis().await;
    let after: Vec<String> = master.ask(&["LRANGE", QUEUE, "0", "-1"]).await;
    assert_eq!(after, before);
    // The first waiter of each client polls at the new master, and the old master has stopped granting.
    eventually(SOON, "the waiters are subscribed there", async || {
        let channels = master.channels().await;
        let listens = |entry: &String| channels.iter().any(|it| it.ends_with(entry));
        before[..2].iter().all(listens)
    })
    .await;
    all.await_demotion(&all.servers[0]).await;
    held.unlock().await.unwrap();
    let turns = waiters
        .into_iter()
        .zip(&before)
        .map(async |(waiter, entry)| {
            let guard = tokio::time::timeout(SOON, waiter).await.expect("in time");
            let guard = guard.unwrap().unwrap().expect("it is first in the queue");
            // On a busy machine the sentinels may have switched once more.
            eventually(SOON, "it is the holder", async || {
                let master = all.master().await.redis().await;
                master.hash("door").await.contains_key(entry)
            })
            .await;
            guard.unlock().await.unwrap();
        });
    futures_util::future::join_all(turns).await;
    eventually(SOON, "nothing is left", async || {
        let master = all.master().await.redis().await;
        !master.exists("door").await && !master.exists(QUEUE).await
    })
    .await;
    for client in others.into_iter().chain([holder]) {
        client.shutdown().await;
    }
}

/// The replicas have neither the holder nor the queue when the master dies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_whose_queue_the_new_master_does_not_know_get_the_lock_there() {
    let all = Sentinels::start().await;
    // No regular renewal comes during the test.
    let connect = async || {
        let client = Client::builder().url(all.url()).watchdog_lease(LONG);
        let client = client.poll_cap(ms(200)).fair_absence(LONG);
        client.build().await.unwrap()
    };
    let clients = [connect().await, connect().await, connect().await];
    for client in &clients {
        // It has connected to this server before.
        crate::turn::turn(&client.fair_lock("other")).await;
    }
    let [holder, others @ ..] = &clients;
    all.await_replication().await;
    for replica in &all.servers[1..] {
        replica.pause();
    }
    // The replicas are disconnected, so that no further write waits in their sockets.
    let view = all.servers[0].redis().await;
    let cut = view.cut_replicas().await;
    assert_eq!(cut, 2);
    let held = holder.fair_lock("door").lock().await.unwrap();
    let cell = Cell::new();
    let mut waiters = JoinSet::new();
    for number in 0..4 {
        let lock = others[number % 2].fair_lock("door");
        waiters.spawn(visit(lock, cell.clone()));
        eventually(SOON, "it is in the queue", async || {
            view.ask::<usize>(&["LLEN", QUEUE]).await == number + 1
        })
        .await;
    }
    all.servers[0].kill();
    for replica in &all.servers[1..] {
        replica.resume();
    }
    let master = all.await_switch_from(all.servers[0].port()).await;
    let lost = tokio::time::timeout(SOON, held.lost()).await;
    let lost = lost.expect("the holder learns of the loss well within a third of its lease");
    assert_eq!(lost.reason(), LostReason::NotOurs);
    let waited = tokio::time::timeout(SOON, waiters.join_all()).await;
    waited.expect("each has its turn");
    assert!(held.unlock().await.unwrap_err().is_lost());
    visit_in_rounds(clients.iter().map(|it| it.fair_lock("door")), &cell).await;
    cell.assert_exclusive(4 + 3 * 5);
    let master = master.redis().await;
    eventually(SOON, "nothing is left", async || {
        !master.exists("door").await && !master.exists(QUEUE).await
    })
    .await;
    for client in clients {
        client.shutdown().await;
    }
}

const QUEUE: &str = "redisson_lock_queue:{door}";
