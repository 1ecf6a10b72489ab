//! The order of arrival.

use std::sync::{Arc, Mutex};

use super::*;

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
            // Ended in both ways.
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
    // Each entered, and each unlock handed the lock on.
    assert_eq!(stats.get("evalsha"), Some(&41), "{stats:?}");
    assert!(!stats.contains_key("subscribe"), "{stats:?}");
    test.eventually_empty().await;
}

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
    // The look after the subscription.
    tokio::time::sleep(ms(100)).await;
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
    // Enter, look after the subscription, look after the message, and two unlocks.
    assert_eq!(stats.get("evalsha"), Some(&5), "{stats:?}");
    assert_eq!(stats.get("subscribe"), Some(&1), "{stats:?}");
}

/// The cells show two holders, because each reads, sleeps and writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_clients_with_four_owners_each_exclude_each_other_and_share_the_lock() {
    let test = Fixture::start().await;
    let cell = Arc::new(crate::support::Cell::new());
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
