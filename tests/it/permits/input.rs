//! Arguments that are refused before a command is sent, and keys of another type.

use std::time::Duration;

use lockdog::{Error, PermitId};

use super::{Fixture, IN_USE, LONG, NAME, ms};

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
    let permit = seats.acquire().await.unwrap();
    let [known, unknown] = [permit.ids()[0], PermitId::from_bytes([9; 16])];
    test.redis.reset_stats().await;
    assert_invalid!(
        seats.acquire_many(0).await,
        seats.acquire_many(1_001).await,
        seats.try_acquire_many(0).await,
        seats.acquire().lease(Duration::ZERO).await,
        seats.acquire().lease(ms(9)).await,
        seats.try_acquire().lease(Duration::MAX).await,
        seats.acquire().max_hold(ms(9)).await,
        seats.acquire().forever().lease(LONG).await,
        seats.try_acquire().forever().max_hold(LONG).await,
        seats.release(&[]).await,
        seats.release(&[unknown; 2]).await,
        seats.try_release(&vec![unknown; 1_001]).await,
        // A guard of this client has it.
        seats.release(&[unknown, known]).await,
        seats.update_lease(&known, LONG).await,
        seats.remove_lease(&known).await,
        seats.update_lease(&unknown, ms(9)).await,
        seats.set_permits(1 << 31).await,
        seats.try_set_permits(u32::MAX).await,
    );
    let long = "x".repeat(513);
    for name in ["", &long] {
        let bad = test.client.permit_semaphore(name);
        assert_invalid!(
            bad.acquire().await,
            bad.try_acquire().wait(ms(10)).await,
            bad.release(&[unknown]).await,
            bad.available().await,
            bad.set_permits(1).await,
            bad.lease_of(&unknown).await,
        );
    }
    let stats = test.redis.commandstats().await;
    assert!(!stats.contains_key("evalsha"), "{stats:?}");
    assert!(permit.is_valid());
    permit.release().await.unwrap();
    test.eventually_free().await;
}

#[tokio::test]
async fn a_name_that_is_in_use_for_something_else_is_refused() {
    let test = Fixture::with_permits(3).await;
    let lock = test.client.lock(NAME);
    let error = lock.try_lock().await.unwrap_err();
    assert!(error.to_string().contains("WRONGTYPE"), "{error}");
    let other = test.client.permit_semaphore("other");
    let _held = test.client.lock("other").lock().await.unwrap();
    for error in [
        other.try_acquire().await.unwrap_err(),
        other.acquire().await.unwrap_err(),
        other.available().await.unwrap_err(),
        other.set_permits(3).await.unwrap_err(),
        other.add_permits(3).await.unwrap_err(),
    ] {
        assert!(
            matches!(&error, Error::Refused { code, .. } if code == "WRONGTYPE"),
            "{error}"
        );
    }
}

/// No script loses a permit: a script that cannot finish changes nothing.
#[tokio::test]
async fn a_number_that_is_none_changes_nothing() {
    let test = Fixture::with_permits(3).await;
    let permit = test.seats.acquire().lease(LONG).await.unwrap();
    let ids = permit.ids();
    for junk in [
        "some",
        "1.5",
        "",
        "99999999999999999999",
        "007",
        "-0",
        "1e3",
        " 5",
        "+5",
    ] {
        test.redis.cmd(&["SET", NAME, junk]).await;
        let seats = test.another().await;
        for error in [
            seats.try_acquire().await.map(drop).unwrap_err(),
            seats.release(&ids).await.unwrap_err(),
            seats.available().await.map(drop).unwrap_err(),
            seats.set_permits(3).await.unwrap_err(),
            seats.add_permits(1).await.unwrap_err(),
        ] {
            assert!(matches!(&error, Error::Refused { .. }), "{junk:?}: {error}");
        }
        let found: String = test.redis.ask(&["GET", NAME]).await;
        assert_eq!(found, junk);
        assert_eq!(test.in_use().await.len(), 1, "{junk:?}");
    }
    test.redis.cmd(&["SET", NAME, "2"]).await;
    permit.release().await.unwrap();
    assert_eq!(test.free().await, 3);
    assert!(!test.redis.exists(IN_USE).await);
}

/// A user that may not write the set of the permits in use gets an error, and takes nothing.
#[tokio::test]
async fn an_acquire_that_cannot_write_who_has_the_permits_takes_none() {
    let test = Fixture::with_permits(3).await;
    let user = [
        "ACL", "SETUSER", "limited", "on", ">p", "~*", "&*", "+@all", "-zadd",
    ];
    test.redis.cmd(&user).await;
    let url = format!("redis://limited:p@127.0.0.1:{}/", test.server.port());
    let seats = lockdog::Client::connect(url).await.unwrap();
    let seats = seats.permit_semaphore(NAME);
    for permits in [1, 3] {
        let error = seats.try_acquire_many(permits).await.map(drop).unwrap_err();
        assert!(matches!(&error, Error::Refused { .. }), "{error}");
        assert_eq!((test.free().await, test.in_use().await.len()), (3, 0));
    }
    let all = test.seats.try_acquire_many(3).await.unwrap();
    all.expect("none is lost").release().await.unwrap();
}
