//! After a hand-over the lock has the receiver's lease.

use std::time::{Duration, Instant};

use lockdog::error::LostReason;
use lockdog::{Client, Owner, Unlocked};

use super::{finish, got, held_with_next, patient, transfers};
use crate::faults::SOON;
use crate::faults::fixture::{Fixture, NAME};
use crate::faults::scripts::{renew, transfer};
use crate::support::{Action, Gate, eventually};

#[tokio::test]
async fn the_lease_in_redis_is_the_receivers() {
    let fixture = Fixture::with(|client| client.watchdog_lease(WATCHED).poll_cap(LONG)).await;
    let lock = fixture.lock();
    for (first, next) in [
        (None, Some(SHORT)),
        (Some(SHORT), None),
        (Some(LONG), Some(SHORT)),
    ] {
        let request = |lease: Option<Duration>| {
            let request = lock.lock().owner(&Owner::new());
            match lease {
                Some(lease) => request.lease(lease),
                None => request,
            }
        };
        let held = request(first).await.unwrap();
        let waiting = tokio::spawn(request(next).into_future());
        tokio::task::yield_now().await;
        let before = transfers(&fixture);
        assert_eq!(held.unlock().await.unwrap(), Unlocked::Released);
        let next_guard = got(waiting).await;
        assert_eq!(transfers(&fixture), before + 1);
        let lease = next.unwrap_or(WATCHED);
        let ttl = Duration::from_millis(fixture.redis.pttl(NAME).await as u64);
        assert!(ttl <= lease && ttl + LATE > lease, "{ttl:?} of {lease:?}");
        assert!(
            next_guard.remaining() <= ttl,
            "{:?}",
            next_guard.remaining()
        );
        let holds = fixture.client.holds();
        assert_eq!(holds.len(), 1);
        assert_eq!(holds[0].watched, next.is_none());
        finish(&fixture, next_guard).await;
    }
}

/// Invariant 2: the deadline counts from the moment before the first sending.
#[tokio::test]
async fn the_receivers_deadline_counts_from_the_sending_of_the_hand_over() {
    let fixture = patient().await;
    let lock = fixture.lock();
    for action in [Action::HoldReply, Action::HoldRequest] {
        let held = lock.lock().owner(&Owner::new()).await.unwrap();
        let next = lock.lock().lease(LONG).owner(&Owner::new());
        let next = tokio::spawn(next.into_future());
        tokio::task::yield_now().await;
        let gate = Gate::new();
        fixture.proxy.on(transfer(), action(gate.clone()));
        let latest = async {
            gate.wait_reached().await;
            // It was sent before the proxy received it.
            let latest = Instant::now() + LONG - LONG / 100 - Duration::from_millis(2);
            tokio::time::sleep(Duration::from_millis(300)).await;
            gate.open();
            latest
        };
        let (unlocked, latest) = tokio::join!(held.unlock(), latest);
        assert_eq!(unlocked.unwrap(), Unlocked::Released);
        let next = got(next).await;
        let deadline = Instant::now() + next.remaining();
        assert!(deadline <= latest, "{:?} too late", deadline - latest);
        finish(&fixture, next).await;
    }
}

/// Invariant 2: a grant that is answered after its own deadline does not count.
#[tokio::test]
async fn a_hand_over_answered_after_its_lease_is_no_grant() {
    let fixture = patient().await;
    let lock = fixture.lock();
    let held = lock.lock().owner(&Owner::new()).await.unwrap();
    let short = Duration::from_millis(200);
    let next = lock.try_lock().wait(SOON).lease(short).owner(&Owner::new());
    let next = tokio::spawn(next.into_future());
    tokio::task::yield_now().await;
    let gate = Gate::new();
    fixture
        .proxy
        .on(transfer(), Action::HoldReply(gate.clone()));
    let late = async {
        gate.wait_reached().await;
        tokio::time::sleep(short * 2).await;
        gate.open();
    };
    let (unlocked, ()) = tokio::join!(held.unlock(), late);
    assert_eq!(unlocked.unwrap(), Unlocked::Released);
    // The waiter sends its own acquire.
    let next = tokio::time::timeout(SOON, next).await.unwrap().unwrap();
    let next = next.unwrap().expect("it is free");
    assert!(next.remaining() <= short);
    drop(next);
    fixture.assert_recovered().await;
}

/// Invariant 5: the watchdog renews the hold, and its guard reports the loss.
#[tokio::test]
async fn a_watched_hold_is_renewed_after_a_hand_over_and_reports_its_loss() {
    let lease = Duration::from_secs(5);
    let fixture = Fixture::with(|client| client.watchdog_lease(lease).poll_cap(LONG)).await;
    let (held, next) = held_with_next(&fixture).await;
    held.unlock().await.unwrap();
    let next = got(next).await;
    assert_eq!(transfers(&fixture), 1);
    let before = fixture.proxy.count(renew());
    fixture.proxy.wait_for(renew(), before + 2).await;
    assert!(next.is_valid());
    assert_eq!(fixture.counts().await, ["1"]);
    fixture.redis.cmd(&["DEL", NAME]).await;
    let lost = tokio::time::timeout(SOON, next.lost()).await.unwrap();
    assert_eq!(lost.reason(), LostReason::NotOurs);
    assert!(next.unlock().await.unwrap_err().is_lost());
    fixture.assert_recovered().await;
}

/// Design: a fixed lease ends the hold, also after a hand-over.
#[tokio::test]
async fn a_fixed_lease_ends_after_a_hand_over() {
    let fixture = Fixture::start().await;
    let lock = fixture.lock();
    let held = lock.lock().owner(&Owner::new()).await.unwrap();
    let lease = Duration::from_millis(3_000);
    let next = lock.lock().lease(lease).owner(&Owner::new());
    let next = tokio::spawn(next.into_future());
    tokio::task::yield_now().await;
    held.unlock().await.unwrap();
    let next = got(next).await;
    let lost = tokio::time::timeout(SOON, next.lost()).await.unwrap();
    assert_eq!(lost.reason(), LostReason::Deadline);
    assert!(!next.is_valid());
    eventually(SOON, "it is free", async || fixture.is_free().await).await;
    drop(next);
    fixture.assert_recovered().await;
}

/// With a short lease, a handed-over hold is not lost in its first renewal period.
#[tokio::test]
async fn holds_handed_over_repeatedly_outlive_each_lease() {
    let fixture = Fixture::start().await;
    let lease = Duration::from_millis(4_800);
    let client = Client::builder()
        .url(fixture.server.url())
        .watchdog_lease(lease);
    let client = client.build().await.unwrap();
    let lock = client.lock(NAME);
    let mut held = lock.lock().owner(&Owner::new()).await.unwrap();
    let began = Instant::now();
    while began.elapsed() < lease * 2 {
        let next = super::in_line(&lock).await;
        tokio::time::sleep(lease / 2).await;
        assert_eq!(held.unlock().await.unwrap(), Unlocked::Released);
        held = got(next).await;
        assert!(held.is_valid());
    }
    held.unlock().await.unwrap();
    fixture.assert_recovered().await;
}

const WATCHED: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_secs(20);
/// Less than any two of the leases differ by.
const LATE: Duration = Duration::from_millis(9_500);
const LONG: Duration = Duration::from_secs(90);
