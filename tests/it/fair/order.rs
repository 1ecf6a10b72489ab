//! Grants come in the order of arrival.

use std::sync::{Arc, Mutex};

use super::*;
use crate::support::Cell;

/// FA4.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn waiters_of_several_clients_get_the_lock_in_the_order_of_their_arrival() {
    let test = Fixture::start().await;
    let locks = [
        test.lock.clone(),
        test.another().await,
        test.another().await,
    ];
    let held = test.another().await.lock().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for number in 0..15 {
        let (lock, order) = (locks[number % 3].clone(), order.clone());
        waiters.push(tokio::spawn(async move {
            let guard = lock.lock().owner(&Owner::new()).await.unwrap();
            order.lock().unwrap().push(number);
            // Half of the guards are unlocked, half are dropped.
            if number % 2 == 0 {
                guard.unlock().await.unwrap();
            }
        }));
        test.eventually_queued(number + 1).await;
    }
    held.unlock().await.unwrap();
    for waiter in waiters {
        tokio::time::timeout(SOON, waiter)
            .await
            .expect("in time")
            .unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..15).collect::<Vec<_>>());
    test.eventually_empty().await;
}

#[tokio::test]
async fn a_turn_within_one_client_costs_two_commands() {
    let test = Fixture::with(|builder| builder.poll_cap(ms(60_000))).await;
    let held = test.lock.lock().await.unwrap();
    test.redis.reset_stats().await;
    let mut waiters = Vec::new();
    for _ in 0..20 {
        waiters.push(test.queued(&test.lock).await);
    }
    held.unlock().await.unwrap();
    for waiter in waiters {
        let guard = tokio::time::timeout(SOON, waiter).await.expect("in time");
        guard.unwrap().unlock().await.unwrap();
    }
    let stats = test.redis.commandstats().await;
    // Each waiter sent one command to enter, and each unlock handed the lock over.
    assert_eq!(stats.get("evalsha"), Some(&41), "{stats:?}");
    assert!(!stats.contains_key("subscribe"), "{stats:?}");
    test.eventually_empty().await;
}

/// FA7 by a message; each timer is a minute long.
#[tokio::test]
async fn a_turn_between_clients_costs_six_commands_and_no_timer() {
    let test = Fixture::with(|builder| builder.poll_cap(ms(60_000))).await;
    let other = test
        .another_with(|builder| builder.poll_cap(ms(60_000)))
        .await;
    let held = other.lock().await.unwrap();
    test.redis.reset_stats().await;
    let waiter = test.queued(&test.lock).await;
    let entry = test.queue().await.remove(0);
    test.eventually_listening(&entry).await;
    eventually(SOON, "it queried after the subscription", async || {
        test.redis.commandstats().await.get("evalsha") == Some(&2)
    })
    .await;
    held.unlock().await.unwrap();
    let guard = tokio::time::timeout(SOON, waiter)
        .await
        .expect("a message woke it");
    guard.unwrap().unlock().await.unwrap();
    eventually(SOON, "it has unsubscribed", async || {
        test.redis.commandstats().await.get("unsubscribe") == Some(&1)
    })
    .await;
    let stats = test.redis.commandstats().await;
    // Enter, query after the subscription, query after the message, and two unlocks.
    assert_eq!(stats.get("evalsha"), Some(&5), "{stats:?}");
    assert_eq!(stats.get("subscribe"), Some(&1), "{stats:?}");
}

/// Each holder reads, sleeps and writes, so two holders would lose an update.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_clients_with_four_owners_each_exclude_each_other_and_share_the_lock() {
    let test = Fixture::start().await;
    let cell = Arc::new(Cell::new());
    let mut tasks = Vec::new();
    for lock in [test.lock.clone(), test.another().await] {
        for _ in 0..4 {
            let (lock, cell) = (lock.clone(), cell.clone());
            tasks.push(tokio::spawn(async move {
                for turn in 0..20 {
                    let guard = lock.lock().owner(&Owner::new()).await.unwrap();
                    cell.bump(ms(1)).await;
                    if turn % 3 == 0 {
                        drop(guard);
                    } else {
                        guard.unlock().await.unwrap();
                    }
                }
            }));
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(cell.value(), 160);
    test.eventually_empty().await;
}

/// FA7 without messages: each holder leaves the lock to its lease.
#[tokio::test]
async fn leases_that_end_pass_the_lock_on_in_the_order_of_arrival() {
    let test = Fixture::start().await;
    let locks = [test.lock.clone(), test.another().await];
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for number in 0..4 {
        let request = locks[number % 2].try_lock().owner(&Owner::new());
        let request = request.wait(SOON).lease(ms(4_000));
        let granted = order.clone();
        waiters.push(tokio::spawn(async move {
            let guard = request.await.unwrap().expect("it is its turn");
            granted.lock().unwrap().push(number);
            guard.leave_to_lease();
        }));
        // The first one has the lock, and the others are in the queue.
        eventually(SOON, "it has sent its query", async || {
            let holders = test.redis.hash(NAME).await.len();
            let granted = order.lock().unwrap().len();
            test.queue().await.len() + granted.max(holders) > number
        })
        .await;
    }
    for waiter in waiters {
        waiter.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..4).collect::<Vec<_>>());
    test.eventually_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn five_hundred_owners_of_five_clients_all_get_the_lock() {
    let test = Fixture::start().await;
    let mut locks = vec![test.lock.clone()];
    for _ in 0..4 {
        locks.push(test.another().await);
    }
    let cell = Cell::new();
    let mut tasks = Vec::new();
    for number in 0..500 {
        let (lock, cell) = (locks[number % 5].clone(), cell.clone());
        tasks.push(tokio::spawn(async move {
            let guard = lock.lock().owner(&Owner::new()).await.unwrap();
            cell.bump_at_once().await;
            guard.unlock().await.unwrap();
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    cell.assert_exclusive(500);
    test.eventually_empty().await;
}

/// As in Redisson: a waiter that leaves lowers the scores of the Redisson waiters behind it.
#[tokio::test]
async fn a_waiter_that_gives_up_lowers_the_scores_of_redissons_waiters_behind_it() {
    let test = Fixture::start().await;
    let held = test.another().await.lock().lease(LONG).await.unwrap();
    let waiter = test.queued(&test.lock).await;
    let (entry, far) = (test.queue().await.remove(0), "9000000000000");
    test.redis.cmd(&["RPUSH", QUEUE, "java:1"]).await;
    test.redis.cmd(&["ZADD", PLACES, far, "java:1"]).await;
    let ours = test.queued_beside(&test.another().await).await;
    let behind = test.queue().await.remove(2);
    let before: f64 = test.redis.ask(&["ZSCORE", PLACES, &behind]).await;
    waiter.abort();
    eventually(SOON, "it has left", async || {
        !test.queue().await.contains(&entry)
    })
    .await;
    let java: f64 = test.redis.ask(&["ZSCORE", PLACES, "java:1"]).await;
    assert_eq!(java, 9_000_000_000_000.0 - 300_000.0);
    // The score of a lockdog waiter is not lowered.
    let after: f64 = test.redis.ask(&["ZSCORE", PLACES, &behind]).await;
    assert!(after >= before);
    ours.abort();
    held.unlock().await.unwrap();
}

/// The meaning of F07.
#[tokio::test]
async fn a_turn_lowers_the_scores_of_redissons_waiters_behind_it_and_a_new_waiter_comes_after_them()
{
    let worth = 5_000.0;
    let test = Fixture::with(|builder| builder.fair_wait(ms(5_000))).await;
    let other = test
        .another_with(|builder| builder.fair_wait(ms(5_000)))
        .await;
    let held = other.lock().lease(LONG).await.unwrap();
    let first = test.lock.lock().owner(&Owner::new()).lease(ms(60_000));
    let first = tokio::spawn(first.into_future());
    test.eventually_queued(1).await;
    let score = async |field: &str| -> f64 { test.redis.ask(&["ZSCORE", PLACES, field]).await };
    // As a Java thread enters: after the waiter before it.
    let before = score(&test.queue().await[0]).await + worth;
    test.redis
        .cmd(&["ZADD", PLACES, &before.to_string(), "java:2"])
        .await;
    test.redis.cmd(&["RPUSH", QUEUE, "java:2"]).await;
    held.unlock().await.unwrap();
    let guard = tokio::time::timeout(SOON, first).await.expect("its turn");
    let guard = guard.unwrap().unwrap();
    assert_eq!(score("java:2").await, before - worth);
    let last = test.queued(&other).await;
    let entry = test.queue().await.remove(1);
    let score_of_new = score(&entry).await;
    assert_eq!(
        score_of_new, before,
        "it has the score of the waiter before it"
    );
    assert_eq!(score_of_new - score("java:2").await, worth);
    last.abort();
    eventually(SOON, "it has left", async || {
        test.queue().await == ["java:2"]
    })
    .await;
    guard.unlock().await.unwrap();
    test.redis.cmd(&["DEL", QUEUE, PLACES]).await;
    test.eventually_empty().await;
}

#[tokio::test]
async fn the_keys_of_the_queue_have_the_mapped_name() {
    let test = Fixture::start().await;
    let client = Client::builder().url(test.server.url());
    let client = client.name_mapper(|name| format!("test::{name}"));
    let lock = client.build().await.unwrap().fair_lock(NAME);
    let held = lock.lock().await.unwrap();
    let waiter = crate::turn::waiter(&lock);
    let queue = "redisson_lock_queue:{test::door}";
    eventually(SOON, "it is in the queue", async || {
        test.redis.ask::<usize>(&["LLEN", queue]).await == 1
    })
    .await;
    assert!(lock.is_locked().await.unwrap() && test.redis.exists("test::door").await);
    held.unlock().await.unwrap();
    waiter.await.unwrap().unlock().await.unwrap();
    assert!(!test.redis.exists(queue).await);
}
