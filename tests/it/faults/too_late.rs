//! Answers that come after their deadline.

use std::time::{Duration, Instant};

use lockdog::{Error, Unlocked};

use crate::faults::SOON;
use crate::faults::fixture::{Fixture, take};
use crate::faults::scripts::{acquire, settle, unlock_to};
use crate::support::prelude::LONG;
use crate::support::{Action, Gate, eventually};

#[tokio::test]
async fn a_repeated_unlock_that_finds_nothing_after_the_deadline_is_unconfirmed() {
    let fixture = Fixture::start().await;
    // On a busy machine the lease may be over before the unlock is sent or repeated.
    eventually(LONG, "the unlock is repeated after its lease", async || {
        is_unconfirmed(&fixture).await
    })
    .await;
    fixture.assert_recovered().await;
}

/// False if the unlock was not executed, or not repeated, before the end of the lease.
async fn is_unconfirmed(fixture: &Fixture) -> bool {
    let lease = Duration::from_millis(1_000);
    let Ok(guard) = fixture.lock().lock().lease(lease).await else {
        return false;
    };
    let until = Instant::now() + lease;
    let rule = fixture.proxy.on(unlock_to(0), Action::ExecuteThenCut);
    let refused = fixture.proxy.counts().refused;
    fixture.proxy.refuse();
    let heal = async {
        tokio::time::sleep_until(until.into()).await;
        let refused = fixture.proxy.counts().refused - refused;
        fixture.proxy.heal();
        refused
    };
    let (unlocked, refused) = tokio::join!(guard.unlock(), heal);
    if rule.hits() == 0 || refused == 0 {
        rule.remove();
        return false;
    }
    let error = unlocked.unwrap_err();
    let Error::UnlockUnconfirmed(unconfirmed) = &error else {
        panic!("it may have been the lease that ended the hold: {error}");
    };
    assert!(unconfirmed.cause().is_none(), "{error}");
    assert!(error.may_be_held() && !error.is_timeout(), "{error}");
    true
}

/// The deadline has not passed, so the lock was still ours.
#[tokio::test]
async fn a_repeated_unlock_that_finds_nothing_before_the_deadline_succeeds() {
    let fixture = Fixture::start().await;
    let guard = fixture.lock().lock().lease(SOON).await.unwrap();
    let rule = fixture.proxy.on(unlock_to(0), Action::ExecuteThenCut);
    fixture.proxy.refuse();
    let heal = async {
        rule.wait_hits(1).await;
        eventually(SOON, "a connection is refused", async || {
            fixture.proxy.counts().refused >= 1
        })
        .await;
        fixture.proxy.heal();
    };
    let (unlocked, ()) = tokio::join!(guard.unlock(), heal);
    assert_eq!(unlocked.unwrap(), Unlocked::Released);
}

/// Design: invariant 2.
#[tokio::test]
async fn a_grant_answered_after_its_deadline_does_not_count_and_is_undone() {
    let fixture = Fixture::with(|client| client.command_timeout(SOON)).await;
    let messages = fixture.redis.messages("*").await;
    let (lock, gate) = (fixture.lock(), Gate::new());
    let lease = Duration::from_millis(2_500);
    // The lease begins on the server only when the gate opens, so the client, and not the server, undoes
    // the grant.
    fixture
        .proxy
        .on(acquire(), Action::HoldRequest(gate.clone()));
    let release = async {
        gate.wait_reached().await;
        tokio::time::sleep(lease).await;
        gate.open();
        gate.wait_passed().await;
    };
    let (refused, ()) = tokio::join!(lock.try_lock().lease(lease).into_future(), release);
    let error = refused.expect_err("no other owner holds it, so it is not busy");
    assert!(error.is_timeout() && error.may_be_held(), "{error}");
    assert!(fixture.client.holds().is_empty());
    fixture.proxy.wait_for(settle(), 1).await;
    eventually(SOON, "it was undone, not just run out", async || {
        !messages.seen().is_empty()
    })
    .await;
    fixture.assert_recovered().await;
}

/// Design: invariant 2.
#[tokio::test]
async fn a_wait_continues_after_a_grant_that_came_too_late() {
    let fixture = Fixture::with(|client| client.command_timeout(SOON)).await;
    let (lock, gate) = (fixture.lock(), Gate::new());
    let lease = Duration::from_millis(2_000);
    fixture
        .proxy
        .on(acquire(), Action::HoldRequest(gate.clone()));
    let release = async {
        gate.wait_reached().await;
        tokio::time::sleep(lease).await;
        gate.open();
    };
    let waiting = lock.try_lock().wait(SOON * 3).lease(lease);
    let (guard, ()) = tokio::join!(waiting.into_future(), release);
    let guard = guard.unwrap().expect("the lock is free");
    assert!(guard.is_valid());
    drop(guard);
    take(&lock).await.unlock().await.unwrap();
    fixture.assert_recovered().await;
}
