//! One server's wall clock is set ahead, or back.

use super::crowd::Crowd;
use super::fixture::{Fixture, assert_busy, await_states, give_back, take};
use super::story::Watched;
use super::{LEASE, NAME};
use crate::red_lock::{SOON, ms};
use crate::support::{Redis, RedisServer, eventually};

/// The keys of the server expire at once, and the client acquires the lock there again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_set_ahead_by_a_minute_loses_a_holder_one_instance_for_a_moment() {
    let test = fixture().await;
    let (mine, yours) = (test.lock().await, test.lock().await);
    let guard = take(&mine).await;
    eventually(SOON, "it has all", async || guard.margin() == 2).await;
    let crowd = Crowd::start(std::slice::from_ref(&yours));
    let redis = test.servers[0].redis().await;
    let field = redis.hash(NAME).await;
    let mut watched = Watched::new(guard);
    set_clock(&test, 60).await;
    eventually(SOON, "it was taken there again", async || {
        assert!(watched.look());
        let found = redis.hash(NAME).await;
        !found.is_empty() && found != field
    })
    .await;
    watched.stays_valid(LEASE).await;
    eventually(SOON, "it has all again", async || {
        watched.guard().margin() == 2
    })
    .await;
    assert_busy(&yours).await;
    assert_eq!(
        crowd.visits(),
        0,
        "another owner acquired the lock while it was held"
    );
    // With the clock set back, the key lives a minute longer, and is released nevertheless.
    set_clock(&test, 0).await;
    assert!(redis.pttl(NAME).await > 50_000);
    watched.stays_valid(LEASE).await;
    give_back(watched.into_guard()).await;
    crowd.await_visits(5).await;
    crowd.end().await;
    test.assert_nothing_stays().await;
}

/// The key of a dead holder exists for another minute there.
#[tokio::test]
async fn a_clock_set_back_by_a_minute_does_not_block_acquires() {
    let test = fixture().await;
    let lock = test.lock().await;
    for server in &test.servers {
        let redis = server.redis().await;
        redis.cmd(&["HSET", NAME, "dead:1.1", "1"]).await;
        let lease = LEASE.as_millis().to_string();
        redis.cmd(&["PEXPIRE", NAME, &lease]).await;
    }
    set_clock(&test, -60).await;
    let redis = test.servers[0].redis().await;
    assert!(redis.pttl(NAME).await > 50_000);
    let guard = take(&lock).await;
    await_states(&guard, &test, "HAAAA").await;
    assert!(redis.pttl(NAME).await > 40_000, "it is still taken there");
    give_back(guard).await;
    let crowd = Crowd::start(&[lock, test.lock().await]);
    crowd.await_visits(20).await;
    assert!(redis.pttl(NAME).await > 20_000);
    crowd.end().await;
    set_clock(&test, 0).await;
    test.assert_nothing_stays().await;
}

/// Masking tolerates a server that loses what it has just granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_jumping_clock_admits_no_second_holder_if_one_loss_is_masked() {
    let test = fixture().await;
    let locks = [test.lock().await, test.lock().await].map(|lock| lock.masking(1));
    let crowd = Crowd::start(&locks);
    for seconds in [60, 0, -60, 0, 60, -60, 60, 0] {
        set_clock(&test, seconds).await;
        crowd.await_visits(10).await;
        tokio::time::sleep(ms(100)).await;
    }
    crowd.end().await;
    // The key of an abandoned attempt may stay there for as long as the clock was set back.
    set_clock(&test, 120).await;
    test.assert_nothing_stays().await;
}

/// Five servers, the first with a clock of its own.
async fn fixture() -> Fixture {
    let mut servers = vec![RedisServer::builder().own_clock().start().await];
    for _ in 1..5 {
        servers.push(RedisServer::start().await);
    }
    Fixture::of(servers)
}

/// Sets the first server's clock ahead of the others' by this number of seconds.
async fn set_clock(test: &Fixture, seconds: i64) {
    test.servers[0].set_clock(seconds);
    let [its, others] = [0, 1].map(|member| &test.servers[member]);
    let (its, others) = (its.redis().await, others.redis().await);
    // A server keeps the time for its next commands.
    eventually(SOON, "the clock is set", async || {
        let ahead = time(&its).await - time(&others).await;
        (ahead - seconds).abs() <= 5
    })
    .await;
}

async fn time(redis: &Redis) -> i64 {
    let (seconds, _): (i64, i64) = redis.ask(&["TIME"]).await;
    seconds
}
