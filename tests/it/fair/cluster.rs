//! Fair locks on a cluster: each queue at its slot's master.

use lockdog::Error;

use super::*;
use crate::support::Cluster;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_master_of_its_slot_has_the_queue_of_a_lock() {
    let cluster = Cluster::start(3, 0).await;
    let client = Client::connect(cluster.url()).await.unwrap();
    let another = Client::builder().url(cluster.url()).poll_cap(LONG);
    let another = another.build().await.unwrap();
    for master in &cluster.nodes[..3] {
        let name = &cluster.names_at(master, "door", 1).await[0];
        let held = client.fair_lock(name).lock().await.unwrap();
        let waiting = crate::turn::waiter(&another.fair_lock(name));
        let redis = master.redis().await;
        let queue = format!("redisson_lock_queue:{{{name}}}");
        eventually(SOON, "it waits and listens", async || {
            let entries: Vec<String> = redis.ask(&["LRANGE", &queue, "0", "-1"]).await;
            let [entry] = &entries[..] else {
                return false;
            };
            redis.channels().await.iter().any(|it| it.ends_with(entry))
        })
        .await;
        tokio::time::sleep(ms(100)).await;
        held.unlock().await.unwrap();
        let woken = tokio::time::timeout(SOON, waiting).await;
        let guard = woken.expect("a message wakes it").unwrap();
        guard.unlock().await.unwrap();
        assert!(!redis.exists(&queue).await && !redis.exists(name).await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fair_lock_whose_keys_are_in_several_slots_is_refused() {
    let cluster = Cluster::start(3, 0).await;
    let client = Client::connect(cluster.url()).await.unwrap();
    for name in ["{}door", "do}or", "door{", "}{"] {
        let lock = client.fair_lock(name);
        for error in [
            lock.lock().await.map(drop).unwrap_err(),
            lock.try_lock().await.map(drop).unwrap_err(),
            lock.waiters().await.map(drop).unwrap_err(),
            lock.force_unlock().await.map(drop).unwrap_err(),
        ] {
            assert!(matches!(error, Error::Invalid { .. }), "{name}: {error}");
        }
    }
    for node in &cluster.nodes {
        assert!(node.redis().await.keys().await.is_empty());
    }
}
