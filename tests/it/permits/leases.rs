//! How long permits are in use, and how their holders are notified of a loss.

use std::time::Duration;

use lockdog::error::LostReason;
use lockdog::report::{Ttl, Verdict};
use lockdog::{Error, LeasedPermit};

use super::{Fixture, IN_USE, LEASE, LONG, NAME, NEVER, SOON, ms};
use crate::support::{Proxy, eventually, until_ok};

#[tokio::test]
async fn the_watchdog_renews_a_permit_without_a_lease() {
    let test = Fixture::with(2, |client| client.watchdog_lease(LEASE)).await;
    let permit = test.seats.acquire().await.unwrap();
    let fixed = test.seats.acquire().lease(LONG).await.unwrap();
    let ends = async |permit: &LeasedPermit| {
        let in_use = test.in_use().await;
        let found = in_use.iter().find(|(id, _)| permit.ids().contains(id));
        found.expect("it is in use").1
    };
    let (first, of_fixed) = (ends(&permit).await, ends(&fixed).await);
    tokio::time::sleep(LEASE + ms(500)).await;
    // On a busy machine a renewal may be late, and puts the permit in jeopardy for a moment.
    eventually(SOON, "it is held", async || {
        permit.verdict() == Verdict::Held
    })
    .await;
    assert!(ends(&permit).await >= first + 2_000.0, "it was not renewed");
    assert_eq!(ends(&fixed).await, of_fixed, "a fixed lease is not renewed");
    // Another client cannot take it.
    assert!(test.another().await.try_acquire().await.unwrap().is_none());
    permit.release().await.unwrap();
    fixed.release().await.unwrap();
    test.eventually_free().await;
}

/// PE4.
#[tokio::test]
async fn a_hundred_permits_are_renewed_by_one_command() {
    let test = Fixture::with_permits(150).await;
    let proxy = Proxy::start(&test.server).await;
    let client = lockdog::Client::builder().url(proxy.url());
    let client = client.watchdog_lease(LEASE).build().await.unwrap();
    let seats = client.permit_semaphore(NAME);
    let text = include_str!("../../../lua/permit/renew.lua");
    test.redis.cmd(&["SCRIPT", "LOAD", text]).await;
    let digest = redis::Script::new(text).get_hash().to_owned();
    let renewals = move |args: &[String]| args.get(1) == Some(&digest);
    let hundred = seats.acquire_many(100).await.unwrap();
    proxy.wait_for(&renewals, 1).await;
    let sent = proxy.commands();
    let renewal = sent.iter().find(|command| renewals(&command.args));
    let renewal = renewal.expect("it was sent");
    assert_eq!(renewal.args[2], "100", "{} keys", renewal.args[2]);
    eventually(SOON, "all are renewed", async || {
        hundred.remaining() > LEASE / 2 && hundred.is_valid()
    })
    .await;
    hundred.release().await.unwrap();
    assert_eq!(test.free().await, 150);
}

#[tokio::test]
async fn a_permit_with_a_lease_is_lost_when_it_ends() {
    let test = Fixture::with_permits(1).await;
    let permit = until_ok(SOON, async || test.seats.acquire().lease(ms(1_500)).await).await;
    let lost = tokio::time::timeout(SOON, permit.lost()).await.unwrap();
    assert_eq!(lost.reason(), LostReason::Deadline);
    assert_eq!(permit.verdict(), Verdict::Lost(LostReason::Deadline));
    // The next acquire reclaims it.
    let next = tokio::time::timeout(SOON, test.seats.acquire().into_future()).await;
    let next = next.unwrap().unwrap();
    let error = permit.release().await.unwrap_err();
    assert!(matches!(error, Error::Lost(_)), "{error}");
    assert!(next.is_valid());
    test.assert_total().await;
    next.release().await.unwrap();
    test.eventually_free().await;
}

/// PE1 and PE2 with an expired permit that no client took back.
#[tokio::test]
async fn an_expired_permit_counts_as_free_before_it_is_returned() {
    let test = Fixture::with_permits(2).await;
    let both = async || test.seats.acquire_many(2).lease(ms(2_000)).await;
    let ids = until_ok(SOON, both).await.into_ids();
    eventually(SOON, "they expire", async || {
        test.seats.lease_of(&ids[0]).await.unwrap().is_none()
    })
    .await;
    assert_eq!((test.free().await, test.in_use().await.len()), (0, 2));
    assert_eq!(test.seats.available().await.unwrap(), 2);
    assert_eq!(test.seats.acquired().await.unwrap(), 0);
    assert_eq!(test.seats.permits().await.unwrap(), 2);
    let one = test.seats.try_acquire().await.unwrap().expect("it is free");
    assert_eq!((test.free().await, test.in_use().await.len()), (1, 1));
    drop(one);
    test.eventually_free().await;
}

/// PE1: one attempt returns as many expired permits as it needs, and not only a hundred.
#[tokio::test]
async fn one_attempt_gets_more_than_a_hundred_expired_permits() {
    let test = Fixture::with_permits(250).await;
    let all = async || test.seats.acquire_many(250).lease(ms(2_000)).await;
    let ids = until_ok(SOON, all).await.into_ids();
    eventually(SOON, "they expire", async || {
        test.seats.lease_of(&ids[0]).await.unwrap().is_none()
    })
    .await;
    assert_eq!((test.free().await, test.in_use().await.len()), (0, 250));
    let again = test.seats.try_acquire_many(250).lease(LONG).await.unwrap();
    let again = again.expect("all of them are free");
    assert_eq!((test.free().await, test.in_use().await.len()), (0, 250));
    again.release().await.unwrap();
    test.eventually_free().await;
}

#[tokio::test]
async fn an_endless_permit_needs_no_renewal() {
    let test = Fixture::with(2, |client| client.watchdog_lease(LEASE)).await;
    let endless = test.seats.acquire().forever().await.unwrap();
    assert_eq!(test.in_use().await[0].1, NEVER);
    let id = endless.ids()[0];
    assert_eq!(
        test.seats.lease_of(&id).await.unwrap(),
        Some(Ttl::Persistent)
    );
    test.redis.reset_stats().await;
    tokio::time::sleep(LEASE + ms(500)).await;
    let stats = test.redis.commandstats().await;
    assert!(!stats.contains_key("zadd"), "it was renewed: {stats:?}");
    assert!(endless.is_valid() && endless.remaining() > LONG);
    endless.release().await.unwrap();
    drop(
        test.seats
            .try_acquire_many(2)
            .forever()
            .await
            .unwrap()
            .unwrap(),
    );
    test.eventually_free().await;
}

#[tokio::test]
async fn max_hold_ends_a_permit_that_the_watchdog_renews() {
    let test = Fixture::with(1, |client| client.watchdog_lease(LEASE)).await;
    let permit = async || test.seats.acquire().max_hold(ms(2_000)).await;
    // On a busy machine the answer may come after a short bound.
    let permit = until_ok(SOON, permit).await;
    assert!(permit.is_valid());
    let lost = tokio::time::timeout(SOON, permit.lost()).await.unwrap();
    assert_eq!(lost.reason(), LostReason::MaxHold);
    drop(permit);
    test.eventually_free().await;
}

#[tokio::test]
async fn a_lease_is_extended_for_all_permits() {
    let test = Fixture::with_permits(2).await;
    let both = test.seats.acquire_many(2).lease(LEASE).await.unwrap();
    both.extend(LONG).await.unwrap();
    assert!(both.remaining() > LEASE * 2);
    let now = test.now().await;
    let in_use = test.in_use().await;
    assert!(
        in_use.iter().all(|(_, ends)| *ends > now + 200_000.0),
        "{in_use:?}"
    );
    // The lease is never shortened.
    both.extend(LEASE).await.unwrap();
    assert_eq!(test.in_use().await, in_use);
    both.release().await.unwrap();
}

#[tokio::test]
async fn permits_are_ensured_only_for_the_time_that_each_of_them_has() {
    let test = Fixture::with(4, |client| client.watchdog_lease(LEASE)).await;
    let mut permits = test.seats.acquire_many(2).lease(LONG).await.unwrap();
    let short = test.seats.acquire().lease(LONG / 3).await.unwrap();
    test.redis.reset_stats().await;
    permits.ensure(Duration::ZERO).unwrap();
    permits.ensure(LONG / 2).unwrap();
    let lost = permits.ensure(LONG * 2).unwrap_err();
    assert_eq!(lost.reason(), LostReason::Deadline);
    assert!(permits.ensure(Duration::MAX).is_err());
    // The one whose lease ends first decides.
    permits.merge(short).unwrap();
    let lost = permits.ensure(LONG / 2).unwrap_err();
    assert_eq!(lost.reason(), LostReason::Deadline);
    let stats = test.redis.commandstats().await;
    assert!(!stats.contains_key("evalsha"), "it asked: {stats:?}");
    // A failed check ends no permit.
    assert!(permits.is_valid() && permits.verdict() == Verdict::Held);
    permits.extend(LONG).await.unwrap();
    permits.ensure(LONG / 2).unwrap();

    // A loss comes before a deadline that is near.
    let watched = test.seats.acquire().await.unwrap();
    let id = watched.ids();
    permits.merge(watched).unwrap();
    test.another().await.release(&id).await.unwrap();
    tokio::time::timeout(SOON, permits.lost()).await.unwrap();
    for margin in [Duration::ZERO, LONG / 2, LONG * 2] {
        let lost = permits.ensure(margin).unwrap_err();
        assert_eq!(lost.reason(), LostReason::NotOurs);
    }
    // The others are held, and released.
    assert!(permits.release().await.unwrap_err().is_lost());
    test.eventually_free().await;
}

#[tokio::test]
async fn permits_that_are_left_to_their_leases_end_with_them() {
    let test = Fixture::with(2, |client| client.watchdog_lease(LEASE)).await;
    let long = test.seats.try_acquire().lease(LONG).await.unwrap();
    long.expect("it is free").leave_to_lease();
    test.seats.acquire().await.unwrap().leave_to_lease();
    assert!(test.client.holds().is_empty(), "no caller holds them");
    let report = test.client.shutdown().await;
    assert_eq!((report.released, report.unconfirmed), (0, 0));
    assert_eq!((test.free().await, test.in_use().await.len()), (0, 2));
    // No client renews the one without a lease of its own.
    let another = test.another().await;
    let next = another.try_acquire().lease(LONG).wait(SOON).await.unwrap();
    assert!(next.is_some());
    assert!(another.try_acquire().await.unwrap().is_none());
    test.assert_total().await;
}

/// A semaphore that is deleted ends its permits.
#[tokio::test]
async fn the_loss_of_the_keys_is_reported_at_the_next_renewal() {
    let test = Fixture::with(2, |client| client.watchdog_lease(LEASE)).await;
    let permit = test.seats.acquire().await.unwrap();
    test.redis.cmd(&["DEL", NAME, IN_USE]).await;
    let lost = tokio::time::timeout(SOON, permit.lost()).await.unwrap();
    assert_eq!(lost.reason(), LostReason::NotOurs);
    drop(permit);
    tokio::time::sleep(ms(200)).await;
    assert!(
        !test.redis.exists(NAME).await,
        "a lost permit is not released"
    );
}

/// The number still says how many permits were free, so clients get no more than those. `set_permits` returns the
/// others.
#[tokio::test]
async fn permits_whose_leases_are_deleted_stay_missing_until_the_number_is_set() {
    let test = Fixture::with(4, |client| client.watchdog_lease(LEASE)).await;
    let watched = test.seats.acquire().await.unwrap();
    let leased = test.seats.acquire().lease(LONG).await.unwrap();
    test.redis.cmd(&["DEL", IN_USE]).await;
    assert_eq!(counts(&test).await, (2, 0, 2));
    let another = test.another().await;
    assert!(another.try_acquire_many(3).await.unwrap().is_none());
    let two = another.try_acquire_many(2).await.unwrap();
    let two = two.expect("they were free");
    let lost = tokio::time::timeout(SOON, watched.lost()).await.unwrap();
    assert_eq!(lost.reason(), LostReason::NotOurs);
    // A fixed lease is not renewed, so the release reports the loss.
    assert!(leased.is_valid() && two.is_valid());
    let error = leased.release().await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    drop(watched);
    two.release().await.unwrap();
    tokio::time::sleep(ms(200)).await;
    // PE3: what is not in use any more is not released.
    assert_eq!((test.free().await, test.in_use().await.len()), (2, 0));
    assert!(!test.seats.try_set_permits(4).await.unwrap());
    assert_eq!(test.free().await, 2);
    test.seats.set_permits(4).await.unwrap();
    test.eventually_free().await;
    let all = test.seats.acquire_many(4).await.unwrap();
    all.release().await.unwrap();
}

/// The set of the permits in use is complete. So `set_permits` finds how many are free, and `try_set_permits` does not
/// look.
#[tokio::test]
async fn the_loss_of_the_number_ends_no_permit() {
    let test = Fixture::with(3, |client| client.watchdog_lease(LEASE)).await;
    let another = test.another().await;
    let mut held = test.seats.acquire_many(2).await.unwrap();
    test.redis.cmd(&["DEL", NAME]).await;
    let before = test.in_use().await;
    let last = before.last().expect("two are in use").1;
    eventually(SOON, "both are renewed", async || {
        let in_use = test.in_use().await;
        in_use.len() == 2 && in_use.iter().all(|(_, ends)| *ends > last + 1_000.0)
    })
    .await;
    assert!(held.is_valid());
    // What was free is missing.
    assert_eq!(counts(&test).await, (0, 2, 2));
    assert!(another.try_acquire().await.unwrap().is_none());
    test.seats.set_permits(3).await.unwrap();
    assert_eq!(test.free().await, 1);
    // PE1.
    test.assert_total().await;

    // A release creates the number again, and it lacks what was free.
    test.redis.cmd(&["DEL", NAME]).await;
    held.split(1).unwrap().release().await.unwrap();
    assert_eq!((test.free().await, test.in_use().await.len()), (1, 1));
    assert!(!test.seats.try_set_permits(3).await.unwrap());
    assert_eq!(test.free().await, 1);
    test.seats.set_permits(3).await.unwrap();
    test.assert_total().await;

    // As in Redisson, `try_set_permits` does not count the permits in use: here it makes one too many.
    test.redis.cmd(&["DEL", NAME]).await;
    assert!(test.seats.try_set_permits(3).await.unwrap());
    assert_eq!((test.free().await, test.in_use().await.len()), (3, 1));
    test.seats.set_permits(3).await.unwrap();
    test.assert_total().await;
    held.release().await.unwrap();
    test.eventually_free().await;
}

/// The permits that are free, those in use, and both.
async fn counts(test: &Fixture) -> (i64, u32, i64) {
    let seats = &test.seats;
    (
        seats.available().await.unwrap(),
        seats.acquired().await.unwrap(),
        seats.permits().await.unwrap(),
    )
}
