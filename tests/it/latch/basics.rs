//! Counts on a healthy server, and the meaning of Redisson's own tests.

use lockdog::{Client, Error};
use tokio::task::JoinSet;

use super::{CHANNEL, Fixture, NAME, SOON, ms};
use crate::support::{eventually, until_ok};

/// CL1. RedissonCountDownLatchTest.testCountDown, testTrySetCount, testCount.
#[tokio::test]
async fn each_call_lowers_the_count_by_one() {
    let test = Fixture::with_count(None).await;
    let start = &test.start;
    assert_eq!(start.count().await.unwrap(), 0);
    start.wait_zero().await.unwrap();
    start.count_down().await.unwrap();
    assert_eq!(start.count().await.unwrap(), 0);
    assert!(!test.redis.exists(NAME).await);
    let messages = test.redis.messages("*").await;
    assert!(start.try_set_count(2).await.unwrap());
    assert!(!start.try_set_count(5).await.unwrap());
    for left in [1, 0, 0] {
        start.count_down().await.unwrap();
        assert_eq!(start.count().await.unwrap(), left);
    }
    assert!(!test.redis.exists(NAME).await);
    for _ in 0..3 {
        start.wait_zero().await.unwrap();
        assert!(start.wait_zero_within(SOON).await.unwrap());
    }
    eventually(SOON, "two messages came", async || {
        messages.seen().len() == 2
    })
    .await;
    let texts: Vec<String> = messages
        .seen()
        .into_iter()
        .map(|(_, texts)| texts)
        .collect();
    assert_eq!(texts, ["1", "0"]);
    assert!(
        messages
            .seen()
            .iter()
            .all(|(channel, _)| channel == CHANNEL)
    );
    // It can be used again.
    assert!(start.try_set_count(1).await.unwrap());
    // On a busy machine the count may be unknown when the wait is over.
    let waited = async || start.wait_zero_within(ms(100)).await;
    assert!(!until_ok(SOON, waited).await);
}

/// testDelete, testDeleteFailed.
#[tokio::test]
async fn a_latch_is_deleted_once() {
    let test = Fixture::with_count(Some(1)).await;
    assert!(test.start.delete().await.unwrap());
    assert!(!test.start.delete().await.unwrap());
    assert!(!test.redis.exists(NAME).await);
}

/// A count of zero or less is open, as in Redisson.
#[tokio::test]
async fn a_count_below_one_is_open() {
    for count in [0, -2] {
        let test = Fixture::with_count(Some(count)).await;
        assert_eq!(test.start.count().await.unwrap(), count);
        test.start.wait_zero().await.unwrap();
        test.start.count_down().await.unwrap();
        assert!(!test.redis.exists(NAME).await);
    }
}

/// RedissonCountDownLatchConcurrentTest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_count_down_and_all_waiters_see_the_zero() {
    let test = Fixture::with_count(Some(20)).await;
    let mut tasks = JoinSet::new();
    for n in 0..40 {
        let client = match n % 4 {
            0 => Client::connect(test.server.url()).await.unwrap(),
            _ => test.client.clone(),
        };
        let start = client.count_down_latch(NAME);
        tasks.spawn(async move {
            match n % 2 {
                0 => start.count_down().await.unwrap(),
                _ => {
                    start.wait_zero().await.unwrap();
                    assert_eq!(start.count().await.unwrap(), 0);
                }
            }
        });
    }
    let all = tokio::time::timeout(SOON, tasks.join_all()).await;
    all.expect("all end");
}

#[tokio::test]
async fn bad_arguments_and_wrong_keys_are_refused() {
    let test = Fixture::with_count(None).await;
    test.redis.reset_stats().await;
    let long = "x".repeat(513);
    for name in ["", &long] {
        let bad = test.client.count_down_latch(name);
        for error in [
            bad.count().await.map(drop).unwrap_err(),
            bad.try_set_count(1).await.map(drop).unwrap_err(),
            bad.count_down().await.unwrap_err(),
            bad.wait_zero().await.unwrap_err(),
            bad.wait_zero_within(SOON).await.map(drop).unwrap_err(),
            bad.delete().await.map(drop).unwrap_err(),
        ] {
            assert!(matches!(error, Error::Invalid { .. }), "{error}");
        }
    }
    for count in [1 << 53, -(1 << 53), i64::MIN] {
        let error = test.start.try_set_count(count).await.unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
    }
    let stats = test.redis.commandstats().await;
    assert!(
        !stats.contains_key("evalsha") && !stats.contains_key("get"),
        "{stats:?}"
    );
    let _held = test.client.lock(NAME).lock().await.unwrap();
    for error in [
        test.start.count().await.map(drop).unwrap_err(),
        test.start.count_down().await.unwrap_err(),
        test.start.wait_zero().await.unwrap_err(),
        test.start
            // It asks again until its end.
            .wait_zero_within(ms(4_000))
            .await
            .map(drop)
            .unwrap_err(),
    ] {
        let is_refused = matches!(&error, Error::Refused { code, .. } if code == "WRONGTYPE");
        assert!(is_refused, "{error}");
    }
    assert!(!test.start.try_set_count(1).await.unwrap());
    for junk in ["some", "1.5", ""] {
        test.redis.cmd(&["SET", "junk", junk]).await;
        let latch = test.client.count_down_latch("junk");
        assert!(latch.count().await.is_err() && latch.count_down().await.is_err());
        assert_eq!(test.redis.ask::<String>(&["GET", "junk"]).await, junk);
    }
}
