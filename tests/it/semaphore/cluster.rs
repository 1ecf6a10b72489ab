//! Semaphores on a cluster: each at its slot's master.

use lockdog::{Client, Error, Uuid};

use super::{LONG, SOON, ms};
use crate::support::cluster::names;
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
        eventually(SOON, "they are released", async || {
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

/// A server answers TRYAGAIN while one of the two keys has moved: an acquire and a release of that time wait for
/// the rest, and no permit is lost or made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_semaphore_works_on_after_its_slot_moved_key_by_key() {
    const SLOT: u16 = 42;
    let cluster = Cluster::start(3, 0).await;
    let client = Client::connect(cluster.url()).await.unwrap();
    let name = &names("seats", 1, |it| it == SLOT)[0];
    let seats = client.semaphore(name);
    assert!(seats.try_set_permits(3).await.unwrap());
    let held = seats.acquire().await.unwrap();
    let given_back = seats.acquire().await.unwrap();

    let to = &cluster.nodes[2];
    let migration = cluster.migrate(SLOT, to).await;
    assert!(
        migration
            .move_key(&format!("lockdog_ledger:{{{name}}}"))
            .await
    );
    let releasing = tokio::spawn(given_back.release());
    eventually(SOON, "the release was refused", async || {
        migration.refused().await > 0
    })
    .await;
    let waiting = tokio::spawn(seats.acquire().into_future());
    tokio::time::sleep(ms(100)).await;
    assert!(!waiting.is_finished());
    migration.move_keys().await;
    migration.finish().await;

    let got = tokio::time::timeout(SOON, waiting).await;
    let got = got.expect("the slot has moved").unwrap().unwrap();
    // A refused release is an error, and the background repeats it.
    drop(releasing.await.unwrap());
    eventually(SOON, "one is released", async || {
        seats.available().await.unwrap() == 1
    })
    .await;
    for permit in [held, got] {
        permit.release().await.unwrap();
    }
    assert_eq!(seats.available().await.unwrap(), 3);
    assert!(seats.holders().await.unwrap().is_empty());
}
