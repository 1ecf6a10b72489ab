//! Permits while another server becomes the master.

use std::time::Instant;

use lockdog::Client;
use lockdog::error::LostReason;

use super::{SOON, ms};
use crate::support::{Sentinels, eventually};

/// The client checks every permit at once after the switch, those with a lease and the endless ones too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_survive_a_failover_and_are_released_at_the_new_master() {
    let all = Sentinels::start().await;
    // The test is shorter than a third of this lease, so no regular renewal comes.
    let client = Client::builder().url(all.url()).watchdog_lease(SOON * 10);
    let client = client.build().await.unwrap();
    let seats = client.permit_semaphore(NAME);
    seats.set_permits(6).await.unwrap();
    let watched = seats.acquire_many(2).await.unwrap();
    let before = Instant::now() + watched.remaining();
    let leased = seats.acquire().lease(SOON * 4).await.unwrap();
    let endless = seats.acquire().forever().await.unwrap();
    let handed = seats.acquire().lease(SOON * 4).await.unwrap().into_ids();
    let master = all.failover().await;
    let redis = master.redis().await;
    eventually(SOON, "they are renewed", async || {
        let deadline = Instant::now() + watched.remaining();
        deadline > before + ms(100) && redis.ask::<i64>(&["ZCARD", IN_USE]).await == 5
    })
    .await;
    assert!(watched.is_valid() && leased.is_valid() && endless.is_valid());
    assert_eq!(seats.available().await.unwrap(), 1);
    for permit in [watched, leased, endless] {
        permit.release().await.unwrap();
    }
    seats.release(&handed).await.unwrap();
    assert_eq!(redis.ask::<i64>(&["GET", NAME]).await, 6);
    assert!(!redis.exists(IN_USE).await);
    client.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_missing_on_the_new_master_are_reported_lost() {
    let all = Sentinels::start().await;
    let client = Client::builder().url(all.url()).watchdog_lease(SOON * 10);
    let client = client.build().await.unwrap();
    let seats = client.permit_semaphore(NAME);
    seats.set_permits(200).await.unwrap();
    // The replicas have the number, and no permit in use.
    drop(seats.acquire().await.unwrap());
    let view = all.servers[0].redis().await;
    view.eventually_gone(IN_USE).await;
    all.await_replication().await;
    for replica in &all.servers[1..] {
        replica.pause();
    }
    // The replicas are disconnected, so that no further write waits in their sockets.
    let cut = view.cut_replicas().await;
    assert_eq!(cut, 2);
    let permits = [
        seats.acquire_many(150).await.unwrap(),
        seats.acquire().lease(SOON * 4).await.unwrap(),
        seats.acquire().forever().await.unwrap(),
    ];
    all.servers[0].kill();
    for replica in &all.servers[1..] {
        replica.resume();
    }
    let master = all.await_switch_from(all.servers[0].port()).await;
    let notified = async {
        for permit in &permits {
            assert_eq!(permit.lost().await.reason(), LostReason::NotOurs);
        }
    };
    let notified = tokio::time::timeout(SOON, notified).await;
    notified.expect("the holders learn of the loss well within a third of their lease");
    drop(permits);
    // A permit that the new master never had is not returned to it.
    let next = seats.acquire_many(200).await.unwrap();
    next.release().await.unwrap();
    assert_eq!(master.redis().await.ask::<i64>(&["GET", NAME]).await, 200);
    client.shutdown().await;
}

const NAME: &str = "seats";
const IN_USE: &str = "{seats}:timeout";
