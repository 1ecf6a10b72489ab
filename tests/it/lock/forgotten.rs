//! Holds without a guard, as ported Java code has them.

use std::time::Instant;

use lockdog::{Error, Owner, Unlocked};

use super::{Fixture, Kind, LONG, SOON, each_kind, ms};
use crate::support::{eventually, until_ok};

each_kind! {
    every: {
        a_forgotten_hold_without_a_lease_is_renewed
        an_unlock_without_a_hold_is_an_error
        an_unlock_after_the_lease_is_refused_and_changes_nothing
    }
    without_modes: {
        a_forgotten_try_lock_limits_the_rate
    }
    reentrant: {
        forgotten_locks_and_unlocks_pair_up_as_in_java
        an_unlock_does_not_end_the_claim_of_a_living_guard
    }
}

async fn forgotten_locks_and_unlocks_pair_up_as_in_java(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let lock = test.lock("l");
    for _ in 0..2 {
        lock.lock().await.unwrap().forget();
        lock.lock().lease(LONG).await.unwrap().forget();
        assert_eq!(lock.hold_count().await.unwrap(), 2);
        assert_eq!(
            lock.unlock().await.unwrap(),
            Unlocked::StillHeld { count: 1 }
        );
        // Through any handle.
        assert_eq!(test.lock("l").unlock().await.unwrap(), Unlocked::Released);
        assert!(!test.redis.exists("l").await);
    }
    test.redis.assert_clean().await;
}

async fn a_forgotten_hold_without_a_lease_is_renewed(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let client = lockdog::Client::builder()
        .url(test.server.url())
        .watchdog_lease(ms(6_000))
        .build()
        .await
        .unwrap();
    kind.lock(&client, "l").lock().await.unwrap().forget();
    // The client does not list a lost hold.
    let deadline = || Instant::now() + client.holds()[0].remaining;
    let first = deadline();
    eventually(SOON, "it was renewed", async || {
        deadline() > first + ms(1_000)
    })
    .await;
    assert!(kind.lock(&client, "l").is_held().await.unwrap());
    assert_eq!(
        kind.lock(&client, "l").unlock().await.unwrap(),
        Unlocked::Released
    );
}

async fn an_unlock_without_a_hold_is_an_error(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let lock = test.lock("l");
    let never = lock.unlock().await.unwrap_err();
    assert!(matches!(never, Error::NotHeld(_)), "{never}");
    assert!(
        never
            .to_string()
            .contains("it never had one, or it has ended")
    );
    assert!(
        never
            .to_string()
            .contains(&format!("owner={}", Owner::current()))
    );
    assert!(!never.is_retriable() && !never.may_be_held() && !never.is_lost());

    lock.lock().await.unwrap().forget();
    lock.unlock().await.unwrap();
    let twice = lock.unlock().await.unwrap_err();
    assert!(matches!(twice, Error::NotHeld(_)), "{twice}");

    // This owner cannot end another owner's hold.
    let other = test.another().await;
    let guard = kind.lock(&other, "l").lock().await.unwrap();
    let foreign = lock.unlock().await.unwrap_err();
    assert!(matches!(foreign, Error::NotHeld(_)), "{foreign}");
    assert!(guard.is_valid() && test.redis.exists("l").await);
}

async fn an_unlock_does_not_end_the_claim_of_a_living_guard(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let lock = test.lock("l");
    let guard = lock.lock().await.unwrap();
    let refused = lock.unlock().await.unwrap_err();
    let Error::NotHeld(not_held) = &refused else {
        panic!("{refused}")
    };
    assert_eq!(
        (not_held.lock(), not_held.owner()),
        ("l", &*guard.owner().to_string())
    );
    let text = refused.to_string();
    assert!(
        text.contains("a guard, a MultiLock or a RedLock of this owner has the lock"),
        "{text}"
    );
    assert!(
        text.contains("acquired=") && text.contains("last good renewal="),
        "{text}"
    );
    assert!(guard.is_valid());
    // One acquire has a guard, and one was forgotten: the unlock ends the forgotten one.
    lock.lock().await.unwrap().forget();
    assert_eq!(
        lock.unlock().await.unwrap(),
        Unlocked::StillHeld { count: 1 }
    );
    assert!(matches!(
        lock.unlock().await.unwrap_err(),
        Error::NotHeld(_)
    ));
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
}

async fn an_unlock_after_the_lease_is_refused_and_changes_nothing(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let lock = test.lock("l");
    let brief = until_ok(SOON, async || lock.lock().lease(ms(1_000)).await).await;
    brief.forget();
    eventually(SOON, "the lease is over", async || {
        !test.redis.exists("l").await
    })
    .await;
    let other = test.another().await;
    let taken = kind.lock(&other, "l").lock().await.unwrap();
    let late = lock.unlock().await.unwrap_err();
    assert!(matches!(late, Error::NotHeld(_)), "{late}");
    assert!(test.redis.exists("l").await);
    taken.unlock().await.unwrap();
}

async fn a_forgotten_try_lock_limits_the_rate(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let lock = test.lock("report");
    let window = ms(3_000);
    // The second try of a busy machine may come after the window.
    eventually(SOON, "the window refuses another owner", async || {
        let Ok(Some(first)) = lock.try_lock().lease(window).await else {
            return false;
        };
        first.forget();
        let second = lock.try_lock().lease(window).owner(&Owner::new()).await;
        second.is_ok_and(|second| second.is_none())
    })
    .await;
    let counted = async || test.redis.hash("report").await;
    let before = counted().await;
    eventually(SOON, "the window is over", async || {
        counted().await.is_empty()
    })
    .await;
    // The next call of the same owner is a first acquire, with a new field.
    let again = lock.try_lock().lease(LONG).await.unwrap();
    let again = again.expect("the window is over");
    assert_eq!(again.hold_count(), 1);
    let after = counted().await;
    assert_eq!(after.values().collect::<Vec<_>>(), ["1"]);
    assert_ne!(before, after);
    again.unlock().await.unwrap();
    test.redis.assert_clean().await;
}
