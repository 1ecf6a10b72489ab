//! Values of a group on a cluster: all are in one hash, at the master of the group's slot.

use super::*;
use crate::support::Cluster;
use crate::support::cluster::slot;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_master_of_its_slot_has_the_values_of_a_group() {
    let cluster = Cluster::start(3, 0).await;
    let client = Client::connect(cluster.url()).await.unwrap();
    let another = Client::builder().url(cluster.url()).poll_cap(LONG);
    let another = another.build().await.unwrap();
    for master in &cluster.nodes[..3] {
        let group = &cluster.names_at(master, "class", 1).await[0];
        let lock = |client: &Client, values: &[&str]| {
            client.group_lock(group, values.iter().map(|value| Value::utf8(value)))
        };
        let held = lock(&client, &["Jack", "Mary"]).lock().await.unwrap();
        let tom = lock(&another, &["Tom"]).lock().await.unwrap();
        tom.unlock().await.unwrap();
        let waiting = crate::turn::waiter(&lock(&another, &["Mary", "Tom"]));
        let redis = master.redis().await;
        eventually(SOON, "it listens", async || {
            let channels = redis.channels().await;
            channels.iter().any(|it| it.contains(group))
        })
        .await;
        // The waiter queries once more after its subscription.
        tokio::time::sleep(ms(100)).await;
        assert_eq!(redis.hash(group).await.len(), 6);
        held.unlock().await.unwrap();
        let woken = tokio::time::timeout(SOON, waiting).await;
        let guard = woken.expect("a message wakes it").unwrap();
        guard.unlock().await.unwrap();
        let jack = lock(&client, &["Jack"]).lock().await.unwrap();
        assert!(
            lock(&another, &["Jack", "Mary"])
                .force_unlock()
                .await
                .unwrap()
        );
        assert!(jack.unlock().await.unwrap_err().is_lost());
        assert!(!redis.exists(group).await);
    }
}

/// The replica has the values. The client checks its holds after the switch, also those with a fixed lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_survive_a_failover_and_are_released_at_the_new_master() {
    let cluster = Cluster::start(3, 1).await;
    let client = Client::builder().url(cluster.url()).watchdog_lease(LONG);
    let client = client.build().await.unwrap();
    let (watched, leased) = (of(&client, &["Jack", "Mary"]), of(&client, &["Tom"]));
    let watched = watched.lock().await.unwrap();
    let leased = leased.lock().lease(LONG).await.unwrap();
    let before = std::time::Instant::now() + watched.remaining();
    let master = cluster.fail_over(slot(GROUP)).await;
    let redis = master.redis().await;
    eventually(
        SOON,
        "it is renewed long before a third of its lease",
        async || std::time::Instant::now() + watched.remaining() > before + ms(100),
    )
    .await;
    assert!(watched.is_valid() && leased.is_valid());
    let stranger = Client::connect(cluster.url()).await.unwrap();
    assert!(tried(&of(&stranger, &["Mary", "Paul"])).await.is_none());
    assert_eq!(redis.hash(GROUP).await.len(), 9);
    watched.unlock().await.unwrap();
    leased.unlock().await.unwrap();
    assert!(!redis.exists(GROUP).await);
    client.shutdown().await;
}

/// The slot moves with the values, and the client follows the redirection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_move_with_their_slot() {
    let cluster = Cluster::start(3, 0).await;
    let client = Client::builder().url(cluster.url()).poll_cap(ms(200));
    let client = client.build().await.unwrap();
    let held = of(&client, &["Jack", "Mary"]).lock().await.unwrap();
    let from = cluster.owner(slot(GROUP)).await;
    let mut masters = cluster.nodes[..3].iter();
    let to = masters.find(|node| node.port() != from.port());
    let to = to.expect("there are three");
    let migration = cluster.migrate(slot(GROUP), to).await;
    assert!(migration.move_key(GROUP).await);
    let source = from.redis().await;
    source.reset_stats().await;
    let waiting = crate::turn::waiter(&of(&client, &["Mary", "Tom"]));
    eventually(SOON, "a query was redirected", async || {
        source.errorstats().await.contains_key("ASK")
    })
    .await;
    migration.finish().await;
    held.unlock().await.unwrap();
    let next = tokio::time::timeout(SOON, waiting).await;
    let next = next.expect("in time").unwrap();
    let redis = to.redis().await;
    assert_eq!(redis.hash(GROUP).await.len(), 6);
    next.unlock().await.unwrap();
    assert!(!redis.exists(GROUP).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_whose_key_and_channel_are_in_several_slots_is_refused() {
    let cluster = Cluster::start(3, 0).await;
    let client = Client::connect(cluster.url()).await.unwrap();
    for name in ["{}class", "cla}ss", "class{", "}{"] {
        let lock = client.group_lock(name, [Value::utf8("Jack")]);
        for error in [
            lock.lock().await.map(drop).unwrap_err(),
            lock.try_lock().await.map(drop).unwrap_err(),
            lock.force_unlock().await.map(drop).unwrap_err(),
        ] {
            assert!(
                matches!(error, lockdog::Error::Invalid { .. }),
                "{name}: {error}"
            );
        }
    }
    for node in &cluster.nodes {
        assert!(node.redis().await.keys().await.is_empty());
    }
}
