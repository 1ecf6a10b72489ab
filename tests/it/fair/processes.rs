//! Waiters in other processes, which are stopped or killed.

use super::*;
use crate::support::child::{Copy, argument, await_go_ahead, send};

/// The other process: its waiters enter the queue, and each ends its turn.
async fn waits_there(argument: &str) {
    let (url, waiters) = argument.split_once(' ').expect("an address and a number");
    let client = short(Client::builder().url(url)).build().await.unwrap();
    let lock = client.fair_lock(NAME);
    let waiters: usize = waiters.parse().unwrap();
    let mut waiting = Vec::new();
    for _ in 0..waiters {
        waiting.push(crate::turn::waiter(&lock));
    }
    eventually(SOON, "they are in the queue", async || {
        lock.waiters().await.unwrap().len() == waiters
    })
    .await;
    send("waiting");
    // Waiters that enter again may do so in another order.
    let turns = waiting.into_iter().map(async |waiter| {
        waiter.await.unwrap().unlock().await.unwrap();
    });
    futures_util::future::join_all(turns).await;
    send("done");
    await_go_ahead();
}

fn short(builder: ClientBuilder) -> ClientBuilder {
    builder.poll_cap(ms(250)).fair_absence(ms(6_000))
}

/// Starts the other process, and a waiter of this process behind its waiters.
async fn behind(test: &Fixture, name: &str, waiters: usize) -> (Copy, JoinHandle<Guard>) {
    let name = format!("fair::processes::{name}");
    let mut other = Copy::run(&name, &format!("{} {waiters}", test.server.url()));
    assert_eq!(other.receive(), "waiting");
    assert_eq!(test.queue().await.len(), waiters);
    let waiter = test.queued(&test.lock).await;
    (other, waiter)
}

/// FA6: a process that is stopped for longer than its absence is dropped, and enters the queue again when
/// it continues.
async fn stopped_in_the_queue(name: &str, waiters: usize) {
    let test = Fixture::with(short).await;
    let held = test.another().await.lock().lease(LONG).await.unwrap();
    let (mut other, waiter) = behind(&test, name, waiters).await;
    other.pause();
    held.unlock().await.unwrap();
    let guard = tokio::time::timeout(SOON, waiter).await;
    let guard = guard.expect("in time").unwrap();
    assert!(
        test.queue().await.is_empty(),
        "those before it were dropped"
    );
    other.resume();
    test.eventually_queued(waiters).await;
    guard.unlock().await.unwrap();
    assert_eq!(other.receive(), "done");
    other.kill();
    test.eventually_empty().await;
}

#[tokio::test]
async fn a_stopped_process_that_is_first_is_passed_and_comes_back() {
    match argument() {
        Some(argument) => waits_there(&argument).await,
        None => {
            let name = "a_stopped_process_that_is_first_is_passed_and_comes_back";
            stopped_in_the_queue(name, 1).await;
        }
    }
}

#[tokio::test]
async fn a_stopped_process_with_ten_waiters_behind_its_contender_is_passed_and_comes_back() {
    match argument() {
        Some(argument) => waits_there(&argument).await,
        None => {
            let name =
                "a_stopped_process_with_ten_waiters_behind_its_contender_is_passed_and_comes_back";
            stopped_in_the_queue(name, 11).await;
        }
    }
}

/// A process that is stopped for a short time keeps its places (FA4).
#[tokio::test]
async fn a_process_that_is_stopped_for_less_than_its_absence_keeps_its_places() {
    if let Some(argument) = argument() {
        return waits_there(&argument).await;
    }
    let test = Fixture::with(|it| it.poll_cap(ms(250)).fair_absence(LONG)).await;
    let held = test.another().await.lock().lease(LONG).await.unwrap();
    let name = "a_process_that_is_stopped_for_less_than_its_absence_keeps_its_places";
    let (mut other, waiter) = behind(&test, name, 3).await;
    let before = test.queue().await;
    other.pause();
    tokio::time::sleep(ms(1_000)).await;
    other.resume();
    tokio::time::sleep(ms(1_000)).await;
    assert_eq!(test.queue().await, before);
    held.unlock().await.unwrap();
    assert_eq!(other.receive(), "done");
    let guard = tokio::time::timeout(SOON, waiter).await;
    guard.expect("in time").unwrap().unlock().await.unwrap();
    other.kill();
    test.eventually_empty().await;
}

/// FA6 and FA8, as F08 of Redisson's tests: all dead waiters before the living one are dropped.
#[tokio::test]
async fn a_hundred_waiters_of_a_killed_process_are_dropped_at_once() {
    if let Some(argument) = argument() {
        return waits_there(&argument).await;
    }
    let test = Fixture::with(short).await;
    let held = test.another().await.lock().lease(LONG).await.unwrap();
    let name = "a_hundred_waiters_of_a_killed_process_are_dropped_at_once";
    let (other, waiter) = behind(&test, name, 100).await;
    other.kill();
    held.unlock().await.unwrap();
    let guard = tokio::time::timeout(SOON, waiter).await;
    let guard = guard.expect("in time").unwrap();
    assert!(test.queue().await.is_empty());
    guard.unlock().await.unwrap();
    test.eventually_empty().await;
}

/// F04 and F09 of Redisson's tests: the scores do not grow with turns and dead waiters.
#[tokio::test]
async fn scores_stay_within_one_worth_for_each_waiter() {
    if let Some(argument) = argument() {
        return waits_there(&argument).await;
    }
    let test = Fixture::with(short).await;
    let lease = ms(30_000);
    for _ in 0..10 {
        let held = test.lock.lock().owner(&Owner::new()).lease(lease);
        let held = held.await.unwrap();
        let mut waiters = Vec::new();
        for _ in 0..3 {
            waiters.push(test.queued(&test.lock).await);
        }
        held.unlock().await.unwrap();
        for waiter in waiters {
            waiter.await.unwrap().unlock().await.unwrap();
        }
    }
    let held = test.another().await.lock().lease(lease).await.unwrap();
    let name = "scores_stay_within_one_worth_for_each_waiter";
    let (other, waiter) = behind(&test, name, 3).await;
    other.kill();
    let [seconds, _]: [f64; 2] = test.redis.ask::<Vec<f64>>(&["TIME"]).await[..]
        .try_into()
        .unwrap();
    for (i, entry) in test.queue().await.iter().enumerate() {
        let score: f64 = test.redis.ask(&["ZSCORE", PLACES, entry]).await;
        let most = (seconds + 1.0) * 1e3 + 30e3 + 300e3 * (i + 1) as f64;
        assert!(score <= most, "{score} and {most}");
    }
    held.unlock().await.unwrap();
    let guard = tokio::time::timeout(SOON, waiter).await;
    guard.expect("in time").unwrap().unlock().await.unwrap();
    test.eventually_empty().await;
}
