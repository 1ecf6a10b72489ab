//! Read/write locks on a cluster: all keys of each at its slot's master.

use std::time::Instant;

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
