//! Latches on a cluster.

use lockdog::{Client, Error};

use super::{LONG, SOON, ms};
use crate::support::cluster::{names, slot};
use crate::support::{Cluster, Redis, eventually};

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
        ended.expect("a message ends the wait").unwrap().unwrap();
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

/// The nodes answer with TRYAGAIN while the count is on one node and the mark of the request is on none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_latch_opens_whose_slot_was_migrated_under_its_waiters() {
    const SLOT: u16 = 42;
    let cluster = Cluster::start(3, 0).await;
    let to = &cluster.nodes[2];
    let name = &names("start", 1, |it| it == SLOT)[0];
    let client = Client::connect(cluster.url()).await.unwrap();
    let start = client.count_down_latch(name);
    assert!(start.try_set_count(2).await.unwrap());
    let another = Client::builder().url(cluster.url()).poll_cap(LONG);
    let another = another.build().await.unwrap();
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let theirs = another.count_down_latch(name);
            tokio::spawn(async move { theirs.wait_zero().await })
        })
        .collect();
    let listens_at = async |redis: &Redis| {
        let channels = redis.channels().await;
        channels.iter().any(|it| it.contains(name))
    };
    let migration = cluster.migrate(SLOT, to).await;
    let source = migration.from.redis().await;
    let target = to.redis().await;
    eventually(SOON, "they listen", async || listens_at(&source).await).await;
    target.reset_stats().await;
    assert!(migration.move_key(name).await);
    let counting = tokio::spawn(async move {
        let counted = start.count_down().await;
        (start, counted)
    });
    eventually(SOON, "the count-down met the migration", async || {
        target.errorstats().await.contains_key("TRYAGAIN")
    })
    .await;
    migration.move_keys().await;
    migration.finish().await;
    // The call may have failed before. The client repeats the command.
    let (start, _) = counting.await.unwrap();
    eventually(SOON, "it has counted", async || {
        target.ask::<i64>(&["GET", name]).await == 1
    })
    .await;
    eventually(SOON, "they listen at the other node", async || {
        listens_at(&target).await
    })
    .await;
    assert!(!waiters.iter().any(tokio::task::JoinHandle::is_finished));
    start.count_down().await.unwrap();
    for waiter in waiters {
        let ended = tokio::time::timeout(SOON, waiter).await;
        ended.expect("a message ends the wait").unwrap().unwrap();
    }
    assert!(!target.exists(name).await);
}

/// CL2: a message opens a latch of the new master, after a planned failover and after a crash. Only that
/// message and the client's knowledge of the failover wake the waiters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_latch_opens_by_a_message_after_each_failover() {
    let cluster = Cluster::start(3, 1).await;
    let name = &cluster.names_at(&cluster.nodes[0], "start", 1).await[0];
    let client = Client::connect(cluster.url()).await.unwrap();
    let start = client.count_down_latch(name);
    assert!(start.try_set_count(3).await.unwrap());
    let another = Client::builder().url(cluster.url()).poll_cap(LONG);
    let another = another.build().await.unwrap();
    let theirs = another.count_down_latch(name);
    let waiting = tokio::spawn(async move { theirs.wait_zero_within(LONG).await });
    let listens_at = async |redis: &Redis| {
        let what = "it listens at the master";
        eventually(SOON, what, async || {
            let channels = redis.channels().await;
            channels.iter().any(|it| it.contains(name))
        })
        .await;
    };
    let old = cluster.owner(slot(name)).await;
    listens_at(&old.redis().await).await;
    for (left, crashes) in [(2, false), (1, true)] {
        let old = cluster.owner(slot(name)).await;
        let new = match crashes {
            true => cluster.crash(name).await,
            false => cluster.fail_over(slot(name)).await,
        };
        assert_ne!(new.id, old.id);
        let redis = new.redis().await;
        listens_at(&redis).await;
        // If the old master refuses it, the client repeats it.
        let _ = start.count_down().await;
        eventually(SOON, "it has counted", async || {
            redis.ask::<Option<i64>>(&["GET", name]).await == Some(left)
        })
        .await;
        tokio::time::sleep(ms(200)).await;
        assert!(!waiting.is_finished());
    }
    start.count_down().await.unwrap();
    let ended = tokio::time::timeout(SOON, waiting).await;
    assert!(ended.expect("a message ends the wait").unwrap().unwrap());
    let redis = cluster.owner(slot(name)).await.redis().await;
    assert!(!redis.exists(name).await);
}
