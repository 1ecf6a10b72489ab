//! Lock and unlock in the way of Redisson's own tests.

use std::time::Instant;

use lockdog::error::LostReason;
use lockdog::report::Ttl;
use lockdog::{Error, Owner, Unlocked};

use super::{Fixture, Kind, LONG, SOON, each_kind, ms, waiter};
use crate::support::eventually;

each_kind! {
    every: {
        a_force_unlock_is_visible_through_every_handle
        another_owner_sees_the_lock_as_locked_but_not_as_its_own
        an_unlock_by_another_owner_is_refused_and_changes_nothing
        explicit_owners_hold_the_lock_in_turn
        a_second_owner_enters_after_the_first_has_left
        a_bounded_wait_succeeds_when_the_lock_is_freed_in_time
    }
    reentrant: {
        an_inner_unlock_keeps_the_lease
        counts_and_states_follow_lock_and_unlock
        only_the_last_of_two_unlocks_admits_the_next_owner
    }
    published: {
        the_ttl_alone_wakes_a_waiter_when_the_lease_expires
    }
}

async fn an_inner_unlock_keeps_the_lease(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let client = lockdog::Client::builder()
        .url(test.server.url())
        .watchdog_lease(ms(120_000))
        .build()
        .await
        .unwrap();
    let lock = kind.lock(&client, "l");
    let lease = ms(60_000);
    let guard = lock.lock().lease(lease).await.unwrap();
    let inner = lock.lock().lease(lease).await.unwrap();
    let innermost = lock.lock().lease(lease).await.unwrap();
    for (inner, count) in [(innermost, 2), (inner, 1)] {
        let kept = Unlocked::StillHeld { count };
        assert_eq!(inner.unlock().await.unwrap(), kept);
    }
    // The watchdog's lease would be twice as long.
    let Some(Ttl::Expires(left)) = lock.remaining_ttl().await.unwrap() else {
        panic!("it is held and has a TTL")
    };
    assert!(left <= lease && left > ms(50_000), "{left:?}");
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    assert!(!test.redis.exists("l").await);
    test.redis.assert_clean().await;
}

async fn a_force_unlock_is_visible_through_every_handle(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let lock = test.lock("l");
    let guard = lock.lock().await.unwrap();
    assert!(lock.force_unlock().await.unwrap());
    assert!(!lock.is_locked().await.unwrap());
    assert!(!test.lock("l").is_locked().await.unwrap());
    assert!(
        !kind
            .lock(&test.another().await, "l")
            .is_locked()
            .await
            .unwrap()
    );
    assert_eq!(guard.lost().await.reason(), LostReason::Forced);
    assert!(!lock.force_unlock().await.unwrap());
}

async fn the_ttl_alone_wakes_a_waiter_when_the_lease_expires(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    // On a busy machine the waiter may come when the lease is over.
    eventually(LONG, "the waiter finds the lock busy", async || {
        is_woken_by_the_ttl(&test).await
    })
    .await;
    test.redis.assert_clean().await;
}

/// False if the waiter did not find the lock busy.
async fn is_woken_by_the_ttl(test: &Fixture) -> bool {
    let kind = test.kind;
    let (first, second) = (test.without_polling().await, test.without_polling().await);
    test.warm_up(&second).await;
    // Read before the server starts to count the lease.
    let asked = Instant::now();
    let Ok(guard) = kind.lock(&first, "l").lock().lease(ms(2_000)).await else {
        return false;
    };
    let next = tokio::time::timeout(SOON, kind.lock(&second, "l").lock().lease(LONG)).await;
    let next = next
        .expect("its poll cap is a minute, so only the TTL can have woken it")
        .unwrap();
    assert!(asked.elapsed() >= ms(1_990), "the lease was not over");
    // The holder's acquire, one attempt of the waiter, one after its subscription, one after the TTL, and
    // one more if the server's clock was at the last millisecond.
    let [tries] = test.calls(["evalsha"]).await;
    assert!((2..=5).contains(&tries), "{tries} commands");
    let late = guard.unlock().await.unwrap_err();
    assert!(late.is_lost(), "{late}");
    assert!(next.is_valid());
    next.unlock().await.unwrap();
    tries > 2
}

async fn counts_and_states_follow_lock_and_unlock(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let lock = test.lock("l");
    for _ in 0..2 {
        let mut guards = Vec::new();
        let is = async |count: u32| {
            assert_eq!(lock.hold_count().await.unwrap(), count);
            assert_eq!(lock.is_held().await.unwrap(), count > 0);
            assert_eq!(lock.is_locked().await.unwrap(), count > 0);
            assert_eq!(test.redis.exists("l").await, count > 0);
        };
        is(0).await;
        guards.push(lock.lock().await.unwrap());
        is(1).await;
        guards.push(test.lock("l").lock().await.unwrap());
        is(2).await;
        guards.pop().unwrap().unlock().await.unwrap();
        is(1).await;
        guards.pop().unwrap().unlock().await.unwrap();
        is(0).await;
    }
    test.redis.assert_clean().await;
}

async fn another_owner_sees_the_lock_as_locked_but_not_as_its_own(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let lock = test.lock("l");
    let guard = lock.lock().await.unwrap();
    let ask = || {
        let lock = lock.clone();
        tokio::spawn(async move {
            let count = lock.hold_count().await.unwrap();
            (
                lock.is_locked().await.unwrap(),
                lock.is_held().await.unwrap(),
                count,
            )
        })
    };
    assert_eq!(ask().await.unwrap(), (true, false, 0));
    assert!(lock.is_held().await.unwrap());
    guard.unlock().await.unwrap();
    assert_eq!(ask().await.unwrap(), (false, false, 0));
}

async fn an_unlock_by_another_owner_is_refused_and_changes_nothing(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let lock = test.lock("l");
    let (holder, stranger) = (Owner::new(), Owner::new());
    lock.lock().owner(&holder).await.unwrap().forget();
    let refused = lock.unlock().owner(&stranger).await.unwrap_err();
    let Error::NotHeld(not_held) = &refused else {
        panic!("{refused}")
    };
    assert_eq!(not_held.lock(), "l");
    assert_eq!(not_held.owner(), stranger.to_string());
    assert!(lock.is_held_by(&holder).await.unwrap());
    assert_eq!(
        lock.unlock().owner(&holder).await.unwrap(),
        Unlocked::Released
    );
    test.redis.assert_clean().await;
}

async fn only_the_last_of_two_unlocks_admits_the_next_owner(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let lock = test.lock("l");
    let first = lock.try_lock().await.unwrap().expect("it is free");
    let second = lock.try_lock().await.unwrap().expect("it is ours");
    second.unlock().await.unwrap();
    let other = Owner::new();
    assert!(lock.try_lock().owner(&other).await.unwrap().is_none());
    first.unlock().await.unwrap();
    assert!(lock.try_lock().owner(&other).await.unwrap().is_some());
    test.redis.assert_clean().await;
}

async fn explicit_owners_hold_the_lock_in_turn(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let lock = test.lock("l");
    let (one, two) = (Owner::from_id(1), Owner::from_id(2));
    let held_by = async || {
        let by_one = lock.is_held_by(&one).await.unwrap();
        (by_one, lock.is_held_by(&two).await.unwrap())
    };
    let guard = lock.lock().owner(&one).await.unwrap();
    assert_eq!(held_by().await, (true, false));
    // A request does nothing before it is awaited.
    let lazy = lock.lock().owner(&two);
    guard.unlock().await.unwrap();
    assert_eq!(held_by().await, (false, false));
    let guard = lazy.await.unwrap();
    assert_eq!(held_by().await, (false, true));
    guard.unlock().await.unwrap();
    assert_eq!(held_by().await, (false, false));
}

async fn a_second_owner_enters_after_the_first_has_left(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let lock = test.lock("l");
    let held = Instant::now();
    let guard = lock.lock().owner(&Owner::new()).await.unwrap();
    let waiting = waiter(&lock);
    tokio::time::sleep(ms(200)).await;
    assert!(!waiting.is_finished());
    guard.unlock().await.unwrap();
    let second = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
    assert!(held.elapsed() >= ms(200));
    drop(second);
    eventually(SOON, "the dropped guard freed the lock", async || {
        !test.redis.exists("l").await
    })
    .await;
    test.redis.assert_clean().await;
}

async fn a_bounded_wait_succeeds_when_the_lock_is_freed_in_time(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let lock = test.lock("l");
    let guard = lock.lock().owner(&Owner::new()).await.unwrap();
    assert!(lock.try_lock().await.unwrap().is_none());
    let request = lock.try_lock().wait(SOON).lease(LONG);
    let waiting = tokio::spawn(request.into_future());
    tokio::time::sleep(ms(100)).await;
    assert!(!waiting.is_finished());
    guard.unlock().await.unwrap();
    let got = waiting.await.unwrap().unwrap().expect("it was freed");
    got.unlock().await.unwrap();
    test.redis.assert_clean().await;
}
