//! Renewals that come late, twice, or whose answers get lost.

use std::time::Duration;

use lockdog::{Client, Guard};
use tokio::time::sleep;

use super::{LEASE, OUTLAST, PERIOD, SAFETY, builder, connected, is_renewal, renewals, ttl};
use crate::support::{Action, Direction, Gate, Proxy, Redis, RedisServer, eventually};

#[tokio::test]
async fn late_answers_to_renewals_lose_no_lock() {
    let held = Renewed::start().await;
    held.proxy
        .delay(Direction::ToClient, Duration::from_millis(100));
    sleep(OUTLAST).await;
    eventually(SAFETY, "some answers were late", async || {
        held.proxy.counts().delayed > 3
    })
    .await;
    held.assert_still_held().await;
}

#[tokio::test]
async fn renewals_that_run_without_an_answer_lose_no_lock() {
    let held = Renewed::with_lease(LEASE * 2).await;
    // Two connections in a row fall silent: each costs one try, since what is sent again goes
    // elsewhere.
    let before = renewals(&held.proxy);
    let rule = held.proxy.on(is_renewal, Action::DropReply).times(2);
    rule.wait_hits(2).await;
    held.proxy.wait_for(is_renewal, before + 3).await;
    let commands = held.proxy.commands();
    let seen = commands.iter().filter(|seen| is_renewal(&seen.args));
    let on: Vec<u64> = seen.skip(before).map(|seen| seen.connection).collect();
    assert!(on[0] != on[1] && on[1] != on[2], "{on:?}");
    sleep(LEASE * 2 + PERIOD).await;
    held.assert_still_held().await;
}

#[tokio::test]
async fn connections_that_break_after_a_renewal_ran_lose_no_lock() {
    let held = Renewed::start().await;
    let rule = held.proxy.on(is_renewal, Action::ExecuteThenCut).times(3);
    rule.wait_hits(3).await;
    sleep(OUTLAST).await;
    held.assert_still_held().await;
}

#[tokio::test]
async fn a_renewal_that_arrives_twice_renews_once() {
    let held = Renewed::start().await;
    let rule = held.proxy.on(is_renewal, Action::Twice).times(3);
    rule.wait_hits(3).await;
    assert!(ttl(&held.redis, "a").await <= LEASE);
    assert_eq!(held.redis.hash("a").await.len(), 1);
    held.assert_still_held().await;
}

#[tokio::test]
async fn a_temporary_refusal_of_renewals_loses_no_lock() {
    let held = Renewed::start().await;
    let reply = "-LOADING Redis is loading the dataset in memory".to_owned();
    let rule = held.proxy.on(is_renewal, Action::ReplyWith(reply)).times(3);
    rule.wait_hits(3).await;
    sleep(OUTLAST).await;
    held.assert_still_held().await;
}

#[tokio::test]
async fn a_renewal_in_flight_at_the_end_of_its_hold_never_lengthens_the_next_hold() {
    // The renewal is not sent again before the test has ended its hold.
    let held = Renewed::with_lease(LEASE * 2).await;
    let gate = Gate::new();
    held.proxy.on(is_renewal, Action::HoldRequest(gate.clone()));
    gate.wait_reached().await;
    held.guard.unlock().await.unwrap();
    let lease = LEASE;
    let request = held.client.lock("a").lock().lease(lease);
    let next = request.await.unwrap();
    gate.open();
    gate.wait_passed().await;
    // An ended hold is not renewed any more, whatever the outcome of that renewal.
    let before = renewals(&held.proxy);
    let left = held.redis.pttl("a").await;
    assert!(left <= lease.as_millis() as i64, "{left} ms");
    next.lost().await;
    eventually(SAFETY, "it expired by itself", async || {
        !held.redis.exists("a").await
    })
    .await;
    assert_eq!(renewals(&held.proxy), before);
}

#[tokio::test]
async fn a_renewal_repeated_after_its_hold_ended_does_nothing() {
    let held = Renewed::with_lease(LEASE * 2).await;
    let gate = Gate::new();
    held.proxy.on(is_renewal, Action::TwiceLate(gate.clone()));
    gate.wait_reached().await;
    held.guard.unlock().await.unwrap();
    let lease = LEASE;
    let next = held.client.lock("a").lock().lease(lease).await.unwrap();
    gate.open();
    gate.wait_passed().await;
    let left = held.redis.pttl("a").await;
    assert!(left <= lease.as_millis() as i64, "{left} ms");
    drop(next);
    held.redis.assert_clean().await;
}

/// The unlock of an inner hold races with a renewal.
#[tokio::test]
async fn an_inner_unlock_during_a_renewal_leaves_the_outer_hold_renewed() {
    let held = Renewed::start().await;
    let inner = held.client.lock("a").lock().await.unwrap();
    let gate = Gate::new();
    held.proxy.on(is_renewal, Action::HoldRequest(gate.clone()));
    gate.wait_reached().await;
    inner.unlock().await.unwrap();
    gate.open();
    gate.wait_passed().await;
    let counts: Vec<String> = held.redis.hash("a").await.into_values().collect();
    assert_eq!(counts, ["1"]);
    sleep(OUTLAST).await;
    held.assert_still_held().await;
}

/// A lock that is renewed through a proxy.
struct Renewed {
    proxy: Proxy,
    redis: Redis,
    client: Client,
    guard: Guard,
    _server: RedisServer,
}

impl Renewed {
    async fn start() -> Self {
        Self::with_lease(LEASE).await
    }

    async fn with_lease(lease: Duration) -> Self {
        let server = RedisServer::start().await;
        let proxy = Proxy::start(&server).await;
        let client = connected(builder(proxy.url()).watchdog_lease(lease)).await;
        let guard = client.lock("a").lock().await.unwrap();
        // The watchdog's connection is there from now on.
        proxy.wait_for(is_renewal, 1).await;
        sleep(PERIOD / 4).await;
        Self {
            redis: server.redis().await,
            proxy,
            client,
            guard,
            _server: server,
        }
    }

    async fn assert_still_held(self) {
        assert!(self.guard.is_valid());
        assert!(self.redis.exists("a").await);
        self.guard.unlock().await.unwrap();
        self.redis.assert_clean().await;
        assert!(self.client.holds().is_empty());
    }
}
