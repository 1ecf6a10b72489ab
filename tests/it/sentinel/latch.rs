//! A count-down latch while another server becomes the master.

use lockdog::{Client, Error};

use super::{SOON, ms};
use crate::support::{Redis, Sentinels, eventually, until_ok};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_latch_survives_a_failover_and_opens_by_a_message() {
    let all = Sentinels::start().await;
    let client = Client::connect(all.url()).await.unwrap();
    let start = client.count_down_latch(NAME);
    assert!(start.try_set_count(2).await.unwrap());
    // Its waiters are woken by nothing but messages, and by what the client learns of the failover.
    let another = Client::builder().url(all.url()).poll_cap(SOON * 6);
    let another = another.build().await.unwrap();
    let theirs = another.count_down_latch(NAME);
    let waiting = tokio::spawn(async move { theirs.wait_zero().await });
    let old = all.servers[0].redis().await;
    eventually(SOON, "it listens", async || listens(&old).await).await;
    has_replicated(&all, 2).await;
    let master = all.failover().await.redis().await;
    eventually(SOON, "it listens at the new master", async || {
        listens(&master).await
    })
    .await;
    all.await_demotion(&all.servers[0]).await;
    // If the old master refuses it, the client retries at the new master.
    let _ = start.count_down().await;
    eventually(SOON, "it has counted", async || {
        count_at(&master).await == Some(1)
    })
    .await;
    tokio::time::sleep(ms(300)).await;
    assert!(!waiting.is_finished());
    start.count_down().await.unwrap();
    let ended = tokio::time::timeout(SOON, waiting).await;
    ended.expect("a message lets it go").unwrap().unwrap();
    assert_eq!(count_at(&master).await, None);
    client.shutdown().await;
    another.shutdown().await;
}

/// CL1: the old master receives the command first and executes it after it was replaced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_down_without_an_answer_counts_once_at_the_new_master() {
    let all = Sentinels::start().await;
    let client = Client::builder().url(all.url()).command_timeout(ms(500));
    let client = until_ok(SOON, async || client.clone().build().await).await;
    let start = client.count_down_latch(NAME);
    let old = all.servers[0].redis().await;
    old.cmd(&["SET", NAME, "5"]).await;
    has_replicated(&all, 5).await;
    // The client has a connection to it.
    assert_eq!(until_ok(SOON, async || start.count().await).await, 5);
    all.servers[0].pause();
    let error = start.count_down().await.unwrap_err();
    assert!(matches!(error, Error::Unconfirmed { .. }), "{error}");
    let redis = all.await_switch_from(all.servers[0].port()).await;
    let redis = redis.redis().await;
    assert!(count_at(&redis).await >= Some(4));
    eventually(SOON, "it is sent to the new master", async || {
        count_at(&redis).await == Some(4)
    })
    .await;
    all.servers[0].resume();
    // The client sends nothing more.
    tokio::time::sleep(ms(1_000)).await;
    assert_eq!(count_at(&redis).await, Some(4));
    // On a busy machine the answer may be late, and the client retries.
    let _ = start.count_down().await;
    eventually(SOON, "the next one counts", async || {
        count_at(&redis).await == Some(3)
    })
    .await;
    client.shutdown().await;
}

async fn has_replicated(all: &Sentinels, count: i64) {
    for replica in &all.servers[1..] {
        let replica = replica.redis().await;
        eventually(SOON, "the count is replicated", async || {
            count_at(&replica).await == Some(count)
        })
        .await;
    }
}

async fn count_at(redis: &Redis) -> Option<i64> {
    redis.ask(&["GET", NAME]).await
}

async fn listens(redis: &Redis) -> bool {
    let channels = redis.channels().await;
    channels.contains(&"redisson_countdownlatch__channel__{start}".to_owned())
}

const NAME: &str = "start";
