//! Permanent states of the server: an immediate error that names its cause.

use std::future::IntoFuture;
use std::time::Duration;

use lockdog::error::LostReason;
use lockdog::{Client, Error, Guard, Unlocked};
use tokio::task::JoinHandle;

use crate::faults::SOON;
use crate::faults::fixture::{Fixture, NAME, PATIENCE};
use crate::faults::scripts::{acquire, renew};
use crate::kinds::{FENCED, FENCED_FROM_ONE};
use crate::support::redis::WAITING;
use crate::support::{Data, RedisServer, eventually};

/// The parts of an [`Error::Refused`]. Fails the test for another error.
fn refused(error: &Error) -> (&str, &str) {
    let Error::Refused { code, message, .. } = error else {
        panic!("the server refused: {error}");
    };
    assert!(!error.is_retriable() && !error.is_timeout() && !error.is_lost());
    assert!(!error.may_be_held(), "{error}");
    (code, message)
}

/// The cause of a refused unlock.
fn unconfirmed(error: &Error) -> (&str, &str) {
    let Error::UnlockUnconfirmed(unlock) = error else {
        panic!("it cannot be known: {error}");
    };
    assert!(error.may_be_held() && !error.is_timeout(), "{error}");
    refused(unlock.cause().expect("the server said why"))
}

#[tokio::test]
async fn without_memory_only_acquires_are_refused() {
    let lease = Duration::from_millis(4_500);
    let fixture = Fixture::with(|client| client.watchdog_lease(lease)).await;
    let outer = fixture.lock().lock().await.unwrap();
    let inner = fixture.lock().lock().await.unwrap();
    fixture
        .redis
        .cmd(&["CONFIG", "SET", "maxmemory", "1"])
        .await;
    let free = fixture.client.lock("other");
    let error = free.lock().await.unwrap_err();
    assert_eq!(refused(&error).0, "OOM");
    let error = free.try_lock().wait(SOON).await.unwrap_err();
    assert_eq!(refused(&error).0, "OOM");
    let error = fixture.lock().lock().await.unwrap_err();
    assert_eq!(refused(&error).0, "OOM");
    assert!(!fixture.redis.exists("other").await);

    let renewed = fixture.proxy.count(renew());
    fixture.proxy.wait_for(renew(), renewed + 2).await;
    assert!(outer.is_valid() && !fixture.is_free().await);

    let kept = Unlocked::StillHeld { count: 1 };
    assert_eq!(inner.unlock().await.unwrap(), kept);
    assert_eq!(outer.unlock().await.unwrap(), Unlocked::Released);
    assert!(fixture.is_free().await);
    assert!(fixture.redis.errorstats().await.values().sum::<u64>() >= 3);
    fixture
        .redis
        .cmd(&["CONFIG", "SET", "maxmemory", "0"])
        .await;
    fixture.assert_recovered().await;
}

/// The server refuses the entry in the list of waiting clients for now, and not permanently.
#[tokio::test]
async fn a_client_that_waited_without_memory_is_listed_the_next_time() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let connect = || Client::builder().url(server.url()).command_timeout(SOON);
    let (holder, waiting) = tokio::join!(connect().build(), connect().build());
    let (holder, waiting) = (holder.unwrap(), waiting.unwrap());
    let hold = async || {
        let request = holder.lock(NAME).try_lock().lease(SOON * 10);
        request.await.unwrap().expect("it is free")
    };
    let wait = || tokio::spawn(waiting.lock(NAME).lock().into_future());
    let handed_over = async |held: Guard, waiter: JoinHandle<Result<Guard, Error>>| {
        held.unlock().await.unwrap();
        let next = tokio::time::timeout(SOON * 4, waiter).await;
        next.unwrap().unwrap().unwrap().unlock().await.unwrap();
    };
    let is_listed = async || redis.exists(&format!("{WAITING}{{{NAME}}}")).await;

    let (held, waiter) = (hold().await, wait());
    eventually(SOON, "the client is listed", is_listed).await;
    handed_over(held, waiter).await;
    eventually(SOON, "the list is empty", async || !is_listed().await).await;

    // The server knows all scripts now, so each attempt is one command.
    redis.reset_stats().await;
    let held = hold().await;
    redis.cmd(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let waiter = wait();
    let has_asked_again = async || redis.commandstats().await.get("evalsha") >= Some(&3);
    eventually(SOON, "the waiter has asked again", has_asked_again).await;
    assert!(!is_listed().await);
    redis.cmd(&["CONFIG", "SET", "maxmemory", "0"]).await;
    handed_over(held, waiter).await;

    let (held, waiter) = (hold().await, wait());
    eventually(SOON, "the client is listed again", is_listed).await;
    handed_over(held, waiter).await;
}

/// FE1 and FE2: a refused acquire leaves no lock and no token, and a held lock keeps its token.
#[tokio::test]
async fn without_memory_no_token_is_issued_and_none_goes_back() {
    for kind in [&FENCED, &FENCED_FROM_ONE] {
        let fixture = Fixture::start().await;
        let lock = |name| kind.lock(&fixture.client, name);
        let counter = async |name: &str| {
            let counter = format!("redisson_lock_token:{{{name}}}");
            fixture.redis.ask::<Option<u64>>(&["GET", &counter]).await
        };
        let set = async |to: &str| fixture.redis.cmd(&["CONFIG", "SET", "maxmemory", to]).await;
        let first = lock("free").lock().await.unwrap();
        let last = first.token().expect("it has one");
        first.unlock().await.unwrap();
        let held = lock("held").lock().await.unwrap();
        let token = held.token();
        set("1").await;
        for name in ["free", "new"] {
            let error = lock(name).lock().await.unwrap_err();
            assert_eq!(refused(&error).0, "OOM");
            let error = lock(name).try_lock().wait(SOON).await.unwrap_err();
            assert_eq!(refused(&error).0, "OOM");
            assert!(!fixture.redis.exists(name).await, "half a lock is left");
        }
        assert_eq!(counter("free").await, Some(last));
        assert_eq!(counter("new").await, None);
        // A re-entry.
        let error = lock("held").lock().await.unwrap_err();
        assert_eq!(refused(&error).0, "OOM");
        assert!(held.is_valid() && held.token() == token);
        assert_eq!(counter("held").await, token);
        assert_eq!(held.unlock().await.unwrap(), Unlocked::Released);
        assert!(fixture.redis.errorstats().await["OOM"] >= 5);

        set("0").await;
        let next = lock("free").lock().await.unwrap();
        assert!(next.token() > Some(last));
        assert_eq!(counter("free").await, next.token());
        next.unlock().await.unwrap();
        let next = lock("held").lock().await.unwrap();
        assert!(next.token() > token);
        next.unlock().await.unwrap();
        fixture.assert_recovered().await;
    }
}

#[tokio::test]
async fn a_server_that_cannot_save_refuses_with_the_reason() {
    let fixture = Fixture::start().await;
    let guard = fixture.lock().lock().await.unwrap();
    fixture.fail_to_save().await;
    let free = fixture.client.lock("other");
    let error = free.lock().await.unwrap_err();
    assert_eq!(refused(&error).0, "MISCONF");
    let error = guard.unlock().await.unwrap_err();
    assert_eq!(unconfirmed(&error).0, "MISCONF");
    assert!(!fixture.is_free().await);
    fixture.write_unsaved().await;
    // The background retries it all the time.
    fixture.await_free().await;
    fixture.assert_recovered().await;
}

#[tokio::test]
async fn a_missing_or_wrong_password_fails_at_connect_and_is_not_shown() {
    let server = RedisServer::builder().password("s3cret").start().await;
    let error = Client::connect(server.url().replace(":s3cret@", ""))
        .await
        .expect_err("it has no password");
    assert_eq!(refused(&error).0, "NOAUTH");
    let wrong = server.url().replace("s3cret", "gu3ssed");
    let error = Client::connect(&wrong).await.expect_err("it is wrong");
    assert_eq!(refused(&error).0, "WRONGPASS");
    for text in [format!("{error}"), format!("{error:?}")] {
        assert!(
            !text.contains("gu3ssed") && !text.contains("s3cret"),
            "{text}"
        );
    }
    let client = Client::connect(server.url()).await.unwrap();
    for text in [format!("{client:?}"), format!("{:?}", client.lock(NAME))] {
        assert!(!text.contains("s3cret"), "{text}");
    }
    drop(client.lock(NAME).lock().await.unwrap());
}

#[tokio::test]
async fn a_revoked_permission_is_an_error_that_names_it() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let user = ["ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all"];
    redis.cmd(&user).await;
    let url = server.url().replace("redis://", "redis://app:pw@");
    let client = Client::connect(url).await.unwrap();
    let guard = client.lock(NAME).lock().await.unwrap();
    redis
        .cmd(&["ACL", "SETUSER", "app", "-eval", "-evalsha"])
        .await;
    let error = client.lock("other").lock().await.unwrap_err();
    let (code, message) = refused(&error);
    assert!(code == "NOPERM" && message.contains("eval"), "{error}");
    let error = guard.unlock().await.unwrap_err();
    let (code, message) = unconfirmed(&error);
    assert!(code == "NOPERM" && message.contains("eval"), "{error}");
    assert!(redis.exists(NAME).await);
    redis
        .cmd(&["ACL", "SETUSER", "app", "+eval", "+evalsha"])
        .await;
    eventually(SOON, "the lock is free", async || !redis.exists(NAME).await).await;

    // Inside the script the server names the key that the user may not use.
    redis
        .cmd(&["ACL", "SETUSER", "app", "resetkeys", "~orders:*"])
        .await;
    let error = client.lock("other").lock().await.unwrap_err();
    assert_eq!(refused(&error).0, "NOPERM");
    drop(client.lock(NAME).lock().await.unwrap());
    assert!(redis.errorstats().await["NOPERM"] >= 3);
}

#[tokio::test]
async fn a_key_of_another_type_is_an_error_that_names_it() {
    let fixture = Fixture::start().await;
    let set = ["SET", NAME, "a string", "EX", "100"];
    fixture.redis.cmd(&set).await;
    let lock = fixture.lock();
    for error in [
        lock.lock().await.unwrap_err(),
        lock.try_lock().await.unwrap_err(),
        lock.try_lock().wait(SOON).await.unwrap_err(),
        lock.holder().await.unwrap_err(),
        lock.force_unlock().await.unwrap_err(),
    ] {
        assert_eq!(refused(&error).0, "WRONGTYPE");
    }
    assert!(lock.is_locked().await.unwrap());
    fixture.redis.cmd(&["DEL", NAME]).await;

    let guard = lock.lock().await.unwrap();
    fixture.redis.cmd(&set).await;
    let error = guard.unlock().await.unwrap_err();
    assert_eq!(unconfirmed(&error).0, "WRONGTYPE");
    let value: String = fixture.redis.ask(&["GET", NAME]).await;
    assert_eq!(value, "a string", "it is not ours to delete");
    fixture.redis.cmd(&["DEL", NAME]).await;
    fixture.assert_recovered().await;
}

#[tokio::test]
async fn a_guard_on_a_server_that_lost_its_data_is_lost() {
    let fixture = Fixture::with(|client| client.watchdog_lease(SOON / 4)).await;
    let guard = fixture.lock().lock().await.unwrap();
    let fixed = fixture
        .client
        .lock("fixed")
        .lock()
        .lease(SOON)
        .await
        .unwrap();
    fixture.server.restart(Data::Lost).await;
    let lost = tokio::time::timeout(SOON, guard.lost()).await;
    let reason = lost.expect("it is notified").reason();
    // The answer to a renewal or, on a very busy machine, the deadline.
    assert!(
        matches!(reason, LostReason::NotOurs | LostReason::Deadline),
        "{reason:?}"
    );
    assert!(!guard.is_valid());
    assert!(guard.unlock().await.unwrap_err().is_lost());
    // The client does not renew a fixed lease, so it detects the loss at the unlock. The callers'
    // connection is new by then: an unlock that is repeated after a broken connection cannot distinguish a loss
    // from its own release.
    assert!(!fixture.lock().is_locked().await.unwrap());
    let error = fixed.unlock().await.unwrap_err();
    assert!(error.is_lost() && !error.may_be_held(), "{error}");
    let redis = fixture.server.redis().await;
    assert!(redis.keys().await.is_empty());
    drop(fixture.lock().lock().await.unwrap());
}

/// A refused command is not repeated.
#[tokio::test]
async fn a_refused_command_is_not_retried() {
    let fixture = Fixture::with(|client| client.command_timeout(PATIENCE)).await;
    fixture
        .redis
        .cmd(&["SET", NAME, "a string", "EX", "100"])
        .await;
    assert!(fixture.lock().try_lock().wait(SOON).await.is_err());
    assert_eq!(fixture.proxy.count(acquire()), 1);
}
