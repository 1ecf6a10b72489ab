//! Required acknowledgements: a lock that replicas have, or none.

use lockdog::config::{ReplicaAck, Replicas};
use lockdog::{Client, Error, Owner};

use super::{
    SLACK, SOON, TIMEOUT, acquired, build, ms, not_replicated, requiring, requiring_patiently,
};
use crate::support::{Replicated, eventually, timed};
use crate::turn::turn;

/// With the setting of Redisson's `testInCluster`, on one master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_granted_lock_is_already_on_the_replicas() {
    let all = Replicated::start_behind(2, ms(30)).await;
    for (replicas, on) in [
        (Replicas::Count(1), 1),
        (Replicas::Count(2), 2),
        (Replicas::All, 2),
        (Replicas::Majority, 2),
    ] {
        let client = requiring_patiently(&all, replicas).await;
        for round in 0..5 {
            let name = format!("{replicas:?} {round}");
            let guard = client.lock(&name).lock().await.unwrap();
            let mut there = 0;
            for replica in &all.replicas {
                there += usize::from(replica.redis().await.exists(&name).await);
            }
            assert!(there >= on, "{name} is on {there} replicas");
            guard.unlock().await.unwrap();
        }
        client.shutdown().await;
    }
    all.redis.assert_clean().await;
}

/// A replica is down: the acquire is undone, and the hold count does not grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_frozen_replica_the_acquire_fails_in_time_and_leaves_nothing() {
    let all = Replicated::start(1).await;
    let client = requiring(&all, Replicas::Count(1)).await;
    let other = build(Client::builder().url(all.master.url())).await;
    let held = acquired(&client.lock("held")).await;
    all.replicas[0].pause();
    for replicas in [Replicas::Count(1), Replicas::All, Replicas::Majority] {
        let client = requiring(&all, replicas).await;
        let lock = client.lock("l");
        for _ in 0..3 {
            let (outcome, took) = timed(async { lock.try_lock().await }).await;
            let failed = not_replicated(outcome);
            assert_eq!((failed.acknowledged(), failed.required()), (0, 1));
            assert!(failed.is_undone() && failed.lock() == "l");
            let error = Error::from(failed);
            assert!(error.is_retriable() && !error.may_be_held(), "{error}");
            assert!(took >= TIMEOUT / 2 && took < TIMEOUT + SLACK, "{took:?}");
            assert!(!all.redis.exists("l").await && !lock.is_held().await.unwrap());
            assert_eq!(lock.hold_count().await.unwrap(), 0);
        }
        let (outcome, took) = timed(async { lock.lock().await }).await;
        not_replicated(outcome);
        assert!(took < TIMEOUT + SLACK, "{took:?}");
        // A lock whose acquire was undone is free at once.
        let guard = other.lock("l").try_lock().await.unwrap();
        guard.expect("it is free").unlock().await.unwrap();
        client.shutdown().await;
    }
    // An earlier grant is unchanged.
    assert_eq!(all.redis.hash("held").await.len(), 1);
    assert_eq!(
        (
            client.lock("held").hold_count().await.unwrap(),
            held.hold_count()
        ),
        (1, 1)
    );
}

/// The same with a replica that the master knows to be gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_without_replicas_meets_no_requirement() {
    let all = Replicated::start(1).await;
    all.cut_off(0).await;
    for (replicas, at_once) in [
        (Replicas::All, true),
        (Replicas::Majority, true),
        (Replicas::Count(1), false),
    ] {
        let client = requiring(&all, replicas).await;
        all.redis.reset_stats().await;
        for _ in 0..3 {
            let failed = not_replicated(client.lock("l").try_lock().await);
            assert_eq!((failed.acknowledged(), failed.required()), (0, 1));
            let [waits] = all.calls(["wait"]).await;
            assert_eq!(waits == 0, at_once, "{replicas:?}: {waits} waits");
            assert!(!all.redis.exists("l").await);
        }
        client.shutdown().await;
    }
    // With `All`, the client does not wait for a replica that is gone.
    all.follow(0).await;
    let client = requiring_patiently(&all, Replicas::All).await;
    turn(&client.lock("l")).await;
}

/// Only the first acquire waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reentries_renewals_and_unlocks_do_not_wait_for_replicas() {
    let all = Replicated::start(1).await;
    let ack = ReplicaAck::require(Replicas::Count(1)).timeout(SOON);
    let builder = Client::builder().url(all.master.url()).replica_ack(ack);
    let builder = builder.command_timeout(SOON);
    let client = build(builder.watchdog_lease(ms(5_000))).await;
    let lock = client.lock("l");
    let outer = lock.lock().await.unwrap();
    let [waits] = all.calls(["wait"]).await;
    assert!(waits > 0);
    all.replicas[0].pause();
    let (inner, took) = timed(async { lock.lock().await }).await;
    assert!(took < SLACK, "{took:?}");
    assert_eq!(
        all.redis.hash("l").await.values().collect::<Vec<_>>(),
        ["2"]
    );
    tokio::time::sleep(ms(6_000)).await;
    assert!(outer.is_valid());
    inner.unwrap().unlock().await.unwrap();
    outer.unlock().await.unwrap();
    assert!(!all.redis.exists("l").await);
    assert_eq!(all.calls(["wait"]).await, [waits]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_callers_deadline_bounds_the_wait_for_replicas() {
    let all = Replicated::start(1).await;
    let ack = ReplicaAck::require(Replicas::Count(1)).timeout(ms(60_000));
    let builder = Client::builder().url(all.master.url()).replica_ack(ack);
    let client = build(builder.command_timeout(ms(60_000))).await;
    all.replicas[0].pause();
    let request = client.lock("l").try_lock().wait(ms(2_500));
    let (outcome, took) = timed(async { request.await }).await;
    not_replicated(outcome);
    assert!(took >= ms(2_400) && took < SLACK, "{took:?}");
    // The call undoes it, or the background on a busy machine.
    all.redis.eventually_gone("l").await;
}

/// A call with time left retries until a replica is back. No owner holds the lock meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_gets_the_lock_when_the_replica_is_back() {
    let all = Replicated::start(1).await;
    let client = requiring(&all, Replicas::Count(1)).await;
    all.replicas[0].pause();
    let lock = client.lock("l");
    let waiting = tokio::spawn(async move { lock.try_lock().wait(SOON).await });
    eventually(SOON, "it was tried twice", async || {
        all.calls(["wait"]).await[0] >= 3
    })
    .await;
    assert!(!waiting.is_finished());
    all.replicas[0].resume();
    let guard = waiting.await.unwrap().unwrap().expect("it is free");
    assert!(all.replicas[0].redis().await.exists("l").await);
    guard.unlock().await.unwrap();
}

/// The deadline counts from the first sending: what the wait takes is lost from the lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_ends_before_the_acknowledgement_is_no_grant() {
    let all = Replicated::start(1).await;
    let client = requiring_patiently(&all, Replicas::Count(1)).await;
    all.replicas[0].pause();
    let request = client.lock("l").try_lock().lease(ms(1_000));
    let asking = tokio::spawn(async move { request.await });
    eventually(SOON, "it is waited for", async || {
        all.calls(["wait"]).await[0] >= 1
    })
    .await;
    tokio::time::sleep(ms(1_200)).await;
    all.replicas[0].resume();
    let error = asking.await.unwrap().unwrap_err();
    assert!(error.is_timeout(), "{error:?}");
    eventually(SOON, "nothing is left", async || {
        !all.redis.exists("l").await
    })
    .await;
    // With a longer lease the grant counts, and its validity is shorter by that time.
    all.replicas[0].pause();
    let owner = Owner::new();
    let request = client.lock("l").try_lock().lease(SOON).owner(&owner);
    let before = all.calls(["wait"]).await[0];
    let asking = tokio::spawn(async move { request.await });
    eventually(SOON, "it is waited for", async || {
        all.calls(["wait"]).await[0] > before
    })
    .await;
    tokio::time::sleep(ms(600)).await;
    all.replicas[0].resume();
    let guard = asking.await.unwrap().unwrap().expect("it is free");
    assert!(
        guard.remaining() < SOON - ms(500),
        "{:?}",
        guard.remaining()
    );
}
