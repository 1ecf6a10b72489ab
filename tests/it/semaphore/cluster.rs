//! Semaphores on a cluster: each at its slot's master.

use lockdog::{Client, Error, Uuid};

use super::{LONG, SOON, ms};
use crate::support::cluster::{Node, names, slot};
use crate::support::{Cluster, eventually, until_ok};

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

/// SE1, after a planned failover and after a crash. Only a message, and what its client learns of the failover, wake
/// the waiter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_stay_in_use_and_a_waiter_gets_one_by_a_message_after_each_failover() {
    let cluster = Cluster::start(3, 1).await;
    let name = &cluster.names_at(&cluster.nodes[0], "seats", 1).await[0];
    let client = Client::connect(cluster.url()).await.unwrap();
    let another = Client::builder().url(cluster.url()).poll_cap(LONG);
    let another = another.build().await.unwrap();
    let (seats, theirs) = (client.semaphore(name), another.semaphore(name));
    assert!(seats.try_set_permits(3).await.unwrap());
    let through_both = seats.acquire().await.unwrap();
    for crashes in [false, true] {
        let two = seats.try_acquire_many(2).wait(SOON).await.unwrap();
        let two = two.expect("two are free");
        let waiting = tokio::spawn(theirs.try_acquire().wait(LONG).into_future());
        let old = cluster.owner_of(name).await;
        listens_at(&old, name).await;
        let new = match crashes {
            true => cluster.crash(name).await,
            false => cluster.fail_over(slot(name)).await,
        };
        assert_ne!(new.id, old.id);
        listens_at(&new, name).await;
        let redis = new.redis().await;
        assert_eq!(redis.ask::<i64>(&["GET", name]).await, 0);
        let holders = until_ok(SOON, async || seats.holders().await).await;
        let used: u32 = holders.iter().map(|holder| holder.permits).sum();
        assert_eq!(used, 3, "{holders:?}");
        assert!(!waiting.is_finished());
        // If the call fails, the background repeats the release.
        drop(two.release().await);
        let got = tokio::time::timeout(SOON, waiting).await;
        let got = got.expect("a message wakes it").unwrap().unwrap();
        let got = got.expect("it is its turn");
        let one = seats.try_acquire().wait(SOON).await.unwrap();
        let one = one.expect("the other one is free");
        drop((got, one));
        eventually(SOON, "two are free", async || {
            redis.ask::<i64>(&["GET", name]).await == 2
        })
        .await;
    }
    through_both.release().await.unwrap();
    assert_eq!(seats.available().await.unwrap(), 3);
    assert!(seats.holders().await.unwrap().is_empty());
    for client in [client, another] {
        client.shutdown().await;
    }
}

/// SE1 and SE3: the client repeats the release until the slot has a master again, and it counts once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_to_a_dead_master_reaches_a_waiter_at_the_next_master() {
    let cluster = Cluster::start(3, 1).await;
    let (old, new) = (&cluster.nodes[0], &cluster.nodes[3]);
    let name = &cluster.names_at(old, "seats", 1).await[0];
    let client = Client::connect(cluster.url()).await.unwrap();
    let another = Client::builder().url(cluster.url()).poll_cap(LONG);
    let another = another.build().await.unwrap();
    let (seats, theirs) = (client.semaphore(name), another.semaphore(name));
    assert!(seats.try_set_permits(2).await.unwrap());
    let both = seats.acquire_many(2).await.unwrap();
    let waiting = tokio::spawn(theirs.try_acquire().wait(LONG).into_future());
    listens_at(old, name).await;
    cluster.await_replication(name).await;
    old.server.kill();
    let error = both.release().await.unwrap_err();
    assert!(matches!(error, Error::UnlockUnconfirmed(_)), "{error}");
    assert!(!waiting.is_finished());
    cluster.take_over(slot(name), new).await;
    let got = tokio::time::timeout(SOON, waiting).await;
    let got = got.expect("the release is repeated").unwrap().unwrap();
    let got = got.expect("it is its turn");
    let redis = new.redis().await;
    let free = async || redis.ask::<i64>(&["GET", name]).await;
    assert_eq!(free().await, 1);
    got.release().await.unwrap();
    tokio::time::sleep(ms(500)).await;
    assert_eq!(free().await, 2);
    // The clients from before the failover acquire there.
    for seats in [&seats, &theirs] {
        let both = seats.try_acquire_many(2).wait(SOON).await.unwrap();
        both.expect("both are free").release().await.unwrap();
    }
    for client in [client, another] {
        client.shutdown().await;
    }
}

/// Waits until a client listens at this node, and has had time for the query that follows its subscription.
async fn listens_at(node: &Node, name: &str) {
    let redis = node.redis().await;
    eventually(SOON, "it listens at the master", async || {
        redis.channels().await.iter().any(|it| it.contains(name))
    })
    .await;
    tokio::time::sleep(ms(200)).await;
}
