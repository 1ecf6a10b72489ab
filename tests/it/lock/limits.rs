//! How long a call takes that has a limit, whatever the server does, and what it says of that.

use std::time::{Duration, Instant};

use lockdog::{Client, Error, MultiLock, Owner, RedLock};

use super::{Fixture, SOON, ms};
use crate::support::{RedisServer, eventually, timed};

/// How much longer than its wait each of these calls took, of a lock whose server does not answer.
async fn overruns(lock: impl Fn() -> lockdog::TryLockRequest, wait: Duration) -> Vec<Duration> {
    let mut overruns = Vec::new();
    for _ in 0..10 {
        let request = lock().wait(wait).owner(&Owner::new());
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

/// The smallest overrun of ten is judged, since a busy machine lengthens some.
#[tokio::test]
async fn a_call_ends_with_its_wait_though_the_server_does_not_answer() {
    let server = RedisServer::start().await;
    let client = Client::connect(server.url()).await.unwrap();
    let locks = ["a", "b"].map(|name| client.lock(name));
    let [plain, _] = locks.clone();
    let multi = MultiLock::new(locks.clone());
    plain.lock().await.unwrap().unlock().await.unwrap();
    server.pause();
    for wait in [ms(50), ms(200)] {
        let overruns = [
            overruns(|| plain.try_lock(), wait).await,
            overruns(|| multi.try_lock(), wait).await,
        ];
        for overruns in overruns {
            assert!(overruns[0] < ms(40), "{overruns:?}");
        }
    }
    server.resume();
}

#[tokio::test]
async fn a_red_locks_call_ends_with_its_wait_though_no_server_answers() {
    let mut servers = Vec::new();
    let mut locks = Vec::new();
    for _ in 0..3 {
        let server = RedisServer::start().await;
        let client = Client::connect(server.url()).await.unwrap();
        locks.push(client.lock("l"));
        servers.push(server);
    }
    let lock = RedLock::new(locks);
    lock.lock().await.unwrap().unlock().await.unwrap();
    for server in &servers {
        server.pause();
    }
    let overruns = overruns(|| lock.try_lock(), ms(50)).await;
    assert!(overruns[0] < ms(40), "{overruns:?}");
    for server in &servers {
        server.resume();
    }
}

/// A wait that is shorter than an answer takes would make each free lock a timeout.
#[tokio::test]
async fn a_free_lock_is_acquired_by_a_call_that_waits_for_a_millisecond() {
    let test = Fixture::start().await;
    let lock = test.client.lock("l");
    let waits = [ms(1), Duration::from_nanos(1)];
    for wait in waits {
        eventually(
            SOON,
            "a busy machine answers in time, too",
            async || match lock.try_lock().wait(wait).await {
                Ok(guard) => {
                    let guard = guard.expect("nobody else wants it");
                    guard.unlock().await.is_ok()
                }
                Err(error) => {
                    assert!(error.is_timeout(), "{error}");
                    false
                }
            },
        )
        .await;
    }
    test.redis.assert_clean().await;
}

/// The last attempt of each call is cut off at another moment; the lock is busy all the same.
#[tokio::test]
async fn a_busy_lock_is_no_timeout_though_the_wait_ends_between_question_and_answer() {
    let test = Fixture::start().await;
    let client = Client::builder()
        .url(test.server.url())
        .poll_cap(ms(10))
        .build()
        .await
        .unwrap();
    let held = test.held_elsewhere("l").await;
    let lock = client.lock("l");
    let mut busy = 0;
    for more in 0..12 {
        let wait = ms(300) + Duration::from_micros(more * 300);
        match lock.try_lock().wait(wait).owner(&Owner::new()).await {
            Ok(guard) => {
                assert!(guard.is_none());
                busy += 1;
            }
            // On a busy machine the last question may have been open for longer than such an end says.
            Err(error) => assert!(error.is_timeout(), "{error}"),
        }
    }
    assert!(busy >= 6, "{busy} of 12");
    held.unlock().await.unwrap();
    test.redis.assert_clean().await;
}

/// The last sending of a call may have had a few milliseconds only.
#[tokio::test]
async fn a_timeout_says_how_long_the_whole_call_took() {
    let mut servers = Vec::new();
    let mut clients = Vec::new();
    for _ in 0..3 {
        let server = RedisServer::start().await;
        let client = Client::builder().url(server.url()).command_timeout(ms(150));
        clients.push(client.build().await.unwrap());
        servers.push(server);
    }
    let plain = clients[0].lock("l");
    let multi = MultiLock::new([clients[0].lock("a"), clients[1].lock("a")]);
    for server in &servers {
        server.pause();
    }
    for request in [
        plain.try_lock(),
        plain.try_lock().wait(ms(400)),
        multi.try_lock(),
        multi.try_lock().wait(ms(400)),
    ] {
        let began = Instant::now();
        let error = request.owner(&Owner::new()).await.unwrap_err();
        let took = began.elapsed();
        let Error::Timeout { waited, .. } = error else {
            panic!("{error}")
        };
        assert!(waited <= took, "{waited:?} of {took:?}");
        assert!(waited >= ms(100), "{waited:?} of {took:?}");
        assert!(took - waited < ms(100) + took / 4, "{waited:?} of {took:?}");
    }
    for server in &servers {
        server.resume();
    }
}

/// Clocks count no further than 584 years, and a deadline that they cannot count would be over at
/// once.
#[tokio::test]
async fn a_lease_that_no_clock_can_count_is_refused_before_a_command_is_sent() {
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
