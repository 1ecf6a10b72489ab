//! Holds of values of a group while another server becomes the master.

use std::time::Instant;

use lockdog::error::LostReason;
use lockdog::{Client, Lock, Owner, Value};

use super::{SOON, ms};
use crate::support::{Sentinels, eventually};

/// The client checks the holds at once after the switch, those with a lease too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_survive_a_failover_and_are_released_at_the_new_master() {
    let all = Sentinels::start().await;
    // The test is shorter than a third of this lease, so no regular renewal comes.
    let client = Client::builder().url(all.url()).watchdog_lease(SOON * 10);
    let client = client.build().await.unwrap();
    let watched = of(&client, &["Jack", "Mary"]).lock().await.unwrap();
    let before = Instant::now() + watched.remaining();
    let leased = of(&client, &["Tom"]).lock().lease(SOON * 4).await.unwrap();
    let master = all.failover().await;
    let redis = master.redis().await;
    eventually(SOON, "it is renewed", async || {
        Instant::now() + watched.remaining() > before + ms(100)
    })
    .await;
    assert!(watched.is_valid() && leased.is_valid());
    assert_eq!(redis.hash(GROUP).await.len(), 9);
    let stranger = Client::connect(all.url()).await.unwrap();
    for values in [["Mary", "Paul"], ["Paul", "Tom"]] {
        let tried = of(&stranger, &values).try_lock().await.unwrap();
        assert!(tried.is_none());
    }
    let paul = of(&stranger, &["Paul"]).try_lock().await.unwrap();
    paul.expect("it is free").unlock().await.unwrap();
    watched.unlock().await.unwrap();
    leased.unlock().await.unwrap();
    redis.eventually_empty().await;
    client.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_that_the_new_master_does_not_have_are_reported_lost() {
    let all = Sentinels::start().await;
    let client = Client::builder().url(all.url()).watchdog_lease(SOON * 10);
    let client = client.build().await.unwrap();
    // The client has connected to this server before.
    drop(of(&client, &["Jack"]).lock().await.unwrap());
    let view = all.servers[0].redis().await;
    view.eventually_gone(GROUP).await;
    all.await_replication().await;
    for replica in &all.servers[1..] {
        replica.pause();
    }
    // The replicas are disconnected, so that no further write waits in their sockets.
    let cut = view.cut_replicas().await;
    assert_eq!(cut, 2);
    let watched = of(&client, &["Jack", "Mary"]).lock().await.unwrap();
    let leased = of(&client, &["Tom"]).lock().owner(&Owner::new());
    let leased = leased.lease(SOON * 4).await.unwrap();
    all.servers[0].kill();
    for replica in &all.servers[1..] {
        replica.resume();
    }
    let master = all.await_switch_from(all.servers[0].port()).await;
    let notified = async {
        for lost in [watched.lost().await, leased.lost().await] {
            assert_eq!(lost.reason(), LostReason::NotOurs);
        }
    };
    let notified = tokio::time::timeout(SOON, notified).await;
    notified.expect("the holders learn of the loss well within a third of their lease");
    drop((watched, leased));
    // Other owners acquire at once.
    let stranger = Client::connect(all.url()).await.unwrap();
    let next = of(&stranger, &["Mary", "Tom"]).lock().into_future();
    let next = tokio::time::timeout(SOON, next).await;
    next.expect("they are free")
        .unwrap()
        .unlock()
        .await
        .unwrap();
    master.redis().await.eventually_empty().await;
    client.shutdown().await;
}

fn of(client: &Client, values: &[&str]) -> Lock {
    client.group_lock(GROUP, values.iter().map(|value| Value::utf8(value)))
}

const GROUP: &str = "class_100";
