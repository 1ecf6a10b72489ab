//! What Redisson's own tests of its `RPermitExpirableSemaphore` check and no other test of this folder
//! does.

use lockdog::{Client, Error};

use super::{Fixture, IN_USE, LONG, NAME, SOON, ms};
use crate::support::{Cluster, eventually, until_ok};

/// RedissonPermitExpirableSemaphoreTest.testGetInClusterNameMapper.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mapped_name_keeps_its_keys_in_one_slot_of_a_cluster() {
    let cluster = Cluster::start(3, 0).await;
    let client = Client::builder().url(cluster.url());
    let client = client.name_mapper(|name| format!("test::{name}"));
    let client = client.build().await.unwrap();
    let seats = client.permit_semaphore(NAME);
    assert!(seats.try_set_permits(1).await.unwrap());
    let ids = seats.acquire().lease(LONG).await.unwrap().into_ids();
    assert_eq!(seats.available().await.unwrap(), 0);
    seats.release(&ids).await.unwrap();
    assert_eq!(seats.available().await.unwrap(), 1);
    let mut keys = Vec::new();
    for node in &cluster.nodes {
        keys.extend(node.redis().await.keys().await);
    }
    assert!(keys.iter().all(|key| key.contains("test::")), "{keys:?}");
    client.shutdown().await;
}

/// testExpiration: the set of the permits in use ends with the semaphore, however long their leases are.
#[tokio::test]
async fn nothing_is_left_of_a_semaphore_that_expires() {
    let test = Fixture::with_permits(1).await;
    test.redis.cmd(&["PEXPIRE", NAME, "10000"]).await;
    let held = test.seats.acquire().lease(LONG).await.unwrap();
    drop(held.into_ids());
    assert!(test.redis.exists(IN_USE).await);
    test.redis.eventually_gone(NAME).await;
    test.redis.eventually_gone(IN_USE).await;
}

/// testRelease, testReleaseAsyncMany, testBlockingAcquireMany.
#[tokio::test]
async fn permits_of_one_acquire_are_released_in_parts_and_once() {
    let test = Fixture::with_permits(10).await;
    let ids = test.seats.acquire_many(6).lease(LONG).await.unwrap();
    let ids = ids.into_ids();
    assert_eq!((ids.len(), test.free().await), (6, 4));
    test.seats.release(&ids[..4]).await.unwrap();
    assert_eq!(test.free().await, 8);
    assert!(test.seats.try_release(&ids[4..]).await.unwrap());
    assert_eq!(test.free().await, 10);
    let error = test.seats.release(&ids).await.unwrap_err();
    assert!(matches!(error, Error::PermitNotInUse { .. }), "{error}");
    assert_eq!(test.free().await, 10);
}

/// testTryReleaseManyExpired, testReleaseExpired.
#[tokio::test]
async fn expired_permits_are_not_released_once_more() {
    let test = Fixture::with_permits(10).await;
    let short = async || test.seats.acquire_many(3).lease(ms(2_000)).await;
    let short = until_ok(SOON, short).await;
    let (short, endless) = (
        short.into_ids(),
        test.seats
            .acquire_many(3)
            .forever()
            .await
            .unwrap()
            .into_ids(),
    );
    eventually(SOON, "they expire", async || {
        test.seats.acquired().await.unwrap() == 3
    })
    .await;
    assert!(test.seats.try_release(&endless).await.unwrap());
    assert!(!test.seats.try_release(&short).await.unwrap());
    assert_eq!(test.seats.available().await.unwrap(), 10);
    test.assert_total().await;
}

/// testConcurrencyMultiPermits.
#[tokio::test]
async fn two_tasks_take_all_permits_one_after_the_other() {
    let test = Fixture::with_permits(2).await;
    let work = || {
        let seats = test.seats.clone();
        tokio::spawn(async move {
            let both = seats
                .try_acquire_many(2)
                .wait(LONG)
                .forever()
                .await
                .unwrap();
            let both = both.expect("it gets both permits");
            tokio::time::sleep(ms(500)).await;
            both.release().await.unwrap();
        })
    };
    let (first, second) = tokio::join!(work(), work());
    assert!(first.is_ok() && second.is_ok());
    test.eventually_free().await;
}
