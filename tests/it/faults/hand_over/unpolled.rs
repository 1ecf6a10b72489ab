//! Futures that are kept without being polled during a hand-over.

use std::time::Duration;

use lockdog::{Owner, Unlocked};

use super::{finish, got, held_with_next, in_line, poll_once, transfers};
use crate::faults::SOON;
use crate::faults::fixture::{Fixture, take};
use crate::faults::scripts::transfer;
use crate::support::{Action, Gate, eventually, named};

/// Invariant 9: a grant that is not read within the poll cap passes on.
#[tokio::test]
async fn a_grant_that_is_not_taken_passes_on_after_the_poll_cap() {
    // Long enough for the waiters to be polled in time on a busy machine.
    let fixture = Fixture::with(|client| client.poll_cap(Duration::from_secs(2))).await;
    let lock = fixture.lock();
    let held = lock.lock().owner(&Owner::new()).await.unwrap();
    let mut first = lock.lock().owner(&Owner::new()).into_future();
    assert!(poll_once(&mut first).await.is_none());
    let second = in_line(&lock).await;
    let holder = fixture.holder().await;
    assert_eq!(held.unlock().await.unwrap(), Unlocked::Released);
    let (granted, before) = (fixture.holder().await, transfers(&fixture));
    assert!(granted != holder && before == 1);
    let second = got(second).await;
    assert_ne!(fixture.holder().await, granted);
    assert!(poll_once(&mut first).await.is_none());
    let third = in_line(&lock).await;
    second.unlock().await.unwrap();
    // It is polled again, and is first in the queue.
    let first = tokio::time::timeout(SOON, first).await.unwrap().unwrap();
    assert!(!third.is_finished());
    first.unlock().await.unwrap();
    finish(&fixture, got(third).await).await;
}

/// Design: invariant 9. A grant that no caller reads is released after the poll cap, though no other waiter
/// of its client exists, and at once if its future is dropped.
#[tokio::test]
async fn a_grant_that_no_waiter_takes_is_released() {
    let fixture = Fixture::with(|client| client.poll_cap(Duration::from_secs(2))).await;
    let lock = fixture.lock();
    for dropped in [false, true] {
        let held = lock.lock().owner(&Owner::new()).await.unwrap();
        let mut left = lock
            .lock()
            .lease(SOON * 10)
            .owner(&Owner::new())
            .into_future();
        assert!(poll_once(&mut left).await.is_none());
        let before = transfers(&fixture);
        assert_eq!(held.unlock().await.unwrap(), Unlocked::Released);
        assert_eq!(transfers(&fixture), before + 1, "it is the future's");
        if dropped {
            drop(left);
            take(&fixture.others_lock().await)
                .await
                .unlock()
                .await
                .unwrap();
        } else {
            take(&fixture.others_lock().await)
                .await
                .unlock()
                .await
                .unwrap();
            drop(left);
        }
    }
    fixture.assert_recovered().await;
}

/// Design: invariant 9. The receiver waits for the hand-over no longer than it may take, and then sends its
/// own acquire.
#[tokio::test]
async fn the_next_waiter_gets_the_lock_when_the_unlock_is_not_polled() {
    let fixture = Fixture::with(|client| client.poll_cap(Duration::from_secs(2))).await;
    let (held, next) = held_with_next(&fixture).await;
    let mut unlock = Box::pin(held.unlock());
    assert!(poll_once(&mut unlock).await.is_none());
    fixture.proxy.wait_for(transfer(), 1).await;
    let next = got(next).await;
    assert_eq!(fixture.counts().await, ["1"]);
    // When the unlock is polled at last, another owner holds the lock, and keeps it.
    let holder = fixture.holder().await;
    assert_eq!(unlock.await.unwrap(), Unlocked::Released);
    let settled = async || fixture.client.holds().len() == 1;
    eventually(SOON, "one hold is left", settled).await;
    assert_eq!(fixture.holder().await, holder);
    assert!(next.is_valid());
    finish(&fixture, next).await;
}

/// A contender that waits for its subscription has no command in flight, so the lock may be handed over to
/// it.
#[tokio::test]
async fn a_waiter_that_waits_for_its_subscription_takes_a_hand_over() {
    let lease = SOON * 10;
    let fixture = Fixture::with(|client| client.poll_cap(lease).command_timeout(SOON * 5)).await;
    let gate = Gate::new();
    fixture
        .proxy
        .on(named("SUBSCRIBE"), Action::HoldReply(gate.clone()));
    let others = take(&fixture.others_lock().await).await;
    let next = in_line(&fixture.lock()).await;
    gate.wait_reached().await;
    others.unlock().await.unwrap();
    // One attempt, beside the contender.
    let held = fixture.lock().try_lock().owner(&Owner::new()).await;
    let held = held.unwrap().expect("it is free");
    assert!(!next.is_finished());
    held.unlock().await.unwrap();
    let next = got(next).await;
    assert_eq!(transfers(&fixture), 1);
    gate.open();
    finish(&fixture, next).await;
}
