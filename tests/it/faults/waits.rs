//! Waits for a server that does not answer, or for a lock without a TTL.

use std::time::{Duration, Instant};

use lockdog::Owner;

use crate::faults::SOON;
use crate::faults::fixture::{Fixture, MOMENT, NAME, PATIENCE, take};
use crate::faults::scripts::acquire;
use crate::kinds::{Kind, some_kinds};
use crate::support::{Direction, RedisServer, eventually, timed, until_ok};

some_kinds! {
    [plain PLAIN, spin SPIN, group GROUP] {
        a_wait_on_a_lost_server_ends_in_time_with_an_error
    }
}

#[tokio::test]
async fn a_wait_on_a_frozen_server_ends_in_time_with_an_error() {
    let fixture = Fixture::start().await;
    fixture.server.pause();
    let wait = Duration::from_millis(1_000);
    let began = Instant::now();
    // One of them sends a command, and the others wait behind it.
    let mut waits = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let waiting = fixture.lock().try_lock().wait(wait).owner(&Owner::new());
        waits.spawn(timed(waiting.into_future()));
    }
    fixture.proxy.wait_for(acquire(), 1).await;
    tokio::time::sleep(wait / 2).await;
    let asked = fixture.proxy.count(acquire());
    // The next waiter may send a command when the first wait is over.
    assert!(
        asked == 1 || began.elapsed() >= wait,
        "one for all, not {asked}"
    );
    while let Some(waited) = waits.join_next().await {
        let (outcome, took) = waited.unwrap();
        let error = outcome.expect_err("the server said nothing, not even that it is busy");
        assert!(error.is_timeout() && error.is_retriable(), "{error}");
        assert!(took >= wait && took < SOON, "{took:?}");
    }
    fixture.server.resume();
    fixture.assert_recovered().await;
}

async fn a_wait_on_a_lost_server_ends_in_time_with_an_error(kind: &'static Kind) {
    let fixture = Fixture::start().await;
    fixture.server.kill();
    let wait = Duration::from_millis(1_000);
    let lock = kind.lock(&fixture.client, NAME);
    let waiting = || lock.try_lock().wait(wait).lease(SOON).into_future();
    // On a busy machine the wait may end before the refusal of its last attempt is read.
    let mut is_read = false;
    for _ in 0..5 {
        let other = tokio::spawn(timed(waiting()));
        let (outcome, took) = timed(waiting()).await;
        let mut timeouts = 0;
        for (outcome, took) in [(outcome, took), other.await.unwrap()] {
            let error = outcome.expect_err("there is no server");
            assert!(error.is_retriable(), "{error}");
            assert!(took >= wait && took < SOON, "{took:?}");
            timeouts += usize::from(error.is_timeout());
        }
        is_read |= timeouts == 0;
        if is_read {
            break;
        }
    }
    assert!(is_read, "each wait ended with a timeout");
    assert!(fixture.proxy.counts().unreachable >= 1);
}

/// Design: invariant 8.
#[tokio::test]
async fn a_wait_during_a_server_pause_gets_the_lock() {
    let fixture = Fixture::with(|client| client.command_timeout(PATIENCE)).await;
    let others = take(&fixture.others_lock().await).await;
    let waiting = tokio::spawn(fixture.lock().try_lock().wait(SOON * 3).into_future());
    fixture.proxy.wait_for(acquire(), 2).await;
    fixture.server.pause();
    tokio::time::sleep(PATIENCE * 2).await;
    fixture.server.resume();
    others.unlock().await.unwrap();
    drop(waiting.await.unwrap().unwrap().expect("it came free"));
    fixture.assert_recovered().await;
}

#[tokio::test]
async fn a_wait_for_a_key_without_ttl_is_bounded_and_ends_when_the_key_is_deleted() {
    let fixture = Fixture::with(|client| client.poll_cap(Duration::from_millis(100))).await;
    fixture.redis.cmd(&["HSET", NAME, "foreign", "1"]).await;
    // On a busy machine an attempt may be unanswered when the wait is over.
    let waited = async || fixture.lock().try_lock().wait(PATIENCE).await;
    assert!(until_ok(SOON * 3, waited).await.is_none());
    let asked = fixture.proxy.count(acquire());
    let waiting = tokio::spawn(fixture.lock().lock().into_future());
    fixture.proxy.wait_for(acquire(), asked + 3).await;
    assert!(!waiting.is_finished());
    fixture.redis.cmd(&["DEL", NAME]).await;
    drop(waiting.await.unwrap().unwrap());
    fixture.assert_recovered().await;
}

/// A silent connection is replaced while the call continues.
#[tokio::test]
async fn a_wait_survives_a_blackhole_in_either_direction() {
    for direction in [Direction::ToClient, Direction::ToServer] {
        let fixture = Fixture::with(|client| client.command_timeout(PATIENCE)).await;
        fixture.proxy.blackhole(direction);
        let waiting = tokio::spawn(fixture.lock().try_lock().wait(SOON * 3).into_future());
        eventually(SOON, "something is swallowed", async || {
            fixture.proxy.counts().blackholed >= 1
        })
        .await;
        tokio::time::sleep(PATIENCE * 3 / 2).await;
        fixture.proxy.heal();
        let guard = waiting.await.unwrap().unwrap().expect("it is free");
        eventually(SOON, "what came late is undone", async || {
            fixture.counts().await == ["1"]
        })
        .await;
        guard.unlock().await.unwrap();
        fixture.assert_recovered().await;
    }
}

/// The server restarts without data during a wait: the lock is free.
#[tokio::test]
async fn a_waiter_gets_the_lock_of_a_server_that_lost_its_data() {
    let server = RedisServer::start().await;
    let fixture = Fixture::on(server, |client| client.poll_cap(Duration::from_millis(200))).await;
    fixture.redis.cmd(&["HSET", NAME, "foreign", "1"]).await;
    let waiting = tokio::spawn(fixture.lock().try_lock().wait(SOON * 3).into_future());
    fixture.proxy.wait_for(acquire(), 2).await;
    fixture.server.restart(crate::support::Data::Lost).await;
    let guard = waiting.await.unwrap().unwrap().expect("it is free");
    let redis = fixture.server.redis().await;
    assert!(!redis.hash(NAME).await.contains_key("foreign"));
    guard.unlock().await.unwrap();
    assert!(!redis.exists(NAME).await);
    redis.assert_clean().await;
}

/// The timeout of a short wait does not mean that the server is unreachable.
#[tokio::test]
async fn a_short_wait_that_ends_during_a_server_pause_does_not_end_a_longer_wait() {
    let fixture = Fixture::with(|client| client.command_timeout(SOON)).await;
    take(&fixture.lock()).await.unlock().await.unwrap();
    let asked = fixture.proxy.count(acquire());
    fixture.server.pause();
    let short = fixture.lock().try_lock().wait(Duration::from_millis(10));
    let short = tokio::spawn(short.owner(&Owner::new()).into_future());
    // It is first in the queue and its command is in flight. The others wait behind it.
    fixture.proxy.wait_for(acquire(), asked + 1).await;
    let mut patient = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let request = fixture.lock().lock().owner(&Owner::new());
        patient.spawn(async move { request.await?.unlock().await });
    }
    let error = short.await.unwrap().expect_err("the server is stopped");
    assert!(error.is_timeout(), "{error}");
    tokio::time::sleep(MOMENT).await;
    fixture.server.resume();
    while let Some(ended) = patient.join_next().await {
        ended.unwrap().expect("it had time left");
    }
    fixture.assert_recovered().await;
}
