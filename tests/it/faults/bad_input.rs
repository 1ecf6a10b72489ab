//! Invalid input is refused before a command is sent.

use std::time::Duration;

use lockdog::{Client, ClientBuilder, Error};

use crate::faults::fixture::{Fixture, NAME};

/// Invariant 13: nothing panics.
#[tokio::test]
async fn leases_and_names_out_of_range_are_refused_and_nothing_is_sent() {
    let max = Duration::from_secs(60);
    let fixture = Fixture::with(|client| client.max_lease(max)).await;
    let before = fixture.proxy.commands().len();
    let lock = fixture.lock();
    let short = Duration::from_millis(9);
    for lease in [Duration::ZERO, short, max + short, Duration::MAX] {
        invalid(lock.lock().lease(lease).await, "lease");
        invalid(lock.try_lock().lease(lease).await, "lease");
        invalid(lock.try_lock().wait(max).lease(lease).await, "lease");
        invalid(lock.lock().lease(lease).with(async |_| ()).await, "lease");
    }
    for max_hold in [Duration::ZERO, short] {
        invalid(lock.lock().max_hold(max_hold).await, "max_hold");
    }
    for name in [String::new(), "x".repeat(513), "x".repeat(100_000)] {
        let lock = fixture.client.lock(name);
        invalid(lock.lock().await, "lock name");
        invalid(lock.try_lock().await, "lock name");
        invalid(lock.unlock().await, "lock name");
        invalid(lock.force_unlock().await, "lock name");
        invalid(lock.is_locked().await, "lock name");
        invalid(lock.is_held().await, "lock name");
        invalid(lock.hold_count().await, "lock name");
        invalid(lock.remaining_ttl().await, "lock name");
        invalid(lock.holder().await, "lock name");
    }
    assert_eq!(fixture.sent_since(before), [""; 0]);
    assert!(fixture.client.holds().is_empty());
    // The limits themselves are valid, and so is a wait longer than any clock.
    let shortest = lock.try_lock().lease(Duration::from_millis(10)).await;
    drop(shortest);
    fixture.await_free().await;
    drop(lock.lock().lease(max).await.unwrap());
    let longest = lock.try_lock().wait(Duration::MAX).await.unwrap();
    drop(longest.expect("it is free"));
    fixture.assert_recovered().await;
}

#[tokio::test]
async fn an_invalid_url_is_refused_without_its_password() {
    for url in [
        "",
        "s3cret",
        "redis//:s3cret@127.0.0.1/",
        "redis://:s3cret@127.0.0.1:port/",
        "redis://:s3cret@127.0.0.1:99999/",
        "redis://:s3cret@127.0.0.1/database",
        "redis://:s3cret@[::1/",
        "redis://:s3cret%zz@/x y",
        "http://:s3cret@127.0.0.1/",
        "rediss://:s3cret@127.0.0.1:1/",
    ] {
        let error = Client::connect(url).await.expect_err(url);
        let is_tls = url.starts_with("rediss") && cfg!(feature = "tls");
        if !is_tls && !url.contains("%zz") {
            assert!(
                matches!(error, Error::Invalid { what: "url", .. }),
                "{url}: {error:?}"
            );
        }
        for text in [format!("{error}"), format!("{error:?}")] {
            assert!(!text.contains("s3cret"), "{url}: {text}");
        }
        let builder = format!("{:?}", Client::builder().url(url));
        assert!(url.is_empty() || !builder.contains("s3cret"), "{builder}");
    }
}

#[tokio::test]
async fn an_unreachable_host_is_unavailable() {
    let unused = crate::support::port::dead_port();
    for url in [
        "redis://:s3cret@nowhere.invalid/".to_owned(),
        format!("redis://:s3cret@127.0.0.1:{unused}/"),
    ] {
        let error = Client::connect(&url).await.expect_err("no server is there");
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        assert!(error.is_retriable() && !error.is_timeout());
        assert!(
            !format!("{error} {error:?}").contains("s3cret"),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn settings_out_of_range_are_refused_and_nothing_is_sent() {
    let fixture = Fixture::start().await;
    let before = (fixture.proxy.commands().len(), fixture.proxy.connections());
    let none = Duration::ZERO;
    let short = Duration::from_millis(9);
    let hour = Duration::from_secs(3600);
    type Set = Box<dyn Fn(ClientBuilder) -> ClientBuilder>;
    let cases: Vec<(&str, Set)> = vec![
        ("watchdog_lease", Box::new(move |b| b.watchdog_lease(none))),
        ("watchdog_lease", Box::new(move |b| b.watchdog_lease(short))),
        (
            "watchdog_lease",
            Box::new(move |b| b.max_lease(hour).watchdog_lease(hour * 2)),
        ),
        ("max_lease", Box::new(move |b| b.max_lease(short))),
        (
            "command_timeout",
            Box::new(move |b| b.command_timeout(none)),
        ),
        (
            "command_timeout",
            Box::new(move |b| b.command_timeout(hour * 25)),
        ),
        ("poll_cap", Box::new(move |b| b.poll_cap(none))),
        ("poll_cap", Box::new(move |b| b.poll_cap(hour * 25))),
        ("client_name", Box::new(|b| b.client_name("two words"))),
        ("client_name", Box::new(|b| b.client_name("line\nbreak"))),
    ];
    for (what, set) in cases {
        let builder = set(Client::builder().url(fixture.proxy.url()));
        invalid(builder.build().await, what);
    }
    invalid(Client::builder().build().await, "client");
    assert_eq!(
        (fixture.proxy.commands().len(), fixture.proxy.connections()),
        before
    );
    fixture.redis.assert_clean().await;
}

#[tokio::test]
async fn an_unlock_without_a_hold_is_refused_and_nothing_is_sent() {
    let fixture = Fixture::start().await;
    let before = fixture.proxy.commands().len();
    let error = fixture.client.lock(NAME).unlock().await.unwrap_err();
    assert!(matches!(error, Error::NotHeld(_)), "{error}");
    assert!(!error.is_retriable() && !error.may_be_held() && !error.is_lost());
    assert_eq!(fixture.sent_since(before), [""; 0]);
}

fn invalid<T>(outcome: Result<T, Error>, argument: &str) {
    let error = outcome.err().expect("it cannot be used");
    let Error::Invalid { what, .. } = &error else {
        panic!("it is a mistake of the caller: {error:?}");
    };
    assert_eq!(*what, argument, "{error}");
    assert!(!error.is_retriable() && !error.may_be_held() && !error.is_timeout());
}
