//! Permits on a cluster: each semaphore at its slot's master.

use lockdog::{Client, Error, PermitId};

use super::{LEASE, LONG, SOON, ms};
use crate::support::{Cluster, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_master_of_its_slot_keeps_a_semaphore() {
    let cluster = Cluster::start(3, 0).await;
    let client = Client::builder().url(cluster.url()).watchdog_lease(LEASE);
    let client = client.build().await.unwrap();
    let another = Client::builder().url(cluster.url()).poll_cap(LONG);
    let another = another.build().await.unwrap();
    let mut held = Vec::new();
    for master in &cluster.nodes[..3] {
        let name = &cluster.names_at(master, "seats", 1).await[0];
        let (seats, theirs) = (
            client.permit_semaphore(name),
            another.permit_semaphore(name),
        );
        assert!(seats.try_set_permits(2).await.unwrap());
        let both = seats.acquire_many(2).await.unwrap();
        assert_eq!(master.redis().await.ask::<i64>(&["GET", name]).await, 0);
        assert!(theirs.try_acquire().await.unwrap().is_none());
        let waiting = tokio::spawn(theirs.acquire().lease(LONG).into_future());
        eventually(SOON, "it waits", async || {
            let redis = master.redis().await;
            redis.channels().await.iter().any(|it| it.contains(name))
        })
        .await;
        tokio::time::sleep(ms(100)).await;
        both.release().await.unwrap();
        let woken = tokio::time::timeout(SOON, waiting)
            .await
            .expect("a message wakes it");
        let ids = woken.unwrap().unwrap().into_ids();
        theirs.release(&ids).await.unwrap();
        seats.add_permits(1).await.unwrap();
        assert_eq!(seats.available().await.unwrap(), 3);
        held.push(seats.acquire_many(3).await.unwrap());
    }
    // The renewals of several slots beside those of locks.
    let lock = client.lock("l").lock().await.unwrap();
    tokio::time::sleep(LEASE + ms(500)).await;
    assert!(lock.is_valid());
    for permits in held {
        assert!(permits.is_valid());
        permits.release().await.unwrap();
    }
    lock.unlock().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_whose_keys_are_in_several_slots_is_refused() {
    let cluster = Cluster::start(3, 0).await;
    let client = Client::connect(cluster.url()).await.unwrap();
    for name in ["{}seats", "sea}ts", "seats{", "}{"] {
        let seats = client.permit_semaphore(name);
        let errors = [
            seats.acquire().await.map(drop).unwrap_err(),
            seats.try_acquire_many(2).await.map(drop).unwrap_err(),
            seats.set_permits(1).await.unwrap_err(),
            seats
                .release(&[PermitId::from_bytes([1; 16])])
                .await
                .unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, Error::Invalid { .. }), "{name}: {error}");
        }
    }
    for node in &cluster.nodes {
        assert!(node.redis().await.keys().await.is_empty());
    }
}
