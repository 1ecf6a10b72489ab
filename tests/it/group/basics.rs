//! Locks of values on a healthy server.

use lockdog::{Error, MultiLock, RedLock, Unlocked};

use super::*;
use crate::support::Cell;

/// GL2 and GL4: all values or none, and no key is left.
#[tokio::test]
async fn all_values_are_acquired_or_none() {
    let test = Fixture::start().await;
    let (jack_mary, mary_tom) = (test.lock(&["Jack", "Mary"]), test.lock(&["Mary", "Tom"]));
    let guard = jack_mary.lock().await.unwrap();
    let hash = test.redis.hash(GROUP).await;
    let field = &hash["230jWNvarrOid4cfBqB4JQ"];
    assert_eq!(&hash["xOfNUjB5nFaIIn+SD7r/3Q"], field);
    assert_eq!(
        hash[&format!("230jWNvarrOid4cfBqB4JQ:{field}:lock_count")],
        "1"
    );
    assert_eq!(hash.len(), 6);
    let theirs = test.another(&["Mary", "Tom"]).await;
    assert!(tried(&theirs).await.is_none() && tried(&mary_tom).await.is_none());
    assert_eq!(test.redis.hash(GROUP).await, hash);
    assert_eq!(mary_tom.holder().await.unwrap().unwrap().field(), field);
    // GL3.
    let tom = tried(&test.lock(&["Tom"])).await.expect("Tom is free");
    assert!(jack_mary.is_locked().await.unwrap() && mary_tom.is_locked().await.unwrap());
    assert!(!test.lock(&["Paul"]).is_locked().await.unwrap());
    assert!(jack_mary.is_held().await.unwrap() && !mary_tom.is_held().await.unwrap());
    assert!(jack_mary.remaining_ttl().await.unwrap().is_some());
    guard.unlock().await.unwrap();
    let both = tried(&test.another(&["Jack", "Mary"]).await).await;
    both.expect("they are free").unlock().await.unwrap();
    tom.unlock().await.unwrap();
    test.redis.assert_clean().await;
}

/// The same values, in any order or repeated, are one lock with one count.
#[tokio::test]
async fn an_owner_acquires_the_same_values_again() {
    let test = Fixture::start().await;
    let guard = test.lock(&["Jack", "Mary"]).lock().await.unwrap();
    let again = test.lock(&["Mary", "Jack", "Mary"]).lock().await.unwrap();
    assert_eq!(again.hold_count(), 2);
    assert_eq!(test.lock(&["Jack", "Mary"]).hold_count().await.unwrap(), 2);
    let unlocked = again.unlock().await.unwrap();
    assert_eq!(unlocked, Unlocked::StillHeld { count: 1 });
    assert!(tried(&test.another(&["Jack"]).await).await.is_none());
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn an_owner_with_some_of_the_values_would_wait_for_itself() {
    let test = Fixture::start().await;
    let guard = test.lock(&["Jack", "Mary"]).lock().await.unwrap();
    let overlap = test.lock(&["Mary", "Tom"]);
    for error in [
        overlap.lock().await.map(drop).unwrap_err(),
        overlap.try_lock().await.map(drop).unwrap_err(),
        overlap.try_lock().wait(SOON).await.map(drop).unwrap_err(),
    ] {
        assert!(matches!(error, Error::WouldDeadlock { .. }), "{error}");
    }
    assert!(guard.is_valid());
    // The guard is dropped: its release is in flight, and there is no deadlock.
    drop(guard);
    overlap.lock().await.unwrap().unlock().await.unwrap();
    test.redis.assert_clean().await;
}

/// GL1 and GL3: each value has one owner at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_of_one_value_exclude_each_other() {
    let test = Fixture::start().await;
    let cells: [Cell; 3] = Default::default();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..6_usize {
        let pair = [task % 3, (task + 1) % 3];
        let lock = test
            .another(&pair.map(|value| ["aa", "bb", "cc"][value]))
            .await;
        let cells = cells.clone();
        tasks.spawn(async move {
            for _ in 0..15 {
                let guard = lock.lock().owner(&Owner::new()).await.unwrap();
                let [one, other] = pair.map(|value| cells[value].bump(ms(2)));
                futures_util::future::join(one, other).await;
                guard.unlock().await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    for cell in cells {
        cell.assert_exclusive(60);
    }
    test.redis.assert_clean().await;
}

/// The message of a release wakes a waiter of the same client and one of another client.
#[tokio::test]
async fn a_release_wakes_those_that_wait_for_some_of_the_values() {
    let test = Fixture::start().await;
    let slow = |builder: ClientBuilder| builder.poll_cap(LONG);
    let held = test
        .another_with(&["Jack", "Mary"], slow)
        .await
        .lock()
        .await
        .unwrap();
    let ours = crate::turn::waiter(&test.another_with(&["Mary", "Tom"], slow).await);
    eventually(SOON, "it listens", async || {
        !test.redis.channels().await.is_empty()
    })
    .await;
    tokio::time::sleep(ms(200)).await;
    held.unlock().await.unwrap();
    let guard = tokio::time::timeout(SOON, ours)
        .await
        .expect("in time")
        .unwrap();
    guard.unlock().await.unwrap();
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn a_lock_is_freed_by_force_for_all_its_values() {
    let test = Fixture::start().await;
    let guard = test.lock(&["Jack", "Mary"]).lock().await.unwrap();
    let tom = tried(&test.another(&["Tom"]).await).await.unwrap();
    let both = test.another(&["Jack", "Mary"]).await;
    assert!(both.force_unlock().await.unwrap());
    assert!(!both.force_unlock().await.unwrap());
    assert!(guard.unlock().await.unwrap_err().is_lost());
    tried(&both)
        .await
        .expect("they are free")
        .unlock()
        .await
        .unwrap();
    tom.unlock().await.unwrap();
    test.redis.assert_clean().await;
}

/// The guard has further values, some of which are freed.
#[tokio::test]
async fn a_guard_of_this_client_is_notified_that_one_of_its_values_was_freed_by_force() {
    let test = Fixture::start().await;
    let guard = test.lock(&["Jack", "Mary"]).lock().await.unwrap();
    let tom = test.lock(&["Tom"]).lock().await.unwrap();
    assert!(test.lock(&["Jack"]).force_unlock().await.unwrap());
    assert!(!guard.is_valid() && tom.is_valid());
    drop(guard);
    tom.unlock().await.unwrap();
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn a_multi_lock_may_have_values_of_a_group_and_a_quorum_refuses_them() {
    let test = Fixture::start().await;
    let values = test.lock(&["Jack", "Mary"]);
    let both = MultiLock::new([test.client.lock("plain"), values.clone()]);
    let guard = both.lock().await.unwrap();
    assert!(tried(&test.another(&["Mary"]).await).await.is_none());
    guard.unlock().await.unwrap();
    let error = RedLock::new([values]).lock().await.unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
    test.redis.assert_clean().await;
}
