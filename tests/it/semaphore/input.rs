//! Arguments that are refused before a command is sent, and keys of another type.

use std::time::Duration;

use lockdog::{Error, Uuid};

use super::{Fixture, LEDGER, NAME, ms};

macro_rules! assert_invalid {
    ($($call:expr),* $(,)?) => {
        $(match $call {
            Err(Error::Invalid { .. }) => {}
            other => panic!("{}: {other:?}", stringify!($call)),
        })*
    };
}

#[tokio::test]
async fn bad_arguments_are_refused_before_anything_is_sent() {
    let test = Fixture::with_permits(3).await;
    let seats = &test.seats;
    test.redis.reset_stats().await;
    assert_invalid!(
        seats.acquire_many(1 << 31).await,
        seats.try_acquire_many(u32::MAX).await,
        seats.try_acquire_many(u32::MAX).wait(ms(10)).await,
        seats.release(1 << 31).await,
        seats.release_if_exists(1 << 31).await,
        seats.try_set_permits(1 << 31).await,
        seats.try_set_permits_for(1, ms(9)).await,
        seats.try_set_permits_for(1, Duration::MAX).await,
        seats.reclaim(test.client.id()).await,
    );
    let long = "x".repeat(513);
    for name in ["", &long] {
        let bad = test.client.semaphore(name);
        assert_invalid!(
            bad.acquire().await,
            bad.acquire_many(0).await,
            bad.try_acquire().wait(ms(10)).await,
            bad.drain().await,
            bad.release(1).await,
            bad.release_if_exists(1).await,
            bad.available().await,
            bad.holders().await,
            bad.reclaim(Uuid::nil()).await,
            bad.add_permits(1).await,
            bad.try_set_permits(1).await,
        );
    }
    let stats = test.redis.commandstats().await;
    assert!(!stats.contains_key("evalsha"), "{stats:?}");
}

/// As in Redisson.
#[tokio::test]
async fn zero_permits_are_granted_at_once() {
    let test = Fixture::with_permits(0).await;
    test.redis.reset_stats().await;
    let mut none = test.seats.acquire_many(0).await.unwrap();
    let other = test.seats.try_acquire_many(0).await.unwrap();
    assert_eq!(none.count(), 0);
    assert!(none.split(0).is_none() && none.split(1).is_none());
    none.merge(other.expect("it is granted")).unwrap();
    none.release().await.unwrap();
    test.seats.release(0).await.unwrap();
    let stats = test.redis.commandstats().await;
    assert!(!stats.contains_key("evalsha"), "{stats:?}");
}

#[tokio::test]
async fn a_name_that_is_in_use_for_something_else_is_refused() {
    let test = Fixture::with_permits(3).await;
    let error = test.client.lock(NAME).try_lock().await.unwrap_err();
    assert!(error.to_string().contains("WRONGTYPE"), "{error}");
    let other = test.client.semaphore("other");
    let _held = test.client.lock("other").lock().await.unwrap();
    for error in [
        other.try_acquire().await.map(drop).unwrap_err(),
        other.acquire().await.map(drop).unwrap_err(),
        other.drain().await.map(drop).unwrap_err(),
        other.available().await.map(drop).unwrap_err(),
        other.holders().await.map(drop).unwrap_err(),
        other.reclaim(Uuid::nil()).await.map(drop).unwrap_err(),
        other.add_permits(3).await.unwrap_err(),
        other.release(3).await.unwrap_err(),
    ] {
        assert!(
            matches!(&error, Error::Refused { code, .. } if code == "WRONGTYPE"),
            "{error}"
        );
    }
    assert!(!other.try_set_permits(3).await.unwrap());
    // The ledger's key has another type.
    test.redis.cmd(&["SET", LEDGER, "x"]).await;
    let error = test.seats.try_acquire().await.map(drop).unwrap_err();
    assert!(error.to_string().contains("WRONGTYPE"), "{error}");
    assert_eq!(test.free().await, 3);
}

/// A script that cannot finish changes nothing.
#[tokio::test]
async fn a_number_that_is_none_changes_nothing() {
    let test = Fixture::with_permits(3).await;
    let permit = test.seats.acquire().await.unwrap();
    for junk in JUNK {
        test.redis.cmd(&["SET", NAME, junk]).await;
        let seats = test.another().await;
        for error in [
            seats.try_acquire().await.map(drop).unwrap_err(),
            seats.drain().await.map(drop).unwrap_err(),
            seats.release(1).await.unwrap_err(),
            seats.available().await.map(drop).unwrap_err(),
            seats.add_permits(1).await.unwrap_err(),
            seats.reclaim(test.client.id()).await.map(drop).unwrap_err(),
        ] {
            assert!(matches!(&error, Error::Refused { .. }), "{junk:?}: {error}");
        }
        let found: String = test.redis.ask(&["GET", NAME]).await;
        assert_eq!((found.as_str(), test.shares().await), (junk, vec![1]));
    }
    test.redis.cmd(&["SET", NAME, "2"]).await;
    permit.release().await.unwrap();
    assert_eq!(test.free().await, 3);
}

/// Values that Redis does not accept as a number, and numbers that this crate does not support.
const JUNK: [&str; 11] = [
    "some",
    "1.5",
    "",
    "99999999999999999999",
    "007",
    "-0",
    "-07",
    "1e3",
    " 5",
    "+5",
    "5\n",
];
