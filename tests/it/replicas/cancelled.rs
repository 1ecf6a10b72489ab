//! Callers that are dropped while the client waits for replicas.

use lockdog::config::{ReplicaAck, Replicas};
use lockdog::{Client, MultiLock, Owner};

use super::{SOON, build, ms};
use crate::support::{Replicated, eventually};
use crate::turn::turn;

/// Invariant 6: an acquire whose future is dropped is undone, at whatever point.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_dropped_while_it_waits_for_replicas_leaves_nothing() {
    let all = Replicated::start(1).await;
    let ack = ReplicaAck::require(Replicas::Count(1)).timeout(SOON);
    let builder = Client::builder().url(all.master.url()).replica_ack(ack);
    let client = build(builder.command_timeout(SOON)).await;
    turn(&client.lock("l")).await;
    all.replicas[0].pause();
    let both = MultiLock::new([client.lock("a"), client.lock("b")]);
    for pause in [0, 1, 2, 3, 5, 10, 50, 200] {
        let plain = async {
            let _ = client.lock("l").lock().owner(&Owner::new()).await;
        };
        assert!(tokio::time::timeout(ms(pause), plain).await.is_err());
        let several = async {
            let _ = both.lock().owner(&Owner::new()).await;
        };
        assert!(tokio::time::timeout(ms(pause), several).await.is_err());
        eventually(SOON, "nothing is left", async || {
            all.redis.keys().await.is_empty()
        })
        .await;
    }
    all.replicas[0].resume();
    turn(&client.lock("l")).await;
    both.lock().await.unwrap().unlock().await.unwrap();
}

/// A client that ends meanwhile releases its grants.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_during_a_wait_for_replicas_leaves_nothing() {
    let all = Replicated::start(1).await;
    // On a busy machine the test may see the lock seconds after the grant.
    let limit = ms(8_000);
    let ack = ReplicaAck::require(Replicas::Count(1)).timeout(limit);
    let builder = Client::builder().url(all.master.url()).replica_ack(ack);
    let client = build(builder.command_timeout(limit)).await;
    turn(&client.lock("l")).await;
    all.replicas[0].pause();
    let lock = client.lock("l");
    let waiting = tokio::spawn(async move { lock.lock().await });
    eventually(SOON, "it was granted", async || all.redis.exists("l").await).await;
    client.shutdown().await;
    assert!(!all.redis.exists("l").await);
    waiting.await.unwrap().unwrap_err();
    assert!(!all.redis.exists("l").await);
}
