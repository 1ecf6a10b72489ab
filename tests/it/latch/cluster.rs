//! Latches on a cluster.

use lockdog::{Client, Error};

use super::{LONG, SOON, ms};
use crate::support::{Cluster, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_master_of_its_slot_keeps_a_latch() {
    let cluster = Cluster::start(3, 0).await;
    let client = Client::connect(cluster.url()).await.unwrap();
    let another = Client::builder().url(cluster.url()).poll_cap(LONG);
    let another = another.build().await.unwrap();
    for master in &cluster.nodes[..3] {
        let name = &cluster.names_at(master, "start", 1).await[0];
        let (start, theirs) = (
            client.count_down_latch(name),
            another.count_down_latch(name),
        );
        assert!(start.try_set_count(1).await.unwrap());
        assert_eq!(theirs.count().await.unwrap(), 1);
        let waiting = tokio::spawn(async move { theirs.wait_zero().await });
        eventually(SOON, "it waits", async || {
            let redis = master.redis().await;
            redis.channels().await.iter().any(|it| it.contains(name))
        })
        .await;
        tokio::time::sleep(ms(100)).await;
        start.count_down().await.unwrap();
        let ended = tokio::time::timeout(SOON, waiting).await;
        ended.expect("a message lets it go").unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_with_a_brace_is_refused() {
    let cluster = Cluster::start(3, 0).await;
    let client = Client::connect(cluster.url()).await.unwrap();
    for name in ["{a}:start", "sta}rt", "start{", "{}start"] {
        let start = client.count_down_latch(name);
        for error in [
            start.count().await.map(drop).unwrap_err(),
            start.try_set_count(1).await.map(drop).unwrap_err(),
            start.count_down().await.unwrap_err(),
            start.wait_zero().await.unwrap_err(),
            start.delete().await.map(drop).unwrap_err(),
        ] {
            assert!(matches!(error, Error::Invalid { .. }), "{name}: {error}");
        }
    }
    for node in &cluster.nodes {
        assert!(node.redis().await.keys().await.is_empty());
    }
}
