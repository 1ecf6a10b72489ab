//! Locks that one owner of a client hands to the next.

use lockdog::Owner;
use lockdog::config::Replicas;

use super::{SOON, ms, not_replicated, requiring};
use crate::support::{Replicated, eventually};

/// A hand-over is the first acquire of the next owner, so replicas have to acknowledge it too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handed_over_lock_is_on_the_replica_when_the_next_owner_has_it() {
    let all = Replicated::start_behind(1, ms(30)).await;
    let client = requiring(&all, Replicas::Count(1)).await;
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

/// Acceptance list 12, for a hand-over; for longer than a receiver has to take it in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_without_acknowledgement_is_undone() {
    let all = Replicated::start(1).await;
    let client = requiring(&all, Replicas::Count(1)).await;
    let guard = client.lock("l").lock().owner(&Owner::new()).await.unwrap();
    let request = client.lock("l").lock().owner(&Owner::new());
    let next = tokio::spawn(async move { request.await });
    // It is there, and idle, so that the lock is handed to it.
    tokio::time::sleep(ms(100)).await;
    all.replicas[0].pause();
    guard.unlock().await.unwrap();
    assert!(not_replicated(next.await.unwrap()).is_undone());
    assert!(!all.redis.exists("l").await);
}

/// A hand-over that is acknowledged late is no less of a grant, though others have to take a lock in
/// within the poll cap.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_may_be_acknowledged_after_the_poll_cap() {
    let all = Replicated::start(1).await;
    let ack = lockdog::config::ReplicaAck::require(Replicas::Count(1)).timeout(SOON);
    let builder = lockdog::Client::builder().url(all.master.url());
    let builder = builder.replica_ack(ack).command_timeout(SOON);
    let client = super::build(builder.poll_cap(ms(200))).await;
    let guard = client.lock("l").lock().owner(&Owner::new()).await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..2 {
        let request = client.lock("l").lock().owner(&Owner::new());
        waiting.push(tokio::spawn(async move { request.await }));
        tokio::time::sleep(ms(200)).await;
    }
    let others = waiting.pop().unwrap();
    all.replicas[0].pause();
    guard.unlock().await.unwrap();
    let field = all.redis.hash("l").await;
    assert_eq!(field.len(), 1, "{field:?}");
    tokio::time::sleep(ms(2500)).await;
    assert_eq!(all.redis.hash("l").await, field);
    all.replicas[0].resume();
    let guard = waiting.pop().unwrap().await.unwrap().unwrap();
    assert_eq!(all.redis.hash("l").await, field);
    assert!(!others.is_finished());
    guard.unlock().await.unwrap();
    others.await.unwrap().unwrap().unlock().await.unwrap();
    eventually(SOON, "nothing is left", async || {
        all.redis.keys().await.is_empty()
    })
    .await;
}
