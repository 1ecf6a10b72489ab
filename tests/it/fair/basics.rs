//! One client, and two clients.

use lockdog::Error;

use super::*;
use crate::support::until_ok;

#[tokio::test]
async fn a_free_lock_costs_one_command_and_its_unlock_another() {
    let test = Fixture::start().await;
    crate::turn::turn(&test.lock).await;
    test.redis.reset_stats().await;
    for _ in 0..10 {
        crate::turn::turn(&test.lock).await;
    }
    let stats = test.redis.commandstats().await;
    assert_eq!(stats.get("evalsha"), Some(&20), "{stats:?}");
    assert!(!stats.contains_key("subscribe"));
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn a_waiter_is_in_redissons_queue_and_leaves_it_with_the_lock() {
    let test = Fixture::start().await;
    let holder = test.another().await;
    let held = holder.lock().await.unwrap();
    let waiter = test.queued(&test.lock).await;
    let [entry] = &test.queue().await[..] else {
        panic!("one waits");
    };
    let own = format!("{}:", test.client.id());
    assert!(entry.starts_with(&own), "{entry}");
    let worth: f64 = test.redis.ask(&["ZSCORE", PLACES, entry]).await;
    let [seconds, _]: [f64; 2] = test.redis.ask::<Vec<f64>>(&["TIME"]).await[..]
        .try_into()
        .unwrap();
    // The rest of the lease plus Redisson's 300 s.
    let worth = worth / 1_000.0 - seconds;
    assert!((310.0..332.0).contains(&worth), "{worth} s");
    let waiters = holder.waiters().await.unwrap();
    let [seen] = &waiters[..] else {
        panic!("one waits");
    };
    assert_eq!(seen.field(), entry);
    assert!(seen.present && !seen.ours && seen.is_lockdog());
    assert_eq!(seen.client_id(), Some(test.client.id()));
    assert!(test.lock.waiters().await.unwrap()[0].ours);
    held.unlock().await.unwrap();
    let guard = waiter.await.unwrap();
    assert_eq!(test.redis.hash(NAME).await.keys().next(), Some(entry));
    assert!(test.queue().await.is_empty());
    guard.unlock().await.unwrap();
    test.eventually_empty().await;
}

#[tokio::test]
async fn an_owner_reenters_past_the_queue() {
    let test = Fixture::start().await;
    let guard = test.lock.lock().await.unwrap();
    let waiter = test.queued(&test.another().await).await;
    let again = test
        .lock
        .try_lock()
        .await
        .unwrap()
        .expect("it holds the lock");
    let third = test.lock.lock().await.unwrap();
    assert_eq!(test.lock.hold_count().await.unwrap(), 3);
    third.unlock().await.unwrap();
    again.unlock().await.unwrap();
    guard.unlock().await.unwrap();
    waiter.await.unwrap().unlock().await.unwrap();
    test.eventually_empty().await;
}

#[tokio::test]
async fn a_non_reentrant_fair_lock_refuses_its_owner_and_sends_nothing() {
    let test = Fixture::start().await;
    let lock = test.client.non_reentrant_fair_lock(NAME);
    let guard = lock.lock().await.unwrap();
    test.redis.reset_stats().await;
    for refused in [lock.lock().await.err(), lock.try_lock().await.err()] {
        assert!(
            matches!(refused, Some(Error::AlreadyHeld(_))),
            "{refused:?}"
        );
    }
    assert_eq!(test.redis.commandstats().await.get("evalsha"), None);
    // Another owner waits in the same queue as the waiters of the reentrant kind.
    let first = test.queued(&lock).await;
    let second = test.queued(&test.another().await).await;
    guard.unlock().await.unwrap();
    first.await.unwrap().unlock().await.unwrap();
    second.await.unwrap().unlock().await.unwrap();
    test.eventually_empty().await;
}

/// FA3: no acquire overtakes a waiter that is present.
#[tokio::test]
async fn a_try_lock_takes_no_place_and_passes_no_waiter() {
    let test = Fixture::start().await;
    let holder = test.another().await;
    let held = holder.lock().await.unwrap();
    assert!(test.lock.try_lock().await.unwrap().is_none());
    assert!(test.queue().await.is_empty());
    // A Redisson waiter that is present by its score and does not take the lock.
    let later = "9999999999999";
    test.redis.cmd(&["RPUSH", QUEUE, "java:1"]).await;
    test.redis.cmd(&["ZADD", PLACES, later, "java:1"]).await;
    held.unlock().await.unwrap();
    assert!(!test.redis.exists(NAME).await);
    assert!(test.lock.try_lock().await.unwrap().is_none());
    assert!(
        until_ok(SOON, async || test.lock.try_lock().wait(ms(200)).await)
            .await
            .is_none()
    );
    eventually(SOON, "the waiter gave its place back", async || {
        test.queue().await == ["java:1"]
    })
    .await;
    test.redis.cmd(&["DEL", QUEUE, PLACES]).await;
    assert!(test.lock.try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn a_wait_that_ends_leaves_nothing_in_the_queue() {
    let test = Fixture::start().await;
    let holder = test.another().await;
    let held = holder.lock().await.unwrap();
    // On a busy machine an attempt may be unanswered when the wait is over.
    let waited = async || test.lock.try_lock().wait(ms(300)).await;
    assert!(until_ok(SOON, waited).await.is_none());
    eventually(SOON, "it has left the queue", async || {
        test.queue().await.is_empty() && test.present().await.is_empty()
    })
    .await;
    // F10: the expired wait does not delay the next acquire.
    held.unlock().await.unwrap();
    assert!(test.lock.try_lock().await.unwrap().is_some());
    test.eventually_empty().await;
}

#[tokio::test]
async fn a_dropped_wait_leaves_nothing_in_the_queue() {
    let test = Fixture::start().await;
    let holder = test.another().await;
    let held = holder.lock().await.unwrap();
    for waited in [0, 1, 20, 200] {
        let waiter = test.lock.lock();
        let ended = tokio::time::timeout(ms(waited), waiter).await;
        assert!(ended.is_err());
        let what = format!("it has left the queue after {waited} ms");
        eventually(SOON, &what, async || {
            test.queue().await.is_empty() && test.present().await.is_empty()
        })
        .await;
    }
    held.unlock().await.unwrap();
    test.eventually_empty().await;
}

#[tokio::test]
async fn a_force_unlock_calls_the_first_waiter() {
    let test = Fixture::with(|builder| builder.poll_cap(ms(60_000))).await;
    let holder = test.another().await;
    let held = holder.lock().lease(LONG).await.unwrap();
    let waiter = test.queued(&test.lock).await;
    let entry = test.queue().await.remove(0);
    test.eventually_listening(&entry).await;
    assert!(holder.force_unlock().await.unwrap());
    let guard = tokio::time::timeout(SOON, waiter)
        .await
        .expect("it was called");
    guard.unwrap().unlock().await.unwrap();
    assert!(held.unlock().await.unwrap_err().is_lost());
    test.eventually_empty().await;
}

#[tokio::test]
async fn bad_settings_are_refused_before_a_connection() {
    let builder = || Client::builder().url("redis://127.0.0.1:1");
    for (builder, name) in [
        (builder().fair_wait(ms(9)), "fair_wait"),
        (
            builder().fair_wait(Duration::from_secs(86_401)),
            "fair_wait",
        ),
        (builder().fair_absence(ms(3_999)), "fair_absence"),
        (
            builder().poll_cap(ms(5_000)).fair_absence(ms(19_000)),
            "fair_absence",
        ),
    ] {
        let error = builder.build().await.expect_err("it is out of bounds");
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
        assert!(error.to_string().contains(name), "{error}");
    }
}
