//! A command that arrives twice, or late, or after its connection was closed, counts once.

use std::time::Duration;

use lockdog::{Owner, Unlocked};

use crate::faults::fixture::{Fixture, NAME, take};
use crate::faults::scripts::{acquire, acquire_to, force_unlock, unlock_to};
use crate::support::{Action, Gate};

#[tokio::test]
async fn commands_that_arrive_twice_count_once() {
    let fixture = Fixture::start().await;
    let lock = fixture.lock();
    let rules = [
        fixture.proxy.on(acquire_to(1), Action::Twice),
        fixture.proxy.on(acquire_to(2), Action::Twice),
        fixture.proxy.on(unlock_to(1), Action::Twice),
        fixture.proxy.on(unlock_to(0), Action::Twice),
    ];
    let outer = lock.lock().await.unwrap();
    rules[0].wait_hits(1).await;
    assert_eq!((outer.hold_count(), fixture.counts().await), (1, one("1")));
    let inner = lock.lock().await.unwrap();
    rules[1].wait_hits(1).await;
    assert_eq!((inner.hold_count(), fixture.counts().await), (2, one("2")));
    let kept = Unlocked::StillHeld { count: 1 };
    assert_eq!(inner.unlock().await.unwrap(), kept);
    rules[2].wait_hits(1).await;
    assert_eq!((outer.hold_count(), fixture.counts().await), (1, one("1")));
    assert_eq!(outer.unlock().await.unwrap(), Unlocked::Released);
    rules[3].wait_hits(1).await;
    assert!(fixture.is_free().await);
    fixture.redis.assert_clean().await;
}

/// Invariant 7 of docs/design.md.
#[tokio::test]
async fn a_late_unlock_does_not_free_the_next_hold_of_its_owner() {
    let fixture = Fixture::start().await;
    let (lock, owner, gate) = (fixture.lock(), Owner::new(), Gate::new());
    let late = fixture
        .proxy
        .on(unlock_to(0), Action::TwiceLate(gate.clone()));
    let first = lock.lock().owner(&owner).await.unwrap();
    first.unlock().await.unwrap();
    let second = lock.lock().owner(&owner).await.unwrap();
    let field = fixture.holder().await;
    gate.wait_reached().await;
    gate.open();
    gate.wait_passed().await;
    assert_eq!(late.hits(), 1);
    assert_eq!(fixture.holder().await, field);
    assert_eq!(second.unlock().await.unwrap(), Unlocked::Released);
    assert!(fixture.is_free().await);
}

/// Invariant 7 of docs/design.md.
#[tokio::test]
async fn an_unlock_that_outlives_its_connection_does_not_free_the_next_hold_of_its_owner() {
    let fixture = Fixture::start().await;
    let (lock, owner, gate) = (fixture.lock(), Owner::new(), Gate::new());
    let first = lock.lock().owner(&owner).await.unwrap();
    let late = fixture
        .proxy
        .on(unlock_to(0), Action::HoldRequest(gate.clone()));
    let cut = async {
        gate.wait_reached().await;
        assert!(fixture.proxy.cut_all() >= 1);
    };
    let (unlocked, ()) = tokio::join!(first.unlock(), cut);
    assert_eq!(unlocked.unwrap(), Unlocked::Released);
    let second = lock.lock().owner(&owner).await.unwrap();
    let field = fixture.holder().await;
    assert_eq!(late.hits(), 0);
    gate.open();
    gate.wait_passed().await;
    assert_eq!((late.hits(), fixture.holder().await), (1, field));
    assert_eq!(second.unlock().await.unwrap(), Unlocked::Released);
    fixture.assert_recovered().await;
}

/// Invariants 3 and 7 of docs/design.md.
#[tokio::test]
async fn late_inner_commands_have_no_lasting_effect() {
    let fixture = Fixture::start().await;
    let lock = fixture.lock();
    let (acquired, unlocked) = (Gate::new(), Gate::new());
    let outer = lock.lock().await.unwrap();
    fixture
        .proxy
        .on(acquire_to(2), Action::TwiceLate(acquired.clone()));
    fixture
        .proxy
        .on(unlock_to(1), Action::TwiceLate(unlocked.clone()));
    lock.lock().await.unwrap().unlock().await.unwrap();
    let inner = lock.lock().await.unwrap();
    pass(&unlocked).await;
    // The late unlock left a count of one. No client may lose the lock because of it.
    assert_eq!(inner.hold_count(), 2);
    let kept = Unlocked::StillHeld { count: 1 };
    assert_eq!(inner.unlock().await.unwrap(), kept);
    assert!(outer.is_valid() && !fixture.is_free().await);
    pass(&acquired).await;
    // The late acquire set a count of two. The final unlock ends the hold with any count.
    assert_eq!(fixture.counts().await, one("2"));
    assert_eq!(outer.unlock().await.unwrap(), Unlocked::Released);
    assert!(fixture.is_free().await);
}

/// Invariant 3 of docs/design.md.
#[tokio::test]
async fn a_late_inner_acquire_takes_no_free_lock() {
    let fixture = Fixture::start().await;
    let (lock, gate) = (fixture.lock(), Gate::new());
    fixture
        .proxy
        .on(acquire_to(2), Action::TwiceLate(gate.clone()));
    let outer = lock.lock().await.unwrap();
    lock.lock().await.unwrap().unlock().await.unwrap();
    outer.unlock().await.unwrap();
    pass(&gate).await;
    assert!(fixture.is_free().await);
}

/// Invariant 6 of docs/design.md.
#[tokio::test]
async fn a_late_acquire_leaves_an_orphan_for_one_lease_at_most() {
    let fixture = Fixture::start().await;
    let (lock, owner, gate) = (fixture.lock(), Owner::new(), Gate::new());
    let lease = Duration::from_millis(4_800);
    let late = fixture
        .proxy
        .on(acquire(), Action::HoldRequest(gate.clone()));
    let cut = async {
        gate.wait_reached().await;
        assert!(fixture.proxy.cut_all() >= 1);
    };
    let (guard, ()) = tokio::join!(lock.lock().lease(lease).owner(&owner), cut);
    let guard = guard.unwrap();
    assert_eq!((guard.hold_count(), fixture.counts().await), (1, one("1")));
    let field = fixture.holder().await;
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    gate.open();
    gate.wait_passed().await;
    assert_eq!(late.hits(), 1);
    // Its owner neither holds nor re-enters it, and no client renews it.
    assert_eq!(fixture.holder().await, field);
    assert!(!lock.is_held_by(&owner).await.unwrap());
    assert!(lock.try_lock().owner(&owner).await.unwrap().is_none());
    assert!(fixture.client.holds().is_empty());
    let left = fixture.redis.pttl(NAME).await;
    assert!(left <= lease.as_millis() as i64, "{left}");
    let next = lock.lock().owner(&owner).await.unwrap();
    assert_ne!(fixture.holder().await, field);
    next.unlock().await.unwrap();
    fixture.assert_recovered().await;
}

/// Invariants 3 and 7 of docs/design.md.
#[tokio::test]
async fn a_late_acquire_of_a_living_hold_counts_once() {
    let fixture = Fixture::start().await;
    let (lock, gate) = (fixture.lock(), Gate::new());
    fixture.proxy.on(acquire(), Action::TwiceLate(gate.clone()));
    let guard = lock.lock().await.unwrap();
    pass(&gate).await;
    assert_eq!((guard.hold_count(), fixture.counts().await), (1, one("1")));
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    assert!(fixture.is_free().await);
}

/// Invariant 12 of docs/design.md.
#[tokio::test]
async fn a_late_force_unlock_does_not_free_the_next_holder() {
    let fixture = Fixture::start().await;
    let (lock, others) = (fixture.lock(), fixture.others_lock().await);
    for outlives_its_connection in [false, true] {
        let first = take(&others).await;
        let gate = Gate::new();
        let action = if outlives_its_connection {
            Action::HoldRequest(gate.clone())
        } else {
            Action::TwiceLate(gate.clone())
        };
        let late = fixture.proxy.on(force_unlock(), action);
        let cut = async {
            gate.wait_reached().await;
            if outlives_its_connection {
                assert!(fixture.proxy.cut_all() >= 1);
            }
        };
        let (freed, ()) = tokio::join!(lock.force_unlock().into_future(), cut);
        assert!(freed.unwrap());
        assert!(fixture.is_free().await);
        drop(first);
        let next = take(&others).await;
        let field = fixture.holder().await;
        assert_eq!(late.hits(), 0);
        gate.open();
        gate.wait_passed().await;
        assert_eq!((late.hits(), fixture.holder().await), (1, field));
        assert_eq!(next.unlock().await.unwrap(), Unlocked::Released);
    }
    fixture.assert_recovered().await;
}

/// Invariant 12 of docs/design.md.
#[tokio::test]
async fn a_force_unlock_repeated_after_a_lost_reply_frees_the_lock() {
    let fixture = Fixture::start().await;
    let _first = take(&fixture.others_lock().await).await;
    let rule = fixture.proxy.on(force_unlock(), Action::ExecuteThenCut);
    assert!(fixture.lock().force_unlock().await.unwrap());
    assert_eq!((rule.hits(), fixture.proxy.count(force_unlock())), (1, 2));
    assert!(fixture.is_free().await);
}

async fn pass(gate: &Gate) {
    gate.wait_reached().await;
    gate.open();
    gate.wait_passed().await;
}

fn one(count: &str) -> Vec<String> {
    vec![count.to_owned()]
}
