//! The tokens of a fenced lock on a cluster. FE1 is an invariant of `docs/design.md`.

use std::future::IntoFuture;

use lockdog::error::LostReason;
use lockdog::{Client, Guard, Lock, Owner};

use super::{LONG, SOON, ms, soon};
use crate::support::cluster::{names, slot};
use crate::support::{Cluster, eventually};

async fn fenced(cluster: &Cluster, name: &str) -> Lock {
    let client = Client::builder().url(cluster.url()).poll_cap(ms(200));
    client.build().await.unwrap().fenced_lock(name)
}

fn token(guard: &Guard) -> u64 {
    guard.token().expect("a fenced lock issues tokens")
}

fn counter(name: &str) -> String {
    format!("redisson_lock_token:{{{name}}}")
}

/// FE1: the nodes answer with TRYAGAIN while the counter is on one of them and the lock on the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_token_is_larger_after_the_slot_moved_key_by_key() {
    const SLOT: u16 = 42;
    let cluster = Cluster::start(3, 0).await;
    let to = &cluster.nodes[2];
    let name = &names("orders", 1, |it| it == SLOT)[0];
    let (ours, theirs) = (fenced(&cluster, name).await, fenced(&cluster, name).await);
    let held = ours.lock().lease(LONG).await.unwrap();
    let migration = cluster.migrate(SLOT, to).await;
    assert!(migration.move_key(&counter(name)).await);
    let waits = theirs.try_lock().owner(&Owner::new()).wait(LONG);
    let waiting = tokio::spawn(waits.into_future());
    eventually(SOON, "the waiter was refused", async || {
        migration.refused().await >= 1
    })
    .await;
    let last = token(&held);
    held.unlock().await.unwrap();
    migration.move_keys().await;
    migration.finish().await;
    let next = soon("the slot has moved", waiting).await.unwrap().unwrap();
    let next = next.expect("it is free");
    assert!(token(&next) > last, "{} after {last}", token(&next));
    let redis = to.redis().await;
    let counted: u64 = redis.ask(&["GET", &counter(name)]).await;
    assert_eq!(counted, token(&next));
    next.unlock().await.unwrap();
}

/// FE1 while the servers' clocks agree: the last grant was not replicated, and its master dies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_token_is_larger_though_the_next_master_does_not_know_the_last_one() {
    let cluster = Cluster::start(3, 1).await;
    let (master, replica) = (&cluster.nodes[0], &cluster.nodes[3]);
    let name = &cluster.names_at(master, "orders", 1).await[0];
    let (ours, theirs) = (fenced(&cluster, name).await, fenced(&cluster, name).await);
    // Both clients have connected to this server before.
    for lock in [&ours, &theirs] {
        lock.lock().await.unwrap().unlock().await.unwrap();
    }
    replica.server.pause();
    // The master sends nothing more to the replica, so nothing waits in its socket.
    let cut = master.redis().await.cut_replicas().await;
    assert_eq!(cut, 1);
    let held = ours.lock().lease(LONG).await.unwrap();
    let last = token(&held);
    master.server.kill();
    replica.server.resume();
    cluster.take_over(slot(name), replica).await;
    let redis = replica.redis().await;
    let known: Option<u64> = redis.ask(&["GET", &counter(name)]).await;
    assert!(known.is_none_or(|known| known < last), "{known:?}, {last}");
    let lost = soon("the holder learns of the loss", held.lost()).await;
    assert_eq!(lost.reason(), LostReason::NotOurs);
    drop(held);
    let next = theirs.try_lock().owner(&Owner::new()).wait(LONG).await;
    let next = next.unwrap().expect("it is free");
    assert!(token(&next) > last, "{} after {last}", token(&next));
    next.unlock().await.unwrap();
}
