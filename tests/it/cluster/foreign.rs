//! A node of another cluster at an address of a former node.

use lockdog::{Client, Owner};

use super::{LONG, SOON, ms};
use crate::fixture::patient;
use crate::support::cluster::take_slots;
use crate::support::{Cluster, Proxy, eventually};

/// Its node number is larger than any of this cluster, and it claims all slots.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_another_cluster_at_a_seed_address_takes_no_slots() {
    let (ours, other) = tokio::join!(Cluster::start(3, 0), Cluster::start(1, 0));
    let stranger = &other.nodes[0];
    // A node takes a configured number only while it has none.
    stranger.cmd("CLUSTER RESET HARD").await;
    stranger.cmd("CLUSTER SET-CONFIG-EPOCH 50").await;
    take_slots(stranger, 0, 16383).await;
    eventually(SOON, "the stranger is well", async || {
        let info: Option<String> = stranger.try_ask("CLUSTER INFO").await;
        info.is_some_and(|it| it.contains("cluster_state:ok"))
    })
    .await;
    let mut seed = Proxy::start(&ours.nodes[0].server).await;
    let url = format!("{},127.0.0.1:{}", ours.url(), seed.port());
    // None of the calls below fails for lack of an answer in time.
    let [first, second] = [url.clone(), url].map(|url| patient(url).build());
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    let guard = first.lock("l").lock().lease(LONG).await.unwrap();
    seed.wait_for(|args| args[0] == "CLUSTER", 1).await;
    seed.aim(&stranger.server);
    seed.cut_all();
    let redis = stranger.redis().await;
    redis.reset_stats().await;
    eventually(SOON, "the stranger is asked", async || {
        let stats = redis.commandstats().await;
        stats.keys().any(|command| command.starts_with("cluster"))
    })
    .await;
    for _ in 0..30 {
        let had = second.lock("l").try_lock().owner(&Owner::new()).await;
        assert!(matches!(had, Ok(None)), "{had:?}");
        tokio::time::sleep(ms(50)).await;
    }
    let free = second.lock("free").lock().await.unwrap();
    assert!(!redis.exists("free").await && !redis.exists("l").await);
    free.unlock().await.unwrap();
    guard.unlock().await.unwrap();
    for client in [first, second] {
        client.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_of_the_seeds_is_believed_and_half_is_an_error() {
    let (ours, other) = tokio::join!(Cluster::start(3, 0), Cluster::start(1, 0));
    let stranger = format!("127.0.0.1:{}", other.nodes[0].port());
    let client = Client::connect(format!("{},{stranger}", ours.url())).await;
    let client = client.unwrap();
    let guard = client.lock("l").lock().await.unwrap();
    assert!(ours.owner_of("l").await.redis().await.exists("l").await);
    guard.unlock().await.unwrap();
    client.shutdown().await;
    let both = format!(
        "redis+cluster://{stranger},127.0.0.1:{}",
        ours.nodes[0].port()
    );
    let error = Client::connect(both).await.unwrap_err();
    assert!(
        error.to_string().contains("of different deployments"),
        "{error}"
    );
}
