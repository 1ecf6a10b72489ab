//! The number of permits, and who has them.

use std::time::Duration;

use lockdog::Client;

use super::{Fixture, LEDGER, NAME, SOON, ms};
use crate::support::eventually;

#[tokio::test]
async fn permits_are_set_once_added_and_removed() {
    let test = Fixture::with_permits(3).await;
    let seats = &test.seats;
    assert!(!seats.try_set_permits(5).await.unwrap());
    assert_eq!(seats.available().await.unwrap(), 3);
    seats.add_permits(2).await.unwrap();
    assert_eq!(seats.available().await.unwrap(), 5);
    let five = seats.acquire_many(5).await.unwrap();
    seats.add_permits(-7).await.unwrap();
    assert_eq!(seats.available().await.unwrap(), -7);
    five.release().await.unwrap();
    assert_eq!(seats.available().await.unwrap(), -2);
    assert!(seats.try_acquire().await.unwrap().is_none());
    assert!(seats.drain().await.unwrap().is_none());
    seats.add_permits(0).await.unwrap();
    assert_eq!(seats.available().await.unwrap(), -2);
}

#[tokio::test]
async fn a_semaphore_with_a_time_to_live_ends() {
    let test = Fixture::with_permits(0).await;
    let short = test.client.semaphore("short");
    assert!(short.try_set_permits_for(2, ms(5_000)).await.unwrap());
    assert!(!short.try_set_permits(9).await.unwrap());
    let one = short.acquire().await.unwrap();
    // SE1: the ledger lives longer than the permits.
    let ledger = test.redis.pttl("lockdog_ledger:{short}").await;
    assert!(ledger > 3_600_000, "{ledger}");
    short.add_permits(1).await.unwrap();
    assert!(test.redis.pttl("short").await > 0, "it keeps its time");
    test.redis.eventually_gone("short").await;
    assert_eq!(short.available().await.unwrap(), 0);
    // A permit of an expired semaphore does not create it again.
    one.release().await.unwrap();
    assert!(!test.redis.exists("short").await);
    assert!(!short.release_if_exists(2).await.unwrap());
    assert!(!test.redis.exists("short").await);
    short.release(2).await.unwrap();
    assert_eq!(short.available().await.unwrap(), 2);
    assert_eq!(test.redis.pttl("short").await, -1);
}

#[tokio::test]
async fn drained_permits_are_permits() {
    let test = Fixture::with_permits(7).await;
    let one = test.seats.acquire().await.unwrap();
    let all = test.seats.drain().await.unwrap().expect("six are free");
    assert_eq!((all.count(), test.shares().await), (6, vec![1, 6]));
    assert!(test.seats.drain().await.unwrap().is_none());
    all.release().await.unwrap();
    one.release().await.unwrap();
    test.eventually_free().await;
}

#[tokio::test]
async fn forgotten_permits_are_released_by_number() {
    let test = Fixture::with_permits(6).await;
    let seats = &test.seats;
    seats.acquire_many(3).await.unwrap().forget();
    seats.acquire_many(2).await.unwrap().forget();
    assert_eq!(test.shares().await, [2, 3]);
    seats.release(1).await.unwrap();
    assert_eq!((test.free().await, test.shares().await), (2, vec![2, 2]));
    seats.release(3).await.unwrap();
    assert_eq!((test.free().await, test.shares().await), (5, vec![1]));
    assert!(seats.release_if_exists(1).await.unwrap());
    test.eventually_free().await;
    // A release of permits that no request has adds permits, as in Redisson.
    seats.acquire().await.unwrap().forget();
    seats.release(3).await.unwrap();
    assert_eq!((test.free().await, test.shares().await), (8, vec![]));
    seats.release(0).await.unwrap();
    assert!(seats.release_if_exists(0).await.unwrap());
    assert_eq!(test.free().await, 8);
    test.redis.cmd(&["DEL", NAME]).await;
    assert!(!seats.release_if_exists(1).await.unwrap());
    assert!(!test.redis.exists(NAME).await);
}

#[tokio::test]
async fn the_ledger_shows_who_has_permits() {
    let test = Fixture::with_permits(6).await;
    let another = test.another().await;
    assert!(test.seats.holders().await.unwrap().is_empty());
    let (ours, theirs) = (
        test.seats.acquire_many(2).await.unwrap(),
        another.acquire_many(3).await.unwrap(),
    );
    let holders = test.seats.holders().await.unwrap();
    assert_eq!(holders.len(), 2, "{holders:?}");
    for holder in &holders {
        assert_eq!(holder.permits, if holder.ours { 2 } else { 3 });
        let is_this = holder.client_id() == Some(test.client.id());
        assert_eq!(is_this, holder.ours, "{holder:?}");
        let holds = test.client.holds();
        let is_listed = holds.iter().any(|hold| hold.field == holder.field());
        assert_eq!(is_listed, holder.ours);
    }
    drop((ours, theirs));
    test.eventually_free().await;
}

/// SE3: a reclaimed permit is not returned a second time.
#[tokio::test]
async fn the_permits_of_a_dead_client_are_reclaimed() {
    let test = Fixture::with_permits(6).await;
    let dead = Client::connect(test.server.url()).await.unwrap();
    let theirs = dead.semaphore(NAME);
    let [one, two] = [
        theirs.acquire().await.unwrap(),
        theirs.acquire_many(2).await.unwrap(),
    ];
    let ours = test.seats.acquire().await.unwrap();
    let waiting = tokio::spawn(test.another().await.acquire_many(5).into_future());
    test.somebody_waits().await;
    assert_eq!(test.seats.reclaim(dead.id()).await.unwrap(), 3);
    let woken = tokio::time::timeout(SOON, waiting).await;
    let woken = woken.expect("a message wakes it").unwrap().unwrap();
    assert_eq!(test.seats.reclaim(dead.id()).await.unwrap(), 0);
    // The client is alive after all.
    let error = two.release().await.unwrap_err();
    assert!(error.is_lost(), "{error}");
    drop(one);
    dead.shutdown().await;
    woken.release().await.unwrap();
    ours.release().await.unwrap();
    test.eventually_free().await;
    let own = test.seats.reclaim(test.client.id()).await.unwrap_err();
    assert!(matches!(own, lockdog::Error::Invalid { .. }), "{own}");
}

/// The ledger's marks of ended requests do not accumulate.
#[tokio::test]
async fn old_ends_are_forgotten() {
    let test = Fixture::with_permits(1).await;
    let old = "1600000000000";
    test.redis
        .cmd(&["ZADD", LEDGER, old, "u:1.1", old, "u:1.2"])
        .await;
    // The outcome of a cancelled acquire is unknown.
    let ends = async || {
        test.redis
            .ask::<i64>(&["ZCOUNT", LEDGER, "2147483648", "9999999999999"])
            .await
    };
    assert_eq!(ends().await, 2);
    eventually(SOON, "only one new end is remembered", async || {
        let _ = tokio::time::timeout(
            Duration::from_micros(300),
            test.seats.acquire().into_future(),
        )
        .await;
        test.eventually_free().await;
        let member: Option<f64> = test.redis.ask(&["ZSCORE", LEDGER, "u:1.1"]).await;
        member.is_none() && ends().await >= 1
    })
    .await;
}
