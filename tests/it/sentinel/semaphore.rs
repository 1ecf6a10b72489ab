//! Permits without leases while another server becomes the master.

use lockdog::Client;

use super::{SOON, ms};
use crate::support::{Redis, Sentinels, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_without_leases_survive_a_failover() {
    let all = Sentinels::start().await;
    let client = Client::connect(all.url()).await.unwrap();
    let seats = client.semaphore(NAME);
    assert!(seats.try_set_permits(6).await.unwrap());
    let mut three = seats.acquire_many(3).await.unwrap();
    let one = seats.acquire().await.unwrap();
    let master = all.failover().await;
    let redis = master.redis().await;
    // The holds are not renewed, and a check would not find them lost.
    eventually(SOON, "the client uses the new master", async || {
        seats.available().await.is_ok_and(|free| free == 2)
    })
    .await;
    tokio::time::sleep(ms(300)).await;
    assert_eq!(client.holds().len(), 2);
    three.split(1).unwrap().release().await.unwrap();
    three.release().await.unwrap();
    drop(one);
    eventually(SOON, "all are free", async || {
        redis.ask::<i64>(&["GET", NAME]).await == 6
    })
    .await;
    client.shutdown().await;
}

/// The replicas have the acquire, and not its release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_the_new_master_missed_is_repeated() {
    let all = Sentinels::start().await;
    let client = Client::connect(all.url()).await.unwrap();
    let seats = client.semaphore(NAME);
    assert!(seats.try_set_permits(4).await.unwrap());
    let three = seats.acquire_many(3).await.unwrap();
    for replica in &all.servers[1..] {
        let replica = replica.redis().await;
        eventually(SOON, "the acquire is replicated", async || {
            replica.ask::<Option<i64>>(&["GET", NAME]).await == Some(1)
        })
        .await;
    }
    cut_replicas(&all).await;
    three.release().await.unwrap();
    let redis = new_master(&all).await;
    eventually(SOON, "the release is repeated", async || {
        redis.ask::<i64>(&["GET", NAME]).await == 4
    })
    .await;
    // SE1: once.
    tokio::time::sleep(ms(500)).await;
    assert_eq!(redis.ask::<i64>(&["GET", NAME]).await, 4);
    client.shutdown().await;
}

/// The replicas have the number as Redisson set it, and neither the acquire nor the ledger that began with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_whose_grant_the_new_master_missed_adds_nothing() {
    for has_new_ledger in [false, true] {
        let all = Sentinels::start().await;
        let client = Client::connect(all.url()).await.unwrap();
        let seats = client.semaphore(NAME);
        let view = all.servers[0].redis().await;
        view.cmd(&["SET", NAME, "4"]).await;
        for replica in &all.servers[1..] {
            let replica = replica.redis().await;
            eventually(SOON, "the number is replicated", async || {
                replica.ask::<Option<i64>>(&["GET", NAME]).await == Some(4)
            })
            .await;
        }
        cut_replicas(&all).await;
        let mut three = seats.acquire_many(3).await.unwrap();
        let redis = new_master(&all).await;
        assert_eq!(redis.ask::<i64>(&["GET", NAME]).await, 4);
        if has_new_ledger {
            let other = Client::connect(all.url()).await.unwrap();
            let one = other.semaphore(NAME).acquire().await.unwrap();
            one.release().await.unwrap();
        }
        eventually(SOON, "the client uses the new master", async || {
            seats.available().await.is_ok_and(|free| free == 4)
        })
        .await;
        let error = three.split(1).unwrap().release().await.unwrap_err();
        assert!(error.is_lost(), "{error}");
        drop(three);
        eventually(SOON, "nothing is held", async || client.holds().is_empty()).await;
        assert_eq!(redis.ask::<i64>(&["GET", NAME]).await, 4);
        client.shutdown().await;
    }
}

/// From now on the replicas miss everything: nothing more is sent to them, not even to wait in their
/// sockets.
async fn cut_replicas(all: &Sentinels) {
    for replica in &all.servers[1..] {
        replica.pause();
    }
    let view = all.servers[0].redis().await;
    let cut = view.cut_replicas().await;
    assert_eq!(cut, 2);
}

/// Kills the master, and waits for the next one.
async fn new_master(all: &Sentinels) -> Redis {
    all.servers[0].kill();
    for replica in &all.servers[1..] {
        replica.resume();
    }
    let master = all.await_switch_from(all.servers[0].port()).await;
    master.redis().await
}

const NAME: &str = "seats";
