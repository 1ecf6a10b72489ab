//! Invalid names and leases, and keys of another type.

use std::time::Duration;

use lockdog::{Client, Error, Lock};

use super::{Fixture, Kind, SOON, each_kind, ms};
use crate::support::eventually;

each_kind! {
    every: {
        a_key_of_another_type_is_refused_and_unchanged
        bad_names_and_leases_are_refused_before_anything_is_sent
    }
}

#[tokio::test]
async fn invalid_names_are_refused_before_anything_is_sent() {
    let test = Fixture::start().await;
    let huge = "x".repeat(100_000);
    let long = "ü".repeat(257);
    test.redis.reset_stats().await;
    for name in ["", &huge, &long] {
        let lock = test.client.lock(name);
        assert_eq!(lock.name(), name);
        for error in every_error_of(&lock).await {
            assert!(
                matches!(
                    &error,
                    Error::Invalid {
                        what: "lock name",
                        ..
                    }
                ),
                "{error}"
            );
            assert!(!error.is_retriable() && !error.may_be_held());
            assert!(
                error.to_string().len() < 200,
                "the name fills the log: {error}"
            );
        }
    }
    assert_eq!(
        test.calls(["evalsha", "eval", "exists", "hgetall", "pttl"])
            .await,
        [0; 5]
    );
    // The longest valid name.
    let lock = test.client.lock("x".repeat(512));
    lock.lock().await.unwrap().unlock().await.unwrap();
}

#[tokio::test]
async fn names_with_one_brace_are_valid() {
    let test = Fixture::start().await;
    let names = [
        "{", "}", "a{", "a{b", "a}b", "}a{", "{}", "{a}", "x{a}y", "{a}{b}", "{{a}}",
    ];
    for name in names {
        let client = test.without_polling().await;
        let lock = client.lock(name);
        if !test.server.takes(name) {
            for error in every_error_of(&lock).await {
                let is_name = matches!(
                    error,
                    Error::Invalid {
                        what: "lock name",
                        ..
                    }
                );
                assert!(is_name, "{name}: {error}");
            }
            continue;
        }
        let held = test.client.lock(name).lock().await.unwrap();
        assert_eq!(test.redis.keys().await, [name]);
        let waiting = super::waiter(&lock);
        let listens = async || test.redis.channels().await.len() == 1;
        eventually(SOON, "the waiter listens", listens).await;
        held.unlock().await.unwrap();
        let next = tokio::time::timeout(SOON, waiting).await;
        let next = next
            .unwrap_or_else(|_| panic!("{name} was not woken"))
            .unwrap();
        next.unlock().await.unwrap();
        test.redis.assert_clean().await;
    }
    assert!(test.redis.keys().await.is_empty());
}

#[tokio::test]
async fn a_key_of_another_type_is_an_error_that_names_it_and_is_unchanged() {
    let test = Fixture::start().await;
    test.redis.cmd(&["SET", "l", "a string"]).await;
    let lock = test.client.lock("l");
    for error in [
        lock.lock().await.unwrap_err(),
        lock.try_lock().await.unwrap_err(),
        lock.try_lock().wait(SOON).await.unwrap_err(),
        lock.holder().await.unwrap_err(),
        lock.force_unlock().await.unwrap_err(),
    ] {
        let Error::Refused { code, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!(code, "WRONGTYPE");
        assert!(!error.is_retriable() && !error.may_be_held());
    }
    assert!(lock.is_locked().await.unwrap(), "the key is in the way");
    let value: String = test.redis.ask(&["GET", "l"]).await;
    assert_eq!(value, "a string");
    test.redis.cmd(&["DEL", "l"]).await;
    lock.lock().await.unwrap().unlock().await.unwrap();
    test.redis.assert_clean().await;
}

/// Each call has its own client, because a waiter that leaves settles in the background.
async fn a_key_of_another_type_is_refused_and_unchanged(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    test.redis.cmd(&["SET", "l", "a string"]).await;
    for waits in [false, true] {
        let lock = kind.lock(&test.another().await, "l");
        let error = match waits {
            true => lock.lock().await.map(drop).unwrap_err(),
            false => lock.try_lock().await.map(drop).unwrap_err(),
        };
        let is_refused = matches!(&error, Error::Refused { code, .. } if code == "WRONGTYPE");
        assert!(is_refused && !error.may_be_held(), "{error}");
    }
    let value: String = test.redis.ask(&["GET", "l"]).await;
    assert_eq!(value, "a string");
    test.redis.cmd(&["DEL", "l"]).await;
    test.lock("l").lock().await.unwrap().unlock().await.unwrap();
}

async fn bad_names_and_leases_are_refused_before_anything_is_sent(kind: &'static Kind) {
    let test = Fixture::of_kind(kind).await;
    let long = "x".repeat(513);
    test.redis.reset_stats().await;
    for name in ["", &long] {
        let lock = test.lock(name);
        for error in [
            lock.lock().await.map(drop).unwrap_err(),
            lock.try_lock().await.map(drop).unwrap_err(),
            lock.try_lock().wait(SOON).await.map(drop).unwrap_err(),
            lock.force_unlock().await.map(drop).unwrap_err(),
        ] {
            let is_name = matches!(
                error,
                Error::Invalid {
                    what: "lock name",
                    ..
                }
            );
            assert!(is_name, "{error}");
        }
    }
    let lock = test.lock("l");
    for lease in [ms(0), ms(9), Duration::MAX] {
        for error in [
            lock.lock().lease(lease).await.map(drop).unwrap_err(),
            lock.try_lock().lease(lease).await.map(drop).unwrap_err(),
            lock.try_lock()
                .lease(lease)
                .wait(SOON)
                .await
                .map(drop)
                .unwrap_err(),
        ] {
            let is_lease = matches!(error, Error::Invalid { what: "lease", .. });
            assert!(is_lease, "{error}");
        }
    }
    assert_eq!(
        test.calls(["evalsha", "eval", "exists", "hgetall", "pttl"])
            .await,
        [0; 5]
    );
    // Neither a call nor a turn is left behind.
    lock.lock().await.unwrap().unlock().await.unwrap();
}

/// A waiter in the queue gets the error, too.
#[tokio::test]
async fn a_key_that_becomes_another_type_ends_the_wait() {
    let test = Fixture::start().await;
    let lock = test.client.lock("l");
    test.redis.cmd(&["HSET", "l", "somebody:1", "1"]).await;
    let waiting = tokio::spawn(lock.lock().into_future());
    let listens = async || test.redis.channels().await.len() == 1;
    eventually(SOON, "it found the lock busy and listens", listens).await;
    assert!(!waiting.is_finished());
    test.redis.cmd(&["SET", "l", "a string"]).await;
    let ended = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
    assert!(matches!(ended, Err(Error::Refused { code, .. }) if code == "WRONGTYPE"));
}

#[tokio::test]
async fn leases_out_of_bounds_are_refused_before_anything_is_sent() {
    let test = Fixture::start().await;
    let client = Client::builder()
        .url(test.server.url())
        .max_lease(ms(60_000))
        .build()
        .await
        .unwrap();
    let lock = client.lock("l");
    for lease in [ms(0), ms(9), ms(60_001), Duration::MAX] {
        for error in [
            lock.lock().lease(lease).await.unwrap_err(),
            lock.try_lock().lease(lease).await.unwrap_err(),
            lock.try_lock().lease(lease).wait(SOON).await.unwrap_err(),
        ] {
            assert!(
                matches!(&error, Error::Invalid { what: "lease", .. }),
                "{error}"
            );
        }
    }
    let max_hold = lock.lock().max_hold(ms(1)).await.unwrap_err();
    assert!(
        matches!(
            &max_hold,
            Error::Invalid {
                what: "max_hold",
                ..
            }
        ),
        "{max_hold}"
    );
    assert!(test.redis.keys().await.is_empty());
    for lease in [ms(10), ms(60_000)] {
        match lock.lock().lease(lease).await {
            Ok(guard) => drop(guard),
            // On a busy machine the answer may come when the lease is over.
            Err(error) => assert!(error.is_timeout() && lease == ms(10), "{error}"),
        }
    }
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn settings_out_of_bounds_are_refused_by_name() {
    let test = Fixture::start().await;
    let builder = || Client::builder().url(test.server.url());
    for (what, builder) in [
        ("watchdog_lease", builder().watchdog_lease(ms(9))),
        ("watchdog_lease", builder().max_lease(ms(1_000))),
        ("max_lease", builder().max_lease(ms(0))),
        ("command_timeout", builder().command_timeout(ms(0))),
        ("poll_cap", builder().poll_cap(ms(0))),
        ("command_timeout", builder().command_timeout(TWO_DAYS)),
        ("poll_cap", builder().poll_cap(TWO_DAYS)),
        ("client_name", builder().client_name("two words")),
        ("client", Client::builder()),
        ("url", Client::builder().url("no url")),
        ("url", Client::builder().url("http://127.0.0.1/")),
    ] {
        let error = builder.build().await.unwrap_err();
        assert!(
            matches!(&error, Error::Invalid { what: named, .. } if *named == what),
            "{what}: {error}"
        );
        // That limit is for leases only.
        let names_it = error.to_string().contains("max_lease");
        assert!(what.ends_with("lease") || !names_it, "{error}");
    }
}

async fn every_error_of(lock: &Lock) -> Vec<Error> {
    vec![
        lock.lock().await.unwrap_err(),
        lock.try_lock().await.unwrap_err(),
        lock.try_lock().wait(SOON).await.unwrap_err(),
        lock.with(|_| async {}).await.unwrap_err(),
        lock.unlock().await.unwrap_err(),
        lock.force_unlock().await.unwrap_err(),
        lock.is_locked().await.unwrap_err(),
        lock.is_held().await.unwrap_err(),
        lock.hold_count().await.unwrap_err(),
        lock.remaining_ttl().await.unwrap_err(),
        lock.holder().await.unwrap_err(),
    ]
}

const TWO_DAYS: Duration = Duration::from_secs(2 * 86_400);
