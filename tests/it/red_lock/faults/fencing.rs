//! Fencing tokens only grow, whatever happens to holders, locks and instances.

use std::time::Instant;

use lockdog::{Error, Guard, RedLock};

use super::crowd::Crowd;
use super::fixture::{Fixture, give_back, red_lock, states_as_letters, take};
use super::story::Watched;
use super::{LEASE, NAME, QUARANTINE};
use crate::red_lock::{SOON, ms};
use crate::support::{Data, RedisServer, eventually};

/// A resource that refuses a write with a smaller token than one it has seen.
#[derive(Default)]
pub(super) struct Resource {
    largest: u64,
}

impl Resource {
    /// Returns false for a refused write.
    pub(super) fn write(&mut self, token: u64) -> bool {
        let accepted = token >= self.largest;
        self.largest = self.largest.max(token);
        accepted
    }
}

/// Two owners acquire the lock alternately. Each token must be larger than all before.
struct Turns {
    largest: u64,
    locks: [RedLock; 2],
}

impl Turns {
    async fn take(&mut self) -> Guard {
        self.locks.rotate_left(1);
        let guard = take(&self.locks[0]).await;
        let token = guard.token().expect("it is fenced");
        assert!(token > self.largest, "{token} after {}", self.largest);
        self.largest = token;
        guard
    }

    async fn take_and_unlock(&mut self) {
        give_back(self.take().await).await;
    }
}

#[tokio::test]
async fn tokens_grow_after_an_expiry_a_deletion_and_a_flush_of_all() {
    let test = Fixture::start(3).await;
    let mut turns = turns(&test).await;
    let outer = turns.take().await;
    let inner = take(&turns.locks[0]).await;
    assert_eq!(inner.token(), outer.token(), "a re-entry keeps it");
    drop((inner, outer));
    turns.take_and_unlock().await;

    let taken = turns.locks[0].try_lock().wait(SOON).lease(ms(2_000));
    let guard = taken.await.unwrap().expect("it is free");
    assert!(guard.token() > Some(turns.largest));
    turns.largest = guard.token().unwrap();
    Watched::new(guard).followed_to_the_end().await;
    turns.take_and_unlock().await;

    let guard = turns.take().await;
    for server in &test.servers {
        server.redis().await.cmd(&["DEL", NAME]).await;
    }
    let next = turns.take().await;
    Watched::new(guard).followed_to_the_end().await;
    give_back(next).await;

    for server in &test.servers {
        let redis = server.redis().await;
        eventually(SOON, "it is free", async || !redis.exists(NAME).await).await;
        assert!(!redis.keys().await.is_empty(), "the register is there");
        // A late command of a release may write a key after a flush.
        eventually(SOON, "it is empty", async || {
            redis.cmd(&["FLUSHALL"]).await;
            redis.keys().await.is_empty()
        })
        .await;
    }
    turns.take_and_unlock().await;
    test.assert_nothing_stays().await;
}

/// In the end none of the first registers is left.
#[tokio::test]
async fn tokens_grow_while_instances_return_empty() {
    let test = Fixture::start(5).await;
    let mut turns = turns(&test).await;
    turns.take_and_unlock().await;
    for server in &test.servers[..2] {
        server.restart(Data::Lost).await;
        turns.take_and_unlock().await;
    }
    tokio::time::sleep(QUARANTINE).await;
    turns.take_and_unlock().await;
    for server in &test.servers[2..4] {
        server.restart(Data::Lost).await;
        turns.take_and_unlock().await;
    }
    test.assert_nothing_stays().await;
}

/// Two of five may have lost the latest token, and the unreachable one may be the only other that has
/// it. So no client can choose a larger token, and the call is an error and not "busy".
#[tokio::test]
async fn an_acquire_fails_if_only_an_unreachable_instance_may_have_the_latest_token() {
    let test = Fixture::start(5).await;
    let mut turns = turns(&test).await;
    turns.take_and_unlock().await;
    for server in &test.servers[..2] {
        server.restart(Data::Lost).await;
    }
    turns.take_and_unlock().await;
    tokio::time::sleep(QUARANTINE).await;
    let patient = turns.locks[0].clone();
    test.servers[4].pause();
    let redis = test.servers[3].redis().await;
    eventually(SOON, "each instance is what it is", async || {
        let wait = turns.locks[0].try_lock().wait(ms(500));
        let error = wait.await.expect_err("too few know the latest token");
        println!("{error}");
        let Error::NoQuorum(none) = &error else {
            panic!("{error}");
        };
        // A busy machine may be late.
        states_as_letters(none.instances(), &test) == "FFAAU"
    })
    .await;
    // The client does not retry without pauses.
    redis.reset_stats().await;
    let waiter = tokio::spawn(patient.try_lock().wait(SOON).into_future());
    let began = Instant::now();
    tokio::time::sleep(ms(600)).await;
    let stats = redis.commandstats().await;
    let asked = stats.get("evalsha").copied().unwrap_or(0);
    let took = began.elapsed();
    println!("{asked} scripts in {took:?}");
    assert!(
        u128::from(asked) * 10 < took.as_millis(),
        "{asked} in {took:?}"
    );
    test.servers[4].resume();
    let guard = waiter.await.unwrap().unwrap().expect("it is free");
    assert!(guard.token() > Some(turns.largest));
    give_back(guard).await;
    test.assert_nothing_stays().await;
}

/// Only the clocks keep the tokens growing.
#[tokio::test]
async fn tokens_grow_after_all_instances_returned_empty() {
    let test = Fixture::start(3).await;
    let mut before = turns(&test).await;
    for _ in 0..3 {
        before.take_and_unlock().await;
    }
    for server in &test.servers {
        server.restart(Data::Lost).await;
    }
    // New clients acquire at once, and clients that knew the old servers after the quarantine.
    let mut turns = turns(&test).await;
    turns.largest = before.largest;
    turns.take_and_unlock().await;
    before.largest = turns.largest;
    before.take_and_unlock().await;
    test.assert_nothing_stays().await;
}

/// Two instances lose what they granted, again and again. Two clients may believe that they hold
/// the lock, but each has a larger token than all before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_for_many_tasks_despite_a_jumping_clock_and_flushes() {
    let mut servers = vec![RedisServer::builder().own_clock().start().await];
    for _ in 1..5 {
        servers.push(RedisServer::start().await);
    }
    let test = Fixture::of(servers);
    let locks = turns(&test).await.locks;
    let crowd = Crowd::start(&locks);
    let flushed = test.servers[1].redis().await;
    for seconds in [60, 0, -60, 0, 60, -60, 0] {
        test.servers[0].set_clock(seconds);
        crowd.await_visits(5).await;
        flushed.cmd(&["FLUSHALL"]).await;
        crowd.await_visits(5).await;
        tokio::time::sleep(LEASE / 8).await;
    }
    crowd.end_of_tokens().await;
    test.servers[0].set_clock(120);
    test.assert_nothing_stays().await;
}

async fn turns(test: &Fixture) -> Turns {
    let mut locks = Vec::new();
    for _ in 0..2 {
        locks.push(red_lock(&test.clients().await).fenced());
    }
    Turns {
        largest: 0,
        locks: locks.try_into().expect("there are two"),
    }
}
