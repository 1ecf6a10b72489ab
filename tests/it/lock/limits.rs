//! The duration of a call with a time limit, whatever the server does, and its error.

use std::time::{Duration, Instant};

use lockdog::request::TryLockRequest;
use lockdog::{Client, Error, MultiLock, Owner, RedLock};

use super::{Fixture, SOON, ms};
use crate::support::{RedisServer, eventually, timed, until_ok};

/// How much longer than its wait each of these calls took, on locks whose server does not answer. No call
/// has to settle an earlier one of the same lock.
async fn overruns(lock: impl Fn(&str) -> TryLockRequest, wait: Duration) -> Vec<Duration> {
    let mut overruns = Vec::new();
    for number in 0..10 {
        let name = format!("{}:{number}", wait.as_millis());
        let request = lock(&name).wait(wait).owner(&Owner::new());
        let (outcome, took) = timed(request.into_future()).await;
        let error = outcome.expect_err("the server is stopped");
        assert!(error.is_retriable(), "{error}");
        assert!(took >= wait, "{took:?} of {wait:?}");
        overruns.push(took - wait);
    }
    overruns.sort_unstable();
    println!("{wait:?} and then {overruns:?}");
    overruns
}

/// The smallest of ten overruns is judged, because a busy machine lengthens some. The test kit's clock
/// checks the exact end of a call (`limits` in `crates/lockdog-test`). Here the call ends with its wait,
/// and not with the command timeout.
#[tokio::test]
async fn a_call_ends_at_its_deadline_when_the_server_does_not_answer() {
    let server = RedisServer::start().await;
    let client = Client::connect(server.url()).await.unwrap();
    let plain = |name: &str| client.lock(name).try_lock();
    let multi = |name: &str| {
        let members = ["a", "b"].map(|member| client.lock(format!("{member}:{name}")));
        MultiLock::new(members).try_lock()
    };
    plain("l").await.unwrap().unwrap().unlock().await.unwrap();
    server.pause();
    for wait in [ms(20), ms(50)] {
        for overruns in [overruns(plain, wait).await, overruns(multi, wait).await] {
            assert!(overruns[0] < ms(1_000), "{overruns:?}");
        }
    }
    server.resume();
}

/// Each call has its own clients, because a client that knows its servers as silent sends them nothing.
#[tokio::test]
async fn a_red_lock_call_ends_at_its_deadline_when_no_server_answers() {
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(RedisServer::start().await);
    }
    let mut locks = Vec::new();
    for _ in 0..6 {
        let mut members = Vec::new();
        for server in &servers {
            members.push(Client::connect(server.url()).await.unwrap().lock("l"));
        }
        locks.push(RedLock::new(members));
    }
    for server in &servers {
        server.pause();
    }
    let mut overruns = Vec::new();
    for lock in &locks {
        let (outcome, took) = timed(lock.try_lock().wait(ms(20)).into_future()).await;
        let error = outcome.expect_err("the servers are stopped");
        assert!(error.is_retriable(), "{error}");
        assert!(took >= ms(20), "{took:?}");
        overruns.push(took - ms(20));
    }
    overruns.sort_unstable();
    println!("20 ms and then {overruns:?}");
    assert!(overruns[0] < ms(1_000), "{overruns:?}");
    for server in &servers {
        server.resume();
    }
}

/// If a call ended before an answer can arrive, each free lock would be a timeout.
#[tokio::test]
async fn a_free_lock_is_acquired_by_a_call_with_a_wait_of_one_millisecond() {
    let test = Fixture::start().await;
    let lock = test.client.lock("l");
    let waits = [ms(1), Duration::from_nanos(1)];
    for wait in waits {
        let mut is_late = false;
        eventually(
            SOON,
            "a busy machine answers in time, too",
            async || match lock.try_lock().wait(wait).await {
                Ok(Some(guard)) => guard.unlock().await.is_ok(),
                Ok(None) => {
                    // An acquire that was answered too late is undone, which takes longer than the wait.
                    assert!(is_late, "no other owner wants it");
                    false
                }
                Err(error) => {
                    assert!(error.is_timeout(), "{error}");
                    is_late = true;
                    false
                }
            },
        )
        .await;
    }
    test.redis.assert_clean().await;
}

/// The last sending of a call may have had a few milliseconds only. Each call has its own clients, because
/// the settlement of a call closes the connection of the next one.
#[tokio::test]
async fn a_timeout_reports_the_duration_of_the_whole_call() {
    let servers = [RedisServer::start().await, RedisServer::start().await];
    let mut locks = Vec::new();
    for _ in 0..4 {
        let mut members = Vec::new();
        for server in &servers {
            let client = Client::builder().url(server.url()).command_timeout(ms(150));
            let client = until_ok(SOON, async || client.clone().build().await).await;
            members.push(client.lock("l"));
        }
        locks.push(members);
    }
    for server in &servers {
        server.pause();
    }
    for (number, members) in locks.into_iter().enumerate() {
        let request = match number {
            0 => members[0].try_lock(),
            1 => members[0].try_lock().wait(ms(600)),
            2 => MultiLock::new(members).try_lock(),
            _ => MultiLock::new(members).try_lock().wait(ms(600)),
        };
        let began = Instant::now();
        let error = request.await.unwrap_err();
        let took = began.elapsed();
        // Later sendings of a long wait find no connection.
        let Error::Timeout { waited, .. } = error else {
            assert!(number % 2 == 1, "{error}");
            continue;
        };
        let least = if number % 2 == 1 { ms(600) } else { ms(150) };
        assert!(waited >= least && waited <= took, "{waited:?} of {took:?}");
    }
    for server in &servers {
        server.resume();
    }
}

/// Clocks have a range of 584 years. A deadline beyond it would be over at once.
#[tokio::test]
async fn a_lease_beyond_the_range_of_clocks_is_refused_before_a_command_is_sent() {
    let test = Fixture::start().await;
    let client = Client::builder()
        .url(test.server.url())
        .max_lease(Duration::MAX)
        .build()
        .await
        .unwrap();
    test.redis.reset_stats().await;
    let year = Duration::from_secs(365 * 24 * 60 * 60);
    let lock = client.lock("l");
    let red = RedLock::new([client.lock("m")]).max_lease(Duration::MAX);
    for request in [lock.try_lock(), red.try_lock()] {
        for lease in [year * 585, Duration::MAX] {
            let error = request.clone().lease(lease).await.unwrap_err();
            assert!(matches!(error, Error::Invalid { .. }), "{error}");
        }
    }
    assert_eq!(test.calls(["evalsha", "eval"]).await, [0, 0]);
    let guard = lock.lock().lease(year * 400).await.unwrap();
    assert!(guard.remaining() > year * 390, "{:?}", guard.remaining());
    guard.unlock().await.unwrap();
    test.redis.assert_clean().await;
}
