//! The differences between the spin lock and the plain lock.

use std::time::Instant;

use lockdog::config::Backoff;
use lockdog::error::LostReason;
use lockdog::{Error, MultiLock, RedLock};

use super::{Fixture, LONG, SOON, ms, waiter};
use crate::kinds::SPIN;
use crate::support::eventually;

/// SP1, for an unlock, a drop and a forced unlock.
#[tokio::test]
async fn no_message_is_published_and_no_client_subscribes() {
    let test = Fixture::of_kind(&SPIN).await;
    let messages = test.redis.messages("*").await;
    let held = test.held_elsewhere("l").await;
    test.redis.reset_stats().await;
    let waiting = waiter(&test.lock("l"));
    let polls = async || test.calls(["evalsha"]).await[0] >= 5;
    eventually(SOON, "it polls", polls).await;
    held.unlock().await.unwrap();
    let next = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
    drop(next);
    eventually(SOON, "the drop of the guard freed it", async || {
        !test.redis.exists("l").await
    })
    .await;
    let guard = test.lock("l").lock().await.unwrap();
    assert!(test.lock("l").force_unlock().await.unwrap());
    assert!(!guard.is_valid());
    assert_eq!(test.calls(["subscribe"]).await, [0]);
    // Messages arrive in order.
    test.redis.cmd(&["PUBLISH", "end", "1"]).await;
    eventually(SOON, "the last message was received", async || {
        !messages.seen().is_empty()
    })
    .await;
    assert_eq!(messages.seen(), [("end".to_owned(), "1".to_owned())]);
}

/// SP2: ten waiters poll no more often than one.
#[tokio::test]
async fn the_waiters_of_one_client_poll_as_one_and_hand_the_lock_over() {
    let test = Fixture::of_kind(&SPIN).await;
    let held = test.held_elsewhere("l").await;
    test.redis.reset_stats().await;
    let began = Instant::now();
    let lock = test.lock("l").backoff(Backoff::constant(ms(200)));
    let waiting: Vec<_> = (0..10).map(|_| waiter(&lock)).collect();
    let polls = async || test.calls(["evalsha"]).await[0];
    eventually(SOON, "a waiter polls", async || polls().await >= 5).await;
    let (seen, most) = (polls().await, 2 + began.elapsed().as_millis() as u64 / 200);
    assert!(seen <= most, "{seen} polls, and one waiter makes {most}");
    held.unlock().await.unwrap();
    test.redis.reset_stats().await;
    for guard in waiting {
        let guard = tokio::time::timeout(SOON, guard).await.unwrap().unwrap();
        guard.unlock().await.unwrap();
    }
    // No NUMSUB, because no waiter subscribes.
    assert_eq!(
        test.calls(["pubsub|numsub", "pubsub|shardnumsub", "pubsub"])
            .await,
        [0; 3]
    );
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn a_lock_of_another_kind_under_the_same_name_has_another_owner() {
    let test = Fixture::of_kind(&SPIN).await;
    let plain = test.client.lock("l");
    let guard = test.lock("l").lock().await.unwrap();
    assert!(plain.try_lock().await.unwrap().is_none());
    assert!(plain.is_locked().await.unwrap());
    assert_eq!(plain.hold_count().await.unwrap(), 0);
    let refused = plain.unlock().await.unwrap_err();
    assert!(matches!(refused, Error::NotHeld(_)), "{refused}");
    assert!(guard.is_valid());
    guard.unlock().await.unwrap();
    let plain = plain.try_lock().await.unwrap().expect("it is free");
    assert!(test.lock("l").try_lock().await.unwrap().is_none());
    plain.unlock().await.unwrap();
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn a_holder_is_notified_that_a_handle_of_another_kind_freed_its_lock() {
    let test = Fixture::of_kind(&SPIN).await;
    let guard = test.lock("l").lock().await.unwrap();
    assert!(test.client.lock("l").force_unlock().await.unwrap());
    assert_eq!(guard.lost().await.reason(), LostReason::Forced);
}

#[tokio::test]
async fn a_multi_lock_and_a_red_lock_accept_a_spin_lock_as_a_member() {
    let test = Fixture::of_kind(&SPIN).await;
    let members = || [test.lock("{l}a"), test.client.lock("{l}b")];
    let held = test.held_elsewhere("{l}a").await;
    test.redis.reset_stats().await;
    let both = MultiLock::new(members());
    let waiting = tokio::spawn(async move { both.lock().lease(LONG).await });
    let polls = async || test.calls(["evalsha"]).await[0] >= 5;
    eventually(SOON, "it polls for the member", polls).await;
    held.unlock().await.unwrap();
    let both = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
    both.unwrap().unlock().await.unwrap();
    let quorum = RedLock::new([test.lock("{l}a")]);
    quorum.lock().await.unwrap().unlock().await.unwrap();
    test.redis.assert_clean().await;
    // Locks of two kinds, or of one: the server would grant only one of them.
    let twice = MultiLock::new([test.lock("l"), test.client.lock("l")]);
    let refused = twice.try_lock().await.unwrap_err();
    assert!(matches!(refused, Error::Invalid { .. }), "{refused}");
}
