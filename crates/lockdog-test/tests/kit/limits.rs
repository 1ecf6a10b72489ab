//! The duration of a call with a time limit, to the millisecond.

use std::time::Duration;

use lockdog::config::{Backoff, Wake};
use lockdog::request::TryLockRequest;
use lockdog::{Client, Error, MultiLock, Owner, RedLock};
use lockdog_test::Server;
use tokio::time::Instant;

/// By how much a call to silent servers exceeded its wait.
async fn overrun(request: TryLockRequest, wait: Duration) -> Duration {
    let began = Instant::now();
    let error = request.wait(wait).await.expect_err("no server answers");
    assert!(error.is_retriable(), "{error}");
    let took = began.elapsed();
    assert!(took >= wait, "{took:?} of {wait:?}");
    took - wait
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_at_its_deadline_when_the_server_does_not_answer() {
    let server = Server::new();
    let client = server.client().await;
    let guard = client.lock("warm").lock().await.unwrap();
    guard.unlock().await.unwrap();
    server.freeze();
    for (number, millis) in [20, 50, 300, 1_000].into_iter().enumerate() {
        let wait = Duration::from_millis(millis);
        // Each call uses another lock, because an earlier call of the same lock is still being undone.
        let plain = client.lock(format!("plain:{number}")).try_lock();
        let members = ["a", "b"].map(|member| client.lock(format!("{member}:{number}")));
        let multi = MultiLock::new(members).try_lock();
        for request in [plain, multi] {
            let overrun = overrun(request, wait).await;
            assert!(overrun <= TIMER, "{wait:?} and then {overrun:?}");
        }
    }
    server.thaw();
}

/// Each call has new clients, because a client does not ask servers that it knows to be silent.
#[tokio::test(start_paused = true)]
async fn a_red_lock_call_ends_at_its_deadline_when_no_server_answers() {
    for millis in [20, 300] {
        let servers = [Server::new(), Server::new(), Server::new()];
        let mut members = Vec::new();
        for server in &servers {
            members.push(server.client().await.lock("l"));
        }
        for server in &servers {
            server.freeze();
        }
        let wait = Duration::from_millis(millis);
        let overrun = overrun(RedLock::new(members).try_lock(), wait).await;
        assert!(overrun <= TIMER, "{wait:?} and then {overrun:?}");
        for server in &servers {
            server.thaw();
        }
    }
}

/// Of the calls of a client set one asks the servers, for half a second. The other one does not know whether the lock
/// is free.
#[tokio::test(start_paused = true)]
async fn a_red_lock_call_that_waits_behind_a_silent_round_is_a_timeout() {
    for is_owners in [false, true] {
        let servers = [Server::new(), Server::new(), Server::new()];
        let mut members = Vec::new();
        for server in &servers {
            members.push(server.client().await.lock("l"));
        }
        let lock = RedLock::new(members);
        for server in &servers {
            server.freeze();
        }
        let owner = Owner::new();
        // A call without a wait is in no queue. A call of the same owner waits for its round.
        let first = match is_owners {
            false => lock.try_lock().wait(Duration::from_secs(60)),
            true => lock.try_lock().owner(&owner),
        };
        let first = tokio::spawn(first.into_future());
        tokio::time::sleep(Duration::from_millis(10)).await;
        let wait = Duration::from_millis(200);
        let began = Instant::now();
        let second = lock.try_lock().owner(&owner).wait(wait).await;
        let Err(Error::Timeout { waited, .. }) = &second else {
            panic!("is_owners={is_owners}: {second:?}");
        };
        assert!(began.elapsed() <= wait + TIMER, "{:?}", began.elapsed());
        assert!(*waited >= wait, "{waited:?}");
        assert!(!first.is_finished(), "its round is over");
        first.abort();
        for server in &servers {
            server.thaw();
        }
    }
}

/// A nested call needs a longer lease, for which the clients ask all servers.
#[tokio::test(start_paused = true)]
async fn a_nested_red_lock_call_ends_at_its_deadline_when_no_server_answers() {
    for millis in [20, 300] {
        let servers = [Server::new(), Server::new(), Server::new()];
        let mut members = Vec::new();
        for server in &servers {
            members.push(server.client().await.lock("l"));
        }
        let lock = RedLock::new(members);
        let outer = lock.lock().lease(Duration::from_secs(20)).await.unwrap();
        for server in &servers {
            server.freeze();
        }
        let wait = Duration::from_millis(millis);
        let nested = lock.try_lock().lease(Duration::from_secs(60));
        let overrun = overrun(nested, wait).await;
        assert!(overrun <= TIMER, "{wait:?} and then {overrun:?}");
        assert!(outer.is_valid());
        assert_eq!(outer.hold_count(), 1);
        for server in &servers {
            server.thaw();
        }
    }
}

/// An answer takes 20 ms and a command is always pending, so each wait ends during a command.
#[tokio::test(start_paused = true)]
async fn a_busy_lock_is_no_timeout_when_the_wait_ends_during_a_command() {
    let server = Server::new();
    let held = server.client().await.lock("l").lock().await.unwrap();
    let polls = Wake::Poll(Backoff::constant(Duration::from_millis(1)));
    let client: Client = server.builder().wake(polls).build().await.unwrap();
    let lock = client.lock("l");
    assert!(lock.try_lock().await.unwrap().is_none());
    server.delay(Duration::from_millis(20));
    for millis in 100..160 {
        let wait = Duration::from_millis(millis);
        let began = Instant::now();
        let busy = lock.try_lock().wait(wait).await;
        assert!(matches!(busy, Ok(None)), "{wait:?}: {busy:?}");
        let over = began.elapsed() - wait;
        assert!(over <= TIMER, "{wait:?} and then {over:?}");
    }
    server.delay(Duration::ZERO);
    held.unlock().await.unwrap();
}

/// Replies are lost, then another owner holds the lock, and the server stops before the wait is over.
/// So the last sending has only a part of the wait.
#[tokio::test(start_paused = true)]
async fn a_timeout_reports_the_duration_of_the_whole_call() {
    let (timeout, wait) = (Duration::from_millis(150), Duration::from_millis(600));
    for is_multi in [false, true] {
        let server = Server::new();
        let held = server.client().await.lock("a").lock().await.unwrap();
        let polls = Wake::Poll(Backoff::constant(Duration::from_millis(10)));
        let builder = server.builder().wake(polls).command_timeout(timeout);
        let client = builder.build().await.unwrap();
        let request = match is_multi {
            false => client.lock("a").try_lock(),
            true => MultiLock::new(["a", "b"].map(|name| client.lock(name))).try_lock(),
        };
        server.lose_replies(3);
        let stops = server.clone();
        tokio::spawn(async move {
            tokio::time::sleep(wait - timeout / 2).await;
            stops.freeze();
        });
        let began = Instant::now();
        let error = request.wait(wait).await.unwrap_err();
        let took = began.elapsed();
        let Error::Timeout { waited, .. } = &error else {
            panic!("is_multi={is_multi}: {error}");
        };
        assert!(
            *waited >= wait && *waited <= took,
            "is_multi={is_multi}: {waited:?} of {took:?}"
        );
        server.thaw();
        held.unlock().await.unwrap();
        server.assert_clean().await;
    }
}

/// Tokio's timers are exact to a millisecond, and a call has one or two.
const TIMER: Duration = Duration::from_millis(2);
