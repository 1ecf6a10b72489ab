//! Permits that one call of a client hands over to the next.

use lockdog::{Client, Semaphore};
use tokio::task::{JoinHandle, JoinSet};

use super::{Fixture, LEDGER, LONG, NAME, SOON, ms};
use crate::support::{Action, Proxy};

/// One command for each hand-over, and few others. Without hand-overs a pair needs at least two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pair_costs_a_crowd_of_one_client_little_more_than_a_command() {
    // A row of hand-overs lasts for a time. A very busy machine makes few in it.
    let mut costs: Vec<f64> = Vec::new();
    while costs.iter().all(|cost| *cost > 1.3) {
        assert!(costs.len() < 10, "{costs:?} commands");
        costs.push(cost_of_a_pair(16).await);
    }
    let cost = cost_of_a_pair(0).await;
    assert!(cost > 1.5, "{cost} commands");
}

async fn cost_of_a_pair(hand_overs: u32) -> f64 {
    let test = Fixture::with(4, |it| it.max_hand_overs(hand_overs)).await;
    let pairs = race(&test.seats, 64, 50).await;
    let stats = test.redis.commandstats().await;
    let calls = |name: &str| stats.get(name).copied().unwrap_or(0);
    let sent = calls("evalsha") + calls("eval");
    println!(
        "up to {hand_overs} hand-overs: {sent} commands and {} messages for {pairs} pairs",
        calls("publish")
    );
    test.eventually_free().await;
    test.assert_total().await;
    assert!(test.shares().await.is_empty());
    sent as f64 / pairs as f64
}

/// SE5: the order of the calls.
#[tokio::test]
async fn a_crowd_is_served_in_the_order_of_its_calls() {
    // Permits are handed only to a waiter that was polled within this time.
    let test = Fixture::with(1, |it| it.poll_cap(LONG)).await;
    let mut held = test.seats.acquire().await.unwrap();
    let waiting: Vec<_> = (0..6).map(|_| wait(&test.seats)).collect();
    test.somebody_waits().await;
    test.redis.reset_stats().await;
    for waiter in waiting {
        held.release().await.unwrap();
        let next = tokio::time::timeout(SOON, waiter).await;
        held = next.expect("it gets the permits").unwrap();
        assert_eq!((test.free().await, test.shares().await), (0, vec![1]));
    }
    // No permit was free in between.
    let stats = test.redis.commandstats().await;
    assert!(!stats.contains_key("publish") && !stats.contains_key("incrby"));
    held.release().await.unwrap();
    test.eventually_free().await;
}

/// SE5: a hand-over does not skip a call for another number of permits.
#[tokio::test]
async fn a_call_for_more_permits_is_not_passed() {
    let test = Fixture::with_permits(2).await;
    let mut both = test.seats.acquire_many(2).await.unwrap();
    let one = both.split(1).unwrap();
    let two = tokio::spawn(test.seats.acquire_many(2).into_future());
    tokio::time::sleep(ms(100)).await;
    let last = wait(&test.seats);
    tokio::time::sleep(ms(100)).await;
    one.release().await.unwrap();
    tokio::time::sleep(ms(200)).await;
    assert!(!two.is_finished() && !last.is_finished());
    both.release().await.unwrap();
    let two = tokio::time::timeout(SOON, two).await.expect("two are free");
    assert!(!last.is_finished());
    two.unwrap().unwrap().release().await.unwrap();
    drop(tokio::time::timeout(SOON, last).await.expect("in time"));
    test.eventually_free().await;
}

/// Tasks of one client hand permits over, and a waiter of another client still gets one by a message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_one_client_keeps_no_other_client_out() {
    let test = Fixture::with_permits(2).await;
    let another = test.another().await;
    let crowd = {
        let seats = test.seats.clone();
        tokio::spawn(async move {
            loop {
                race(&seats, 16, 50).await;
            }
        })
    };
    for _ in 0..5 {
        let permit = tokio::time::timeout(SOON, another.acquire().into_future()).await;
        let permit = permit.expect("it gets the permits").unwrap();
        tokio::time::sleep(ms(20)).await;
        permit.release().await.unwrap();
    }
    assert!(!crowd.is_finished());
    crowd.abort();
    test.eventually_free().await;
    test.assert_total().await;
}

/// SE1: a hand-over whose answer is lost, that runs twice, or whose ledger was lost before, moves each permit
/// once.
#[tokio::test]
async fn a_hand_over_with_a_fault_neither_makes_nor_loses_permits() {
    let test = Fixture::with_permits(3).await;
    for script in [TRANSFER, RELEASE] {
        test.redis.cmd(&["SCRIPT", "LOAD", script]).await;
    }
    let proxy = Proxy::start(&test.server).await;
    // A busy machine has this time between the wait and the hand-over.
    let client = Client::builder().url(proxy.url()).poll_cap(ms(5_000));
    let client = client.command_timeout(ms(2_000)).build().await.unwrap();
    let seats = client.semaphore(NAME);
    let digest = redis::Script::new(TRANSFER).get_hash().to_owned();
    let is_transfer = move |args: &[String]| args.get(1) == Some(&digest);
    for action in [Action::ExecuteThenCut, Action::Twice, Action::DropReply] {
        let all = seats.acquire_many(3).await.unwrap();
        let waiting = tokio::spawn(seats.try_acquire_many(3).wait(LONG).into_future());
        test.somebody_waits().await;
        let rule = proxy.on(is_transfer.clone(), action.clone());
        // The call may not get its result.
        let _ = all.release().await;
        rule.wait_hits(1).await;
        let next = tokio::time::timeout(LONG, waiting).await;
        let next = next.expect("in time").unwrap().unwrap();
        let next = next.expect("it gets the permits");
        assert_eq!((test.free().await, test.shares().await), (0, vec![3]));
        next.release().await.unwrap();
        test.eventually_free().await;
        test.assert_total().await;
    }
    let all = seats.acquire_many(3).await.unwrap();
    let waiting = tokio::spawn(seats.try_acquire_many(3).wait(LONG).into_future());
    test.somebody_waits().await;
    test.redis.cmd(&["DEL", LEDGER]).await;
    let rule = proxy.on(is_transfer, Action::Twice);
    all.release().await.unwrap();
    rule.wait_hits(1).await;
    let next = tokio::time::timeout(LONG, waiting).await;
    let next = next.expect("in time").unwrap().unwrap();
    next.expect("it gets the permits").release().await.unwrap();
    test.eventually_free().await;
}

fn wait(seats: &Semaphore) -> JoinHandle<lockdog::Permit> {
    let request = seats.acquire();
    tokio::spawn(async move { request.await.expect("the server answers") })
}

/// Runs `tasks` that acquire and release. Returns the number of pairs.
async fn race(seats: &Semaphore, tasks: u64, rounds: u64) -> u64 {
    let mut racing = JoinSet::new();
    for _ in 0..tasks {
        let seats = seats.clone();
        racing.spawn(async move {
            for _ in 0..rounds {
                let permit = seats.acquire().await.expect("the server answers");
                tokio::task::yield_now().await;
                permit.release().await.expect("it has it");
            }
        });
    }
    racing.join_all().await;
    tasks * rounds
}

const TRANSFER: &str = include_str!("../../../lua/semaphore/transfer.lua");
const RELEASE: &str = include_str!("../../../lua/semaphore/release.lua");
