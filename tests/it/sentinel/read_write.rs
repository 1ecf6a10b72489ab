//! Holds of a read/write lock while another server becomes the master.

use std::time::Instant;

use lockdog::error::LostReason;
use lockdog::{Client, Owner};

use super::{SOON, ms};
use crate::support::prelude::LONG;
use crate::support::{Redis, Sentinels, eventually};

/// The client checks the holds of both modes at once after the switch, those with a lease too. The timeout keys
/// of the readers are there as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_of_both_modes_survive_a_failover_and_are_released_at_the_new_master() {
    let all = Sentinels::start().await;
    // The test is shorter than a third of this lease, so no regular renewal comes.
    let client = Client::builder().url(all.url()).watchdog_lease(SOON * 10);
    let client = client.build().await.unwrap();
    let (shared, own) = (
        client.read_write_lock("shared"),
        client.read_write_lock("own"),
    );
    let watched = shared.read().lock().owner(&Owner::new()).await.unwrap();
    let before = Instant::now() + watched.remaining();
    let leased = shared.read().lock().owner(&Owner::new()).lease(SOON * 4);
    let leased = leased.await.unwrap();
    let writes = own.write().lock().await.unwrap();
    let reads = own.read().lock().await.unwrap();
    let master = all.failover().await;
    let redis = master.redis().await;
    eventually(SOON, "they are renewed", async || {
        let deadline = Instant::now() + watched.remaining();
        deadline > before + ms(100) && holders(&redis, "shared").await == 2
    })
    .await;
    assert!(watched.is_valid() && leased.is_valid() && writes.is_valid() && reads.is_valid());
    assert_eq!(holders(&redis, "own").await, 2);
    let stranger = Client::connect(all.url()).await.unwrap();
    let tried = stranger.read_write_lock("shared").write().try_lock().await;
    assert!(tried.unwrap().is_none());
    let tried = stranger.read_write_lock("own").read().try_lock().await;
    assert!(tried.unwrap().is_none());
    // The holds change their modes on the new master.
    let reads_on = writes.downgrade().await.unwrap();
    drop(reads);
    let writes = reads_on.upgrade().await.unwrap();
    writes.unlock().await.unwrap();
    watched.unlock().await.unwrap();
    leased.unlock().await.unwrap();
    redis.eventually_empty().await;
    client.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_that_the_new_master_does_not_have_are_reported_lost() {
    let all = Sentinels::start().await;
    let client = Client::builder().url(all.url()).watchdog_lease(SOON * 10);
    let client = client.build().await.unwrap();
    let (shared, own) = (
        client.read_write_lock("shared"),
        client.read_write_lock("own"),
    );
    // The client has connected to this server before.
    drop(shared.read().lock().await.unwrap());
    let view = all.servers[0].redis().await;
    view.eventually_gone("shared").await;
    all.await_replication().await;
    for replica in &all.servers[1..] {
        replica.pause();
    }
    // The replicas are disconnected, so that no further write waits in their sockets.
    let cut = view.cut_replicas().await;
    assert_eq!(cut, 2);
    let watched = shared.read().lock().await.unwrap();
    let leased = shared.read().lock().owner(&Owner::new()).lease(SOON * 4);
    let leased = leased.await.unwrap();
    let writes = own.write().lock().await.unwrap();
    all.servers[0].kill();
    for replica in &all.servers[1..] {
        replica.resume();
    }
    let master = all.await_switch_from(all.servers[0].port()).await;
    let notified = async {
        for lost in [
            watched.lost().await,
            leased.lost().await,
            writes.lost().await,
        ] {
            assert_eq!(lost.reason(), LostReason::NotOurs);
        }
    };
    let notified = tokio::time::timeout(SOON, notified).await;
    notified.expect("the holders learn of the loss well within a third of their lease");
    drop((watched, leased, writes));
    // Other owners acquire at once.
    let stranger = Client::connect(all.url()).await.unwrap();
    for name in ["shared", "own"] {
        let writes = stranger.read_write_lock(name).write().lock();
        let writes = tokio::time::timeout(SOON, writes.into_future()).await;
        writes.expect("it is free").unwrap().unlock().await.unwrap();
    }
    master.redis().await.eventually_empty().await;
    client.shutdown().await;
}

/// Only messages, and what their client learns of the failover, wake the waiters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_both_modes_get_their_turns_by_messages_after_a_failover() {
    let all = Sentinels::start().await;
    // The test is shorter than a third of this lease, so no regular renewal comes.
    let client = Client::builder().url(all.url()).watchdog_lease(SOON * 10);
    let client = client.build().await.unwrap();
    let reads = client.read_write_lock("shared").read().lock();
    let reads = reads.owner(&Owner::new()).await.unwrap();
    let writes = client.read_write_lock("own").write().lock();
    let writes = writes.owner(&Owner::new()).await.unwrap();
    let another = Client::builder().url(all.url()).poll_cap(SOON * 6);
    let another = another.build().await.unwrap();
    let writer = another.read_write_lock("shared").write().try_lock();
    let writer = tokio::spawn(writer.wait(LONG).into_future());
    let reader = another.read_write_lock("own").read().try_lock();
    let reader = tokio::spawn(reader.wait(LONG).into_future());
    let old = all.servers[0].redis().await;
    eventually(SOON, "both listen", async || both_listen(&old).await).await;
    // They query once more after their subscriptions.
    tokio::time::sleep(ms(200)).await;
    let master = all.failover().await.redis().await;
    eventually(SOON, "both listen at the new master", async || {
        both_listen(&master).await
    })
    .await;
    all.await_demotion(&all.servers[0]).await;
    tokio::time::sleep(ms(300)).await;
    assert!(!writer.is_finished() && !reader.is_finished());
    reads.unlock().await.unwrap();
    let got = tokio::time::timeout(SOON, writer).await;
    let got = got.expect("a message wakes the writer").unwrap().unwrap();
    let got = got.expect("no owner reads");
    got.unlock().await.unwrap();
    writes.unlock().await.unwrap();
    let got = tokio::time::timeout(SOON, reader).await;
    let got = got.expect("a message wakes the reader").unwrap().unwrap();
    let got = got.expect("no owner writes");
    got.unlock().await.unwrap();
    master.eventually_empty().await;
    for client in [client, another] {
        client.shutdown().await;
    }
}

async fn both_listen(redis: &Redis) -> bool {
    let channels = redis.channels().await;
    let both = ["own", "shared"].map(|name| format!("redisson_rwlock:{{{name}}}"));
    both.iter().all(|channel| channels.contains(channel))
}

async fn holders(redis: &Redis, name: &str) -> usize {
    // One of the fields is the mode.
    redis.hash(name).await.len().saturating_sub(1)
}
