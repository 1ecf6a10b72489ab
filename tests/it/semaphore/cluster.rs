//! Semaphores on a cluster: each at its slot's master.

use lockdog::{Client, Error, Uuid};

use super::{LONG, SOON, ms};
use crate::support::{Cluster, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_master_of_its_slot_keeps_a_semaphore() {
    let cluster = Cluster::start(3, 0).await;
    let client = Client::connect(cluster.url()).await.unwrap();
    let another = Client::builder().url(cluster.url()).poll_cap(LONG);
    let another = another.build().await.unwrap();
    for master in &cluster.nodes[..3] {
        let name = &cluster.names_at(master, "seats", 1).await[0];
        let (seats, theirs) = (client.semaphore(name), another.semaphore(name));
        assert!(seats.try_set_permits(2).await.unwrap());
        let both = seats.acquire_many(2).await.unwrap();
        assert_eq!(master.redis().await.ask::<i64>(&["GET", name]).await, 0);
        assert_eq!(seats.holders().await.unwrap()[0].permits, 2);
        assert!(theirs.try_acquire().await.unwrap().is_none());
        let waiting = tokio::spawn(theirs.acquire().into_future());
        eventually(SOON, "it waits", async || {
            let redis = master.redis().await;
            redis.channels().await.iter().any(|it| it.contains(name))
        })
        .await;
        tokio::time::sleep(ms(100)).await;
        both.release().await.unwrap();
        let woken = tokio::time::timeout(SOON, waiting).await;
        let woken = woken.expect("a message wakes it").unwrap().unwrap();
        woken.forget();
        theirs.release(2).await.unwrap();
        seats.add_permits(1).await.unwrap();
        assert_eq!(seats.available().await.unwrap(), 4);
        let all = seats.drain().await.unwrap().expect("four are free");
        assert_eq!(all.count(), 4);
        drop(all);
        eventually(SOON, "they are given back", async || {
            seats.available().await.unwrap() == 4
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_whose_keys_are_in_several_slots_is_refused() {
    let cluster = Cluster::start(3, 0).await;
    let client = Client::connect(cluster.url()).await.unwrap();
    for name in ["{}seats", "sea}ts", "seats{", "}{"] {
        let seats = client.semaphore(name);
        let errors = [
            seats.acquire().await.map(drop).unwrap_err(),
            seats.try_acquire_many(2).await.map(drop).unwrap_err(),
            seats.try_set_permits(1).await.map(drop).unwrap_err(),
            seats.release(1).await.unwrap_err(),
            seats.drain().await.map(drop).unwrap_err(),
            seats.reclaim(Uuid::nil()).await.map(drop).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, Error::Invalid { .. }), "{name}: {error}");
        }
    }
    for node in &cluster.nodes {
        assert!(node.redis().await.keys().await.is_empty());
    }
}
