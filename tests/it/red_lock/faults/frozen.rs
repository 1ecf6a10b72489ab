//! Servers that are frozen (SIGSTOP) for less and for more than the lease.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use lockdog::error::LostReason;
use lockdog::{Error, Owner};

use super::crowd::Crowd;
use super::fixture::{
    COMMAND_TIMEOUT, Fixture, assert_busy, give_back, red_lock, states_as_letters, take,
};
use super::story::Watched;
use super::{LEASE, is_acquire};
use crate::red_lock::{SOON, ms};
use crate::support::{eventually, timed};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_of_five_frozen_beyond_the_lease_and_three_for_less_lose_nothing() {
    let test = Fixture::start(5).await;
    let (mine, yours) = (test.lock().await, test.lock().await);
    let guard = take(&mine).await;
    eventually(SOON, "it has all", async || guard.margin() == 2).await;
    let crowd = Crowd::start(std::slice::from_ref(&yours));
    let mut watched = Watched::new(guard);
    for frozen in &test.servers[..2] {
        frozen.pause();
    }
    watched.stays_valid(LEASE * 3 / 2).await;
    assert_eq!(watched.guard().margin(), 0);
    assert_busy(&yours).await;
    for frozen in &test.servers[..2] {
        frozen.resume();
    }
    eventually(SOON, "it has all again", async || {
        watched.look() && watched.guard().margin() == 2
    })
    .await;
    // A hold has more validity than this at any time.
    for frozen in &test.servers[..3] {
        frozen.pause();
    }
    watched.stays_valid(LEASE / 4).await;
    for frozen in &test.servers[..3] {
        frozen.resume();
    }
    watched.stays_valid(LEASE).await;
    assert_eq!(
        crowd.visits(),
        0,
        "another owner acquired the lock while it was held"
    );
    give_back(watched.into_guard()).await;
    crowd.await_visits(5).await;
    crowd.end().await;
    test.assert_nothing_stays().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_is_notified_when_three_of_five_are_frozen_beyond_the_lease() {
    let test = Fixture::start(5).await;
    let (mine, yours) = (test.lock().await, test.lock().await);
    let watched = Watched::new(take(&mine).await);
    let crowd = Crowd::start(std::slice::from_ref(&yours));
    for frozen in &test.servers[2..] {
        frozen.pause();
    }
    let loss = watched.followed_to_the_end().await;
    assert_eq!(loss.reason, LostReason::Deadline);
    assert_eq!(crowd.visits(), 0, "two of five are no quorum");
    let error = mine.try_lock().await.expect_err("two of five answer");
    assert!(matches!(error, Error::NoQuorum(_)), "{error}");
    let healed = Instant::now();
    for frozen in &test.servers[2..] {
        frozen.resume();
    }
    crowd.await_visits(5).await;
    println!("they went on after {:?}", healed.elapsed());
    crowd.end().await;
    assert!(loss.last_valid < healed);
    test.assert_nothing_stays().await;
}

/// An unlock that a majority does not confirm ends nevertheless, returns `UnlockUnconfirmed`, and is completed later.
#[tokio::test]
async fn an_unlock_with_three_of_five_frozen_is_unconfirmed_and_settled_later() {
    let test = Fixture::start(5).await;
    let (mine, yours) = (test.lock().await, test.lock().await);
    let taken = mine.try_lock().wait(SOON).lease(LEASE).await;
    let guard = taken.unwrap().expect("it is free");
    test.await_taken(5).await;
    for frozen in &test.servers[..3] {
        frozen.pause();
    }
    let (unlocked, waited) = timed(guard.unlock()).await;
    let error = unlocked.expect_err("two of five are no quorum");
    assert!(matches!(error, Error::UnlockUnconfirmed(_)), "{error}");
    assert!(waited < SOON, "{waited:?}");
    for frozen in &test.servers[..3] {
        frozen.resume();
    }
    give_back(take(&yours).await).await;
    test.assert_nothing_stays().await;
}

/// A silent instance gets one command at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_instance_gets_few_commands_while_the_others_work() {
    let test = Fixture::proxied(5).await;
    let locks = [test.lock().await, test.lock().await];
    let crowd = Crowd::start(&locks);
    crowd.await_visits(20).await;
    let [frozen, well] = [&test.proxies[4], &test.proxies[0]];
    test.servers[4].pause();
    let paused = Instant::now();
    let before = [frozen, well].map(|proxy| proxy.commands().len());
    let known: BTreeSet<u64> = (frozen.commands().iter())
        .map(|seen| seen.connection)
        .collect();
    crowd.await_visits(150).await;
    tokio::time::sleep(LEASE).await;
    let sent = [(frozen, before[0]), (well, before[1])]
        .map(|(proxy, before)| proxy.commands().split_off(before));
    let acquires = sent.each_ref().map(|sent| {
        let acquires = sent.iter().filter(|seen| is_acquire(&seen.args));
        acquires.count()
    });
    let opened: BTreeSet<u64> = sent[0].iter().map(|seen| seen.connection).collect();
    let opened = opened.difference(&known).count();
    println!(
        "{} to the frozen one, {} of them acquires, on {} connections; {} and {} to another",
        sent[0].len(),
        acquires[0],
        opened,
        sent[1].len(),
        acquires[1]
    );
    // Commands that were sent before any client knew that the instance is silent.
    assert!(acquires[0] * 4 < acquires[1], "{acquires:?}");
    // An attempt to connect takes a command timeout; all jobs of a client share it.
    let attempts = paused.elapsed().as_millis() / COMMAND_TIMEOUT.as_millis();
    let most = (attempts as usize + 2) * locks.len() * 3 / 2;
    assert!(opened <= most, "{opened} connections, {most} are enough");
    test.servers[4].resume();
    let guard = take(&locks[0]).await;
    drop(guard);
    crowd.await_visits(20).await;
    crowd.end().await;
    test.assert_nothing_stays().await;
}

/// The client waits for a timeout once.
#[tokio::test]
async fn an_acquire_does_not_wait_for_an_instance_that_was_silent_before() {
    let test = Fixture::proxied(5).await;
    let patient = |builder: lockdog::ClientBuilder| builder.command_timeout(SOON);
    let lock = red_lock(&test.clients_with(patient).await).max_lease(LONG);
    let own = Owner::new();
    // The client never waits for one silent instance, because the others decide.
    test.servers[0].pause();
    let ((), pairs) = timed(async {
        for _ in 0..20 {
            let guard = lock.lock().lease(LONG).owner(&own).await.unwrap();
            give_back(guard).await;
        }
    })
    .await;
    println!("20 pairs took {pairs:?}");
    assert!(pairs < PATIENCE * 10, "{pairs:?}");
    let asked = || [1, 2].map(|frozen| test.proxies[frozen].count(is_acquire));
    let mut before = [0, 0];
    eventually(SOON, "the pairs are over", async || {
        let was = std::mem::replace(&mut before, asked());
        tokio::time::sleep(ms(100)).await;
        was == before
    })
    .await;
    // Three silent instances might change the outcome, so the client waits for them once.
    test.servers[1].pause();
    test.servers[2].pause();
    let attempt = || lock.try_lock().lease(LONG).owner(&own).into_future();
    let (first, waited) = timed(attempt()).await;
    let first = first.expect_err("no quorum answers");
    assert!(waited >= PATIENCE, "{waited:?}");
    let Error::NoQuorum(none) = &first else {
        panic!("{first}");
    };
    println!("{first}");
    // On a busy machine one of the two others may be late.
    assert!(
        states_as_letters(none.instances(), &test)
            .matches('A')
            .count()
            <= 2,
        "{first}"
    );
    let ((), rest) = timed(async {
        for _ in 0..20 {
            let error = attempt().await.expect_err("no quorum answers");
            assert!(matches!(error, Error::NoQuorum(_)), "{error}");
        }
    })
    .await;
    println!("20 attempts took {rest:?}");
    assert!(rest < PATIENCE * 10, "{rest:?}");
    assert_eq!(asked(), before.map(|asked| asked + 1), "asked again");
    for frozen in &test.servers[..3] {
        frozen.resume();
    }
    give_back(take(&lock).await).await;
    for server in &test.servers {
        let redis = server.redis().await;
        eventually(SOON, "no server has the lock", async || {
            redis.keys().await.is_empty()
        })
        .await;
    }
}

/// So long that the time for one instance is the longest.
const LONG: Duration = Duration::from_secs(40);

/// The time for one instance.
const PATIENCE: Duration = Duration::from_millis(500);
