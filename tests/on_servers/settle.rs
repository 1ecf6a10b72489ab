//! Abandoned commands are undone, whenever they run.

use std::pin::pin;

use super::{PLAIN, SOON, TestMember, ms};
use crate::error::LostReason;
use crate::hold::{ClaimFlags, HoldPhase, HoldState};
use crate::owner::Owner;
use crate::session::{Job, settle};
use crate::support::eventually;
use crate::wait::{WaitRequest, WaiterKind};

/// A job settles a hold without waiting for the hold's last command, and the server says that there is
/// nothing to undo. The acquire arrives after that, and its sender finds a broken connection.
#[tokio::test]
async fn an_acquire_that_arrives_after_its_settlement_is_undone_by_the_second_attempt() {
    let member = TestMember::start().await;
    let (core, lock) = (&member.core, member.client.lock("l"));
    let hold = core.holds.enter(lock.key().unwrap(), Owner::new());
    hold.state().sending(core.clock.now(), ms(60_000));
    let node = core.server.node("").unwrap();
    let on = node.endpoint().open_own(ms(3000)).await.unwrap();
    core.holds.change(&hold, HoldState::end_pending);
    core.settle_in_background(Job::without_turn(hold.clone()));
    eventually(SOON, "there is nothing to undo", async || {
        core.holds.numbered(hold.key(), hold.number()).is_none()
    })
    .await;
    member.acquire(&core.field(&hold), PLAIN).await.unwrap();
    assert!(member.redis.exists("l").await);
    node.kill(&on, ms(3000)).await;
    core.settle_in_background(Job::after(hold, None, Some(on)));
    eventually(SOON, "it is undone", async || {
        !member.redis.exists("l").await
    })
    .await;
}

/// For example the watchdog of its client failed: the server keeps the lock for the rest of a long
/// lease.
#[tokio::test]
async fn forgetting_a_lost_guard_frees_the_lock() {
    let member = TestMember::start().await;
    let lock = member.client.lock("l");
    let guard = lock.lock().lease(ms(60_000)).await.unwrap();
    let hold = member.core.holds.all().pop().unwrap();
    assert!(member.core.lose_without_log(&hold, LostReason::Watchdog));
    assert!(member.redis.exists("l").await);
    guard.forget();
    eventually(SOON, "the lock is free", async || {
        !member.redis.exists("l").await
    })
    .await;
    assert_eq!(hold.state().phase, HoldPhase::Ended);
}

/// The watchdog decides that no waiter takes a grant, and the waiter takes it before the watchdog acts
/// on the decision.
#[tokio::test]
async fn a_grant_that_its_waiter_took_is_released_by_its_guard_only() {
    let member = TestMember::start().await;
    let lock = member.client.lock("l");
    let guard = lock.lock().lease(ms(60_000)).await.unwrap();
    let hold = member.core.holds.all().pop().unwrap();
    member.core.abandon(&hold);
    // Jobs run in the order of their arrival, so this release comes later.
    drop(member.client.lock("other").lock().await.unwrap());
    eventually(SOON, "the other lock is free", async || {
        !member.redis.exists("other").await
    })
    .await;
    assert!(guard.is_valid() && member.redis.exists("l").await);
    guard.unlock().await.unwrap();
}

/// Two guards of a lost hold end on two threads. The guard that did not end last has nothing to
/// forget, even if the other one ends before it checks again.
#[tokio::test]
async fn a_hold_stays_listed_until_its_release_is_settled_despite_other_drops() {
    let member = TestMember::start().await;
    let lock = member.client.lock("l");
    let (outer, inner) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
    let hold = member.core.holds.all().pop().unwrap();
    assert!(member.core.lose_without_log(&hold, LostReason::Watchdog));
    let now = member.now();
    let flags = WATCHED;
    let drops = |state: &mut HoldState| state.drop_claim(flags, now);
    let first = member.core.holds.change(&hold, drops);
    let second = member.core.holds.change(&hold, drops);
    // Each drop acts on the result of its own change.
    member.core.after_drop(&hold, first);
    assert!(
        member
            .core
            .holds
            .numbered(hold.key(), hold.number())
            .is_some()
    );
    member.core.after_drop(&hold, second);
    eventually(SOON, "it is settled", async || {
        member.core.holds.all().is_empty() && !member.redis.exists("l").await
    })
    .await;
    drop((outer, inner));
}

/// The count of one was sent, and the last guard ends before the answer. The field still exists, so an
/// acquirer must know that the lock is being released.
#[tokio::test]
async fn a_hold_stays_listed_when_an_earlier_count_is_settled_after_its_end() {
    let member = TestMember::start().await;
    let lock = member.client.lock("l");
    let (outer, inner) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
    let hold = member.core.holds.all().pop().unwrap();
    let (now, flags) = (member.now(), WATCHED);
    let drops = |state: &mut HoldState| state.drop_claim(flags, now);
    member.core.holds.change(&hold, drops);
    assert_eq!(hold.state().target(), 1);
    let mut job = Job::new(hold.clone());
    assert!(job.try_turn());
    // The connection is already open, so the count is sent at once.
    let node = member.core.server.node("").unwrap();
    node.own_connection(ms(3000)).await.unwrap();
    member.server.pause();
    let mut settling = pin!(settle(&member.core, job));
    let early = tokio::time::timeout(ms(500), settling.as_mut()).await;
    assert!(early.is_err(), "it is on its way");
    member.core.holds.change(&hold, drops);
    member.server.resume();
    assert!(settling.await.is_none(), "it was answered");
    let is_listed = || {
        let holds = &member.core.holds;
        holds.numbered(hold.key(), hold.number()).is_some()
    };
    assert!(is_listed());
    assert!(member.redis.exists("l").await);
    member.core.settle_in_background(Job::new(hold.clone()));
    eventually(SOON, "it is settled", async || {
        !is_listed() && !member.redis.exists("l").await
    })
    .await;
    drop((outer, inner));
}

/// The contender met an outage and gave up its role. Its client has acquired the lock since: it is
/// busy.
#[tokio::test]
async fn a_waiter_behind_a_holder_of_its_client_reports_no_earlier_outage() {
    let member = TestMember::start().await;
    let lock = member.client.lock("l");
    let guard = lock.lock().owner(&Owner::new()).await.unwrap();
    let request = WaitRequest {
        owner: Owner::new(),
        terms: None,
        deadline: None,
        kind: WaiterKind::Sole,
    };
    let key = lock.key().unwrap();
    let place = member
        .core
        .waiters
        .enter(key, request, member.now())
        .unwrap();
    place.note_outage(Some(&crate::Error::timeout(ms(3000))));
    let waiter = Owner::new();
    let busy = lock.try_lock().owner(&waiter).wait(ms(100)).await;
    assert!(matches!(busy, Ok(None)), "{busy:?}");
    assert!(guard.is_valid());
}

const WATCHED: ClaimFlags = ClaimFlags {
    watched: true,
    local: false,
    part: false,
    weight: 1,
};
