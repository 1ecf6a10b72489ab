//! A permit counts only if the replicas acknowledge it.

use lockdog::config::Replicas;

use super::{SOON, not_replicated, requiring, requiring_patiently};
use crate::support::{Replicated, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn granted_permits_are_already_on_the_replica_or_released() {
    let all = Replicated::start(1).await;
    let client = requiring_patiently(&all, Replicas::Count(1)).await;
    let seats = client.permit_semaphore("seats");
    seats.set_permits(3).await.unwrap();
    let replica = all.replicas[0].redis().await;
    for _ in 0..5 {
        let three = seats.acquire_many(3).await.unwrap();
        assert_eq!(replica.ask::<u32>(&["ZCARD", "{seats}:timeout"]).await, 3);
        three.release().await.unwrap();
    }
    all.replicas[0].pause();
    let client = requiring(&all, Replicas::Count(1)).await;
    let seats = client.permit_semaphore("seats");
    let failed = not_replicated(seats.try_acquire_many(2).await);
    assert_eq!((failed.acknowledged(), failed.required()), (0, 1));
    assert_eq!(failed.lock(), "seats");
    eventually(SOON, "they are released", async || {
        let free: i64 = all.redis.ask(&["GET", "seats"]).await;
        free == 3 && !all.redis.exists("{seats}:timeout").await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn granted_permits_without_leases_are_on_the_replica_or_released() {
    let all = Replicated::start(1).await;
    let client = requiring_patiently(&all, Replicas::Count(1)).await;
    let seats = client.semaphore("seats");
    assert!(seats.try_set_permits(3).await.unwrap());
    let replica = all.replicas[0].redis().await;
    for _ in 0..5 {
        let three = seats.acquire_many(3).await.unwrap();
        assert_eq!(replica.ask::<i64>(&["GET", "seats"]).await, 0);
        three.release().await.unwrap();
    }
    all.replicas[0].pause();
    let client = requiring(&all, Replicas::Count(1)).await;
    let seats = client.semaphore("seats");
    let failed = not_replicated(seats.try_acquire_many(2).await);
    assert_eq!((failed.acknowledged(), failed.required()), (0, 1));
    eventually(SOON, "they are released", async || {
        all.redis.ask::<i64>(&["GET", "seats"]).await == 3
    })
    .await;
}
