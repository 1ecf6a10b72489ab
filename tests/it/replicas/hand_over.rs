//! Locks that a client hands over from one owner to the next.

use futures_util::future::join_all;
use lockdog::Owner;
use lockdog::config::Replicas;

use super::{SOON, acquired, ms, not_replicated, requiring, requiring_patiently};
use crate::hand_over::transfers;
use crate::support::{Replicated, eventually};
use crate::turn::waiter;

/// A hand-over is the first acquire of the next owner, so replicas have to acknowledge it too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handed_over_lock_is_on_the_replica_when_the_next_owner_has_it() {
    let all = Replicated::start_behind(1, ms(30)).await;
    let client = requiring_patiently(&all, Replicas::Count(1)).await;
    let replica = all.replicas[0].redis().await;
    let mut guard = client.lock("l").lock().owner(&Owner::new()).await.unwrap();
    for round in 0..5 {
        let request = client.lock("l").lock().owner(&Owner::new());
        let next = tokio::spawn(async move { request.await });
        tokio::time::sleep(ms(5)).await;
        guard.unlock().await.unwrap();
        guard = next.await.unwrap().unwrap();
        let on_master = all.redis.hash("l").await;
        assert_eq!(replica.hash("l").await, on_master, "round {round}");
    }
    guard.unlock().await.unwrap();
    all.redis.assert_clean().await;
}

/// The acknowledgement takes longer than a receiver has to accept a hand-over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_without_acknowledgement_is_undone() {
    let all = Replicated::start(1).await;
    let client = requiring(&all, Replicas::Count(1)).await;
    let guard = acquired(&client.lock("l")).await;
    let request = client.lock("l").lock().owner(&Owner::new());
    let next = tokio::spawn(async move { request.await });
    // The waiter is polled and idle, so the lock is handed to it.
    let is_there = async || client.stats().waiters == 1;
    eventually(SOON, "it waits", is_there).await;
    tokio::time::sleep(ms(100)).await;
    all.replicas[0].pause();
    guard.unlock().await.unwrap();
    assert!(not_replicated(next.await.unwrap()).is_undone());
    assert!(!all.redis.exists("l").await);
}

/// A hand-over that is acknowledged late is a valid grant, although other hand-overs must be accepted
/// within the poll cap.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_may_be_acknowledged_after_the_poll_cap() {
    let all = Replicated::start(1).await;
    let ack = lockdog::config::ReplicaAck::require(Replicas::Count(1)).timeout(SOON);
    let builder = lockdog::Client::builder().url(all.master.url());
    let builder = builder.replica_ack(ack).command_timeout(SOON);
    let client = super::build(builder.poll_cap(ms(200))).await;
    let lock = client.lock("l");
    // On a busy machine a waiter may not be polled in time to be handed the lock. Then it starts again.
    let (next, others) = loop {
        let guard = lock.lock().owner(&Owner::new()).await.unwrap();
        let next = waiter(&lock);
        eventually(SOON, "one waits", async || client.stats().waiters == 1).await;
        let others = waiter(&lock);
        eventually(SOON, "two wait", async || client.stats().waiters == 2).await;
        all.replicas[0].pause();
        let before = transfers(&all.redis).await;
        guard.unlock().await.unwrap();
        if transfers(&all.redis).await > before {
            break (next, others);
        }
        all.replicas[0].resume();
        let turns = [next, others].map(async |it| it.await.unwrap().unlock().await.unwrap());
        join_all(turns).await;
    };
    let field = all.redis.hash("l").await;
    assert_eq!(field.len(), 1, "{field:?}");
    tokio::time::sleep(ms(2500)).await;
    assert_eq!(all.redis.hash("l").await, field);
    all.replicas[0].resume();
    let guard = next.await.unwrap();
    assert_eq!(all.redis.hash("l").await, field);
    assert!(!others.is_finished());
    guard.unlock().await.unwrap();
    others.await.unwrap().unlock().await.unwrap();
    eventually(SOON, "nothing is left", async || {
        all.redis.keys().await.is_empty()
    })
    .await;
}
