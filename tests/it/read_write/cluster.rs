//! Read/write locks on a cluster: all keys of each at its slot's master.

use std::time::Instant;

use lockdog::error::LostReason;

use super::*;
use crate::support::Cluster;
use crate::support::cluster::slot;

/// The slot moves with the timeout keys and the announcement. The client checks the holds of both modes
/// after the switch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_of_both_modes_survive_a_failover_of_their_slots_master() {
    let cluster = Cluster::start(3, 1).await;
    // The test is shorter than a third of this lease, so no regular renewal comes.
    let client = Client::builder()
        .url(cluster.url())
        .watchdog_lease(LONG * 2);
    let client = client.build().await.unwrap();
    let names = cluster.names_at(&cluster.nodes[0], "doc", 2).await;
    let (shared, own) = (
        client.read_write_lock(&names[0]),
        client.read_write_lock(&names[1]),
    );
    let watched = read(&shared).await;
    let leased = shared.read().lock().owner(&Owner::new()).lease(LONG);
    let leased = leased.await.unwrap();
    let writes = write(&own).await;
    let another = Client::builder().url(cluster.url()).poll_cap(ms(200));
    let another = another.build().await.unwrap();
    let waits = another.read_write_lock(&names[0]).write().try_lock();
    let waits = tokio::spawn(waits.wait(LONG).into_future());
    let announcement = format!("lockdog_writer:{{{}}}", names[0]);
    let old = cluster.owner(slot(&names[0])).await.redis().await;
    eventually(SOON, "it is announced", async || {
        old.exists(&announcement).await
    })
    .await;
    let deadline = || Instant::now() + watched.remaining();
    let before = deadline();
    tokio::time::sleep(ms(500)).await;
    let redis = cluster.fail_over(slot(&names[0])).await.redis().await;
    eventually(SOON, "they are renewed because of the switch", async || {
        deadline() > before + ms(300)
    })
    .await;
    assert!(watched.is_valid() && leased.is_valid() && writes.is_valid());
    assert!(!may_write(&another.read_write_lock(&names[0])).await);
    assert!(!may_read(&another.read_write_lock(&names[1])).await);
    assert!(!waits.is_finished());
    watched.unlock().await.unwrap();
    leased.unlock().await.unwrap();
    let next = tokio::time::timeout(SOON, waits).await.expect("in time");
    let next = next.unwrap().unwrap().expect("no reader holds the lock");
    next.unlock().await.unwrap();
    writes.unlock().await.unwrap();
    redis.eventually_empty().await;
    client.shutdown().await;
}

/// The replica has received no hold when the master dies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_that_the_next_master_does_not_have_are_reported_lost() {
    let cluster = Cluster::start(3, 1).await;
    let (master, replica) = (&cluster.nodes[0], &cluster.nodes[3]);
    let client = Client::builder()
        .url(cluster.url())
        .watchdog_lease(LONG * 2);
    let client = client.build().await.unwrap();
    let stranger = Client::connect(cluster.url()).await.unwrap();
    let names = cluster.names_at(master, "doc", 3).await;
    let (shared, own) = (
        client.read_write_lock(&names[0]),
        client.read_write_lock(&names[1]),
    );
    // The client has connected to this server before.
    let other = write(&client.read_write_lock(&names[2])).await;
    other.unlock().await.unwrap();
    replica.server.pause();
    // The master sends nothing more to the replica, so nothing waits in its socket.
    let cut = master.redis().await.cut_replicas().await;
    assert_eq!(cut, 1);
    let watched = read(&shared).await;
    let leased = shared.read().lock().owner(&Owner::new()).lease(LONG);
    let leased = leased.await.unwrap();
    let writes = write(&own).await;
    master.server.kill();
    replica.server.resume();
    cluster.take_over(slot(&names[0]), replica).await;
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
    let redis = replica.redis().await;
    for name in &names[..2] {
        let writes = stranger.read_write_lock(name).write().try_lock().wait(SOON);
        let writes = writes.await.unwrap().expect("it is free");
        writes.unlock().await.unwrap();
        redis.eventually_gone(name).await;
    }
    client.shutdown().await;
}
