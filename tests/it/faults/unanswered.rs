//! Futures that are dropped after their command ran and its reply was lost. From then on the connection is
//! silent.

use std::pin::pin;

use crate::faults::SOON;
use crate::faults::fixture::{Fixture, PATIENCE, take};
use crate::faults::scripts::{Matches, acquire_to, force_unlock, kill, renew, settle, unlock_to};
use crate::support::prelude::poll_once;
use crate::support::{Action, Gate, eventually, named, until_ok};

#[tokio::test]
async fn an_acquire_cancelled_before_its_reply_is_undone() {
    let fixture = fixture().await;
    let lock = fixture.lock();
    unanswered(&fixture, acquire_to(1), lock.lock()).await;
    fixture.assert_recovered().await;
    given_up(&fixture, 1).await;
    unanswered(&fixture, acquire_to(1), lock.try_lock()).await;
    fixture.assert_recovered().await;
    given_up(&fixture, 2).await;
    unanswered(&fixture, acquire_to(1), lock.try_lock().wait(SOON)).await;
    fixture.assert_recovered().await;
    given_up(&fixture, 3).await;
    unanswered(&fixture, acquire_to(1), lock.with(async |_held| ())).await;
    fixture.assert_recovered().await;
    // No client renews a hold without an owner.
    assert_eq!(fixture.proxy.count(renew()), 0);
}

#[tokio::test]
async fn an_inner_acquire_cancelled_before_its_reply_is_undone() {
    let fixture = fixture().await;
    let outer = take(&fixture.lock()).await;
    unanswered(&fixture, acquire_to(2), fixture.lock().lock()).await;
    eventually(SOON, "the count is lowered again", async || {
        fixture.counts().await == ["1"]
    })
    .await;
    assert!(outer.is_valid() && outer.hold_count() == 1);
    outer.unlock().await.unwrap();
    fixture.assert_recovered().await;
}

#[tokio::test]
async fn an_unlock_cancelled_before_its_reply_releases_the_lock() {
    let fixture = fixture().await;
    let outer = take(&fixture.lock()).await;
    let inner = take(&fixture.lock()).await;
    unanswered(&fixture, unlock_to(1), inner.unlock()).await;
    assert_eq!(
        (outer.hold_count(), fixture.counts().await),
        (1, vec!["1".to_owned()])
    );
    given_up(&fixture, 1).await;
    unanswered(&fixture, unlock_to(0), outer.unlock()).await;
    fixture.assert_recovered().await;
    given_up(&fixture, 2).await;
    take(&fixture.lock()).await.forget();
    unanswered(&fixture, unlock_to(0), fixture.lock().unlock()).await;
    fixture.assert_recovered().await;
}

#[tokio::test]
async fn a_force_unlock_cancelled_before_its_reply_frees_the_lock() {
    let fixture = fixture().await;
    let others = take(&fixture.others_lock().await).await;
    unanswered(&fixture, force_unlock(), fixture.lock().force_unlock()).await;
    assert!(fixture.is_free().await);
    drop(others);
    fixture.assert_recovered().await;
}

#[tokio::test]
async fn a_shutdown_cancelled_before_its_reply_releases_the_lock() {
    let fixture = fixture().await;
    let guard = take(&fixture.lock()).await;
    unanswered(&fixture, settle(), fixture.client.shutdown()).await;
    assert!(fixture.is_free().await && !guard.is_valid());
    fixture.assert_recovered().await;
}

/// A query changes nothing on the server, so only the next command detects the silent connection.
#[tokio::test]
async fn a_connection_that_answers_no_query_is_abandoned() {
    let fixture = fixture().await;
    let rule = fixture.proxy.on(named("EXISTS"), Action::DropReply);
    let error = fixture.lock().is_locked().await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    rule.wait_hits(1).await;
    // On a busy machine the answer may come too late.
    assert!(!until_ok(SOON, async || fixture.lock().is_locked().await).await);
    let _held = take(&fixture.others_lock().await).await;
    let rule = fixture.proxy.on(force_unlock(), Action::DropReply);
    let error = fixture.lock().force_unlock().await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    rule.wait_hits(1).await;
    assert!(!until_ok(SOON, async || fixture.lock().force_unlock().await).await);
}

#[tokio::test]
async fn a_waiter_dropped_while_it_subscribes_leaves_no_channel_and_the_next_waiter_subscribes() {
    for dropped in [true, false] {
        let fixture = Fixture::with(|client| client.poll_cap(SOON * 6)).await;
        let others = take(&fixture.others_lock().await).await;
        let gate = Gate::new();
        fixture
            .proxy
            .on(named("SUBSCRIBE"), Action::HoldReply(gate.clone()));
        let lock = fixture.lock();
        if dropped {
            let mut wait = pin!(lock.try_lock().wait(SOON * 6).into_future());
            tokio::select! {
                _ = &mut wait => panic!("another holds it"),
                () = gate.wait_reached() => {}
            }
        } else {
            // The wait ends while the subscription is in flight.
            let wait = lock.try_lock().wait(PATIENCE);
            let (none, ()) = tokio::join!(wait.into_future(), gate.wait_reached());
            assert!(none.unwrap().is_none());
        }
        // The next waiter subscribes to the same channel before the first subscription is confirmed.
        let wait = tokio::spawn(lock.try_lock().wait(SOON * 6).into_future());
        gate.open();
        gate.wait_passed().await;
        let channel = "redisson_lock__channel:{orders:42}";
        eventually(SOON, "it is subscribed", async || {
            fixture.redis.channels().await == [channel]
        })
        .await;
        others.unlock().await.unwrap();
        // Neither the poll cap nor a lease woke it.
        let woken = tokio::time::timeout(SOON, wait).await.expect("a message");
        drop(woken.unwrap().unwrap().expect("it came free"));
        fixture.assert_recovered().await;
    }
}

/// Invariant 9: a wake-up is not lost with the waiter that it was for.
#[tokio::test]
async fn a_waiter_dropped_after_its_wake_up_passes_the_lock_on() {
    let fixture = Fixture::with(|client| client.poll_cap(SOON * 6)).await;
    let others = take(&fixture.others_lock().await).await;
    let lock = fixture.lock();
    let mut first = pin!(lock.lock().into_future());
    eventually(SOON, "the first waits with a subscription", async || {
        assert!(poll_once(first.as_mut()).await.is_none(), "it is held");
        fixture.redis.channels().await.len() == 1 && fixture.proxy.count(acquire_to(1)) >= 2
    })
    .await;
    // The second attempt has to be answered before the future is left.
    for _ in 0..20 {
        assert!(poll_once(first.as_mut()).await.is_none(), "it is held");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let second = tokio::spawn(lock.try_lock().wait(SOON * 6).into_future());
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    let messages = fixture.redis.messages("*").await;
    others.unlock().await.unwrap();
    eventually(SOON, "the message came", async || {
        !messages.seen().is_empty()
    })
    .await;
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    // It is woken, and not polled again.
    first.set(lock.lock().into_future());
    let woken = tokio::time::timeout(SOON, second).await.expect("passed on");
    drop(woken.unwrap().unwrap().expect("it came free"));
    drop(messages);
    fixture.assert_recovered().await;
}

async fn fixture() -> Fixture {
    Fixture::with(|client| client.command_timeout(PATIENCE)).await
}

/// Starts a call, lets the server run its command, drops the reply, and drops the call.
async fn unanswered(fixture: &Fixture, matches: impl Matches, call: impl IntoFuture) {
    let rule = fixture.proxy.on(matches, Action::DropReply);
    let mut call = pin!(call.into_future());
    tokio::select! {
        biased;
        () = rule.wait_hits(1) => {}
        _ = &mut call => panic!("it has no answer"),
    }
    assert_eq!(rule.hits(), 1);
}

/// Waits until the client has closed the `n`-th silent connection, because no rule applies on a silent one.
async fn given_up(fixture: &Fixture, n: usize) {
    fixture.proxy.wait_for(kill(), n).await;
}
