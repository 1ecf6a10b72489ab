//! The differences between the non-reentrant lock and the plain lock.

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lockdog::config::Reentry;
use lockdog::{Error, MultiLock, Owner, Unlocked};

use super::{Fixture, LONG, SOON, ms, waiter};
use crate::kinds::NON_REENTRANT;
use crate::support::{Cell, eventually, until_ok};

/// NR1 and NR2, with any options and through any handle.
#[tokio::test]
async fn the_owner_is_refused_without_a_command_and_keeps_its_hold() {
    let test = Fixture::of_kind(&NON_REENTRANT).await;
    let lock = test.lock("l");
    let owner = Owner::from_id(3);
    let guard = lock.lock().owner(&owner).await.unwrap();
    test.redis.reset_stats().await;
    let requests = [
        lock.try_lock(),
        lock.try_lock().wait(LONG),
        lock.try_lock().lease(ms(20)),
        lock.try_lock().reentry(Reentry::Local),
        test.lock("l").try_lock(),
    ];
    for request in requests {
        let refused = request.owner(&owner).await.unwrap_err();
        let Error::AlreadyHeld(held) = &refused else {
            panic!("{refused}")
        };
        assert_eq!((held.lock(), held.owner()), ("l", &*owner.to_string()));
        let text = refused.to_string();
        assert!(
            text.contains("use the existing guard: lock=\"l\" owner=3 "),
            "{text}"
        );
        assert!(!refused.is_retriable() && !refused.may_be_held() && !refused.is_lost());
    }
    let refused = lock.lock().owner(&owner).await.unwrap_err();
    assert!(matches!(refused, Error::AlreadyHeld(_)), "{refused}");
    assert_eq!(test.calls(["evalsha", "hget", "subscribe"]).await, [0; 3]);
    assert!(guard.is_valid() && guard.hold_count() == 1);
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    let again = lock.try_lock().owner(&owner).await.unwrap();
    again.expect("it is free").unlock().await.unwrap();
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn a_forgotten_hold_counts_until_it_is_unlocked() {
    let test = Fixture::of_kind(&NON_REENTRANT).await;
    let lock = test.lock("l");
    lock.lock().await.unwrap().forget();
    let refused = lock.lock().await.unwrap_err();
    assert!(matches!(refused, Error::AlreadyHeld(_)), "{refused}");
    assert_eq!(lock.unlock().await.unwrap(), Unlocked::Released);
    lock.lock().await.unwrap().unlock().await.unwrap();
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn a_hold_lost_under_a_living_guard_is_lost_for_its_owner() {
    let test = Fixture::of_kind(&NON_REENTRANT).await;
    let lock = test.lock("l");
    let guard = until_ok(SOON, async || lock.lock().lease(ms(1_000)).await).await;
    eventually(SOON, "its lease is over", async || !guard.is_valid()).await;
    assert!(lock.lock().await.unwrap_err().is_lost());
    drop(guard);
    lock.lock().await.unwrap().unlock().await.unwrap();
}

/// In one task, so that both calls have one owner.
#[tokio::test]
async fn concurrent_calls_of_one_owner_take_turns() {
    let test = Fixture::of_kind(&NON_REENTRANT).await;
    let lock = test.lock("l");
    let cell = Cell::new();
    let enter = || lock.with(|_| cell.bump(ms(50)));
    let (first, second, third) = tokio::join!(enter(), enter(), enter());
    assert!(first.is_ok() && second.is_ok() && third.is_ok());
    cell.assert_exclusive(3);
    // A call that does not wait finds the lock busy.
    let (first, second) = tokio::join!(lock.try_lock(), lock.try_lock());
    let got = [first.unwrap(), second.unwrap()];
    assert_eq!(got.iter().flatten().count(), 1);
}

#[tokio::test]
async fn a_message_wakes_waiters_of_two_kinds_in_one_client() {
    let test = Fixture::of_kind(&NON_REENTRANT).await;
    let client = test.without_polling().await;
    let held = test.held_elsewhere("l").await;
    let own = test.kind.lock(&client, "l");
    let (ours, plain) = (waiter(&own), waiter(&client.lock("l")));
    let listens = async || test.redis.channels().await.len() == 1;
    eventually(SOON, "a waiter listens", listens).await;
    // Both have made another attempt since then.
    eventually(SOON, "both have looked", async || {
        test.calls(["evalsha"]).await[0] >= 5
    })
    .await;
    held.unlock().await.unwrap();
    // Usually the first one that waits is first. On a busy machine the other one may have asked again before it.
    let mut waiters: FuturesUnordered<_> = [ours, plain].into_iter().collect();
    for _ in 0..2 {
        let guard = tokio::time::timeout(SOON, waiters.next()).await;
        let guard = guard.expect("no timer can wake it in time").unwrap();
        guard.unwrap().unlock().await.unwrap();
    }
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn a_multi_lock_is_refused_when_its_owner_holds_a_member() {
    let test = Fixture::of_kind(&NON_REENTRANT).await;
    let (member, other) = (test.lock("{l}a"), test.client.lock("{l}b"));
    let both = MultiLock::new([member.clone(), other.clone()]);
    both.lock().await.unwrap().unlock().await.unwrap();
    let guard = member.lock().await.unwrap();
    let refused = both.try_lock().await.unwrap_err();
    assert!(matches!(refused, Error::AlreadyHeld(_)), "{refused}");
    let others = Owner::new();
    let free = other.try_lock().owner(&others).await.unwrap();
    free.expect("nothing was taken").unlock().await.unwrap();
    guard.unlock().await.unwrap();
    test.redis.assert_clean().await;
}
