//! Permits on a cluster: each semaphore at its slot's master.

use std::time::Instant;

use lockdog::error::LostReason;
use lockdog::{Client, Error, PermitId};

use super::{LEASE, LONG, SOON, ms};
use crate::support::cluster::{names, slot};
use crate::support::{Cluster, Redis, eventually};

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

/// The client checks every permit at once after the switch, and each is released at the new master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_survive_a_failover_of_their_slots_master() {
    let cluster = Cluster::start(3, 1).await;
    // The test is shorter than a third of this lease, so no regular renewal comes.
    let client = Client::builder()
        .url(cluster.url())
        .watchdog_lease(LONG * 2);
    let client = client.build().await.unwrap();
    let name = &cluster.names_at(&cluster.nodes[0], "seats", 1).await[0];
    let seats = client.permit_semaphore(name);
    seats.set_permits(4).await.unwrap();
    let watched = seats.acquire_many(2).await.unwrap();
    let leased = seats.acquire().lease(LONG).await.unwrap();
    let deadline = || Instant::now() + watched.remaining();
    let before = deadline();
    tokio::time::sleep(ms(500)).await;
    let redis = cluster.fail_over(slot(name)).await.redis().await;
    eventually(SOON, "they are renewed because of the switch", async || {
        deadline() > before + ms(300)
    })
    .await;
    assert!(watched.is_valid() && leased.is_valid());
    assert_eq!(seats.available().await.unwrap(), 1);
    watched.release().await.unwrap();
    leased.release().await.unwrap();
    assert_eq!(redis.ask::<i64>(&["GET", name]).await, 4);
    assert_eq!(redis.unmarked_keys().await, std::slice::from_ref(name));
    client.shutdown().await;
}

/// The replica has the number, and no permit in use, when the master dies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_that_the_next_master_does_not_have_are_reported_lost() {
    let cluster = Cluster::start(3, 1).await;
    let (master, replica) = (&cluster.nodes[0], &cluster.nodes[3]);
    let client = Client::builder()
        .url(cluster.url())
        .watchdog_lease(LONG * 2);
    let client = client.build().await.unwrap();
    let name = &cluster.names_at(master, "seats", 1).await[0];
    let redis = master.redis().await;
    redis.cmd(&["SET", name, "200"]).await;
    eventually(SOON, "the replica has the number", async || {
        redis.ask::<u32>(&["WAIT", "1", "1000"]).await == 1
    })
    .await;
    let seats = client.permit_semaphore(name);
    // The client has connected to this server before.
    assert_eq!(seats.available().await.unwrap(), 200);
    replica.server.pause();
    // The master sends nothing more to the replica, so nothing waits in its socket.
    let cut = redis.cut_replicas().await;
    assert_eq!(cut, 1);
    let permits = [
        seats.acquire_many(150).await.unwrap(),
        seats.acquire().lease(LONG).await.unwrap(),
        seats.acquire().forever().await.unwrap(),
    ];
    master.server.kill();
    replica.server.resume();
    cluster.take_over(slot(name), replica).await;
    let notified = async {
        for permit in &permits {
            assert_eq!(permit.lost().await.reason(), LostReason::NotOurs);
        }
    };
    let notified = tokio::time::timeout(SOON, notified).await;
    notified.expect("the holders learn of the loss well within a third of their lease");
    drop(permits);
    // A permit that the new master never had is not returned to it.
    let next = seats.try_acquire_many(200).wait(SOON).await.unwrap();
    let next = next.expect("all are free");
    next.release().await.unwrap();
    let redis = replica.redis().await;
    assert_eq!(redis.ask::<i64>(&["GET", name]).await, 200);
    client.shutdown().await;
}

/// After a planned failover and after a crash. Only a message, and what its client learns of the failover, wake
/// the waiter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_gets_a_permit_by_a_message_after_each_failover() {
    let cluster = Cluster::start(3, 1).await;
    let name = &cluster.names_at(&cluster.nodes[0], "seats", 1).await[0];
    // No regular renewal comes during the test.
    let client = Client::builder()
        .url(cluster.url())
        .watchdog_lease(LONG * 2);
    let client = client.build().await.unwrap();
    let seats = client.permit_semaphore(name);
    seats.set_permits(2).await.unwrap();
    let another = Client::builder().url(cluster.url()).poll_cap(LONG);
    let another = another.build().await.unwrap();
    let theirs = another.permit_semaphore(name);
    let listens_at = async |redis: &Redis| {
        let what = "it listens at the master";
        eventually(SOON, what, async || {
            let channels = redis.channels().await;
            channels.iter().any(|it| it.contains(name))
        })
        .await;
        // It queries once more after its subscription.
        tokio::time::sleep(ms(200)).await;
    };
    for crashes in [false, true] {
        let held = seats.try_acquire_many(2).wait(SOON).await.unwrap();
        let held = held.expect("both are free");
        let waiting = tokio::spawn(theirs.try_acquire().wait(LONG).into_future());
        let old = cluster.owner(slot(name)).await;
        let redis = old.redis().await;
        listens_at(&redis).await;
        let new = match crashes {
            true => cluster.crash(name).await,
            false => cluster.fail_over(slot(name)).await,
        };
        assert_ne!(new.id, old.id);
        let redis = new.redis().await;
        listens_at(&redis).await;
        assert!(held.is_valid() && !waiting.is_finished());
        // If the call fails, the background repeats the release.
        drop(held.release().await);
        let got = tokio::time::timeout(SOON, waiting).await;
        let got = got.expect("a message wakes it").unwrap().unwrap();
        got.expect("it is its turn").release().await.unwrap();
        eventually(SOON, "all are free", async || {
            redis.ask::<i64>(&["GET", name]).await == 2
        })
        .await;
    }
    client.shutdown().await;
}

/// A semaphore has two keys, and a server answers TRYAGAIN while only one of them has moved: an acquire and
/// a release of that time wait for the rest, and no permit is lost or made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_semaphore_works_on_after_its_slot_moved_key_by_key() {
    let cluster = Cluster::start(3, 0).await;
    let client = Client::builder().url(cluster.url()).watchdog_lease(LONG);
    let client = client.build().await.unwrap();
    let name = &names("seats", 1, |it| it == SLOT)[0];
    let in_use = format!("{{{name}}}:timeout");
    let seats = client.permit_semaphore(name);
    seats.set_permits(3).await.unwrap();
    let held = seats.acquire().await.unwrap();
    let given_back = seats.acquire().await.unwrap();

    let to = &cluster.nodes[2];
    let migration = cluster.migrate(SLOT, to).await;
    assert!(migration.move_key(&in_use).await);
    let waiting = tokio::spawn(seats.acquire().into_future());
    let releasing = tokio::spawn(given_back.release());
    eventually(SOON, "both were refused", async || {
        migration.refused().await >= 2
    })
    .await;
    assert!(!waiting.is_finished());
    migration.move_keys().await;
    migration.finish().await;

    let got = tokio::time::timeout(SOON, waiting).await;
    let got = got.expect("the slot has moved").unwrap().unwrap();
    // A refused unlock is an error, and the background repeats it.
    drop(releasing.await.unwrap());
    let redis = to.redis().await;
    eventually(SOON, "one is released", async || {
        let free: i64 = redis.ask(&["GET", name]).await;
        let used: i64 = redis.ask(&["ZCARD", &in_use]).await;
        (free, used) == (1, 2)
    })
    .await;
    assert!(held.is_valid() && got.is_valid());
    for permit in [held, got] {
        permit.release().await.unwrap();
    }
    assert_eq!(redis.ask::<i64>(&["GET", name]).await, 3);
    assert_eq!(redis.unmarked_keys().await, std::slice::from_ref(name));
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

const SLOT: u16 = 42;
