//! One contender for each lock sends commands. The other waiters of the client wait behind it.

use std::sync::{Arc, Mutex};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use lockdog::{Client, Error, Lock, Owner};
use tokio::task::JoinSet;

use super::{Fixture, LONG, SOON, ms, waiter};
use crate::support::eventually;

#[tokio::test]
async fn local_waiters_enter_in_the_order_of_their_arrival() {
    let test = Fixture::start().await;
    // After a poll cap a waiter that is polled too late would lose its turn.
    let lock = test.without_polling().await.lock("l");
    let held = test.held_elsewhere("l").await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = JoinSet::new();
    for number in 0..20 {
        let (request, order) = (lock.lock().owner(&Owner::new()), order.clone());
        waiters.spawn(async move {
            let guard = request.await.unwrap();
            order.lock().unwrap().push(number);
            // Half of the guards are unlocked, half are dropped.
            if number % 2 == 0 {
                guard.unlock().await.unwrap();
            }
        });
        // The tasks run on one thread, so this one is in the queue before the next begins.
        tokio::task::yield_now().await;
    }
    held.unlock().await.unwrap();
    waiters.join_all().await;
    assert_eq!(*order.lock().unwrap(), (0..20).collect::<Vec<_>>());
    test.redis.assert_clean().await;
    // The last guard was dropped, and the background releases it.
    test.redis.eventually_empty().await;
}

#[tokio::test]
async fn twenty_waiters_of_one_client_send_as_many_commands_as_one() {
    let test = Fixture::start().await;
    let mut costs = Vec::new();
    for crowd in [1, 20] {
        let client = test.without_polling().await;
        let lock = client.lock("l");
        let holder = test.another().await;
        test.warm_up(&holder).await;
        let held = holder.lock("l").lock().lease(LONG).await.unwrap();
        test.redis.reset_stats().await;
        let waiters: Vec<_> = (0..crowd).map(|_| waiter(&lock)).collect();
        settled_on(&test, &client, crowd).await;
        let mut waiting = test.calls(["evalsha", "eval", "subscribe"]).await;
        // The three channels, of the lock, of its list of waiting clients, and of this client in it, are
        // subscribed by one command to three.
        waiting[2] = waiting[2].div_ceil(3);
        println!("{crowd} waiters: evalsha, eval, subscribe = {waiting:?}");
        costs.push(waiting);
        held.unlock().await.unwrap();
        for waiter in waiters {
            let guard = tokio::time::timeout(SOON, waiter).await.unwrap().unwrap();
            guard.unlock().await.unwrap();
        }
        test.redis.assert_clean().await;
    }
    // An attempt, a subscription, an attempt.
    assert_eq!(costs, [[2, 0, 1], [2, 0, 1]]);
}

#[tokio::test]
async fn waiters_send_nothing_while_their_client_holds_the_lock() {
    let test = Fixture::start().await;
    // Their timers fire all the time.
    let client = Client::builder()
        .url(test.server.url())
        .poll_cap(ms(50))
        .build()
        .await
        .unwrap();
    test.warm_up(&client).await;
    let lock = client.lock("l");
    let held = lock.lock().lease(LONG).owner(&Owner::new()).await.unwrap();
    test.redis.reset_stats().await;
    let waiters: Vec<_> = (0..5).map(|_| waiter(&lock)).collect();
    tokio::time::sleep(ms(300)).await;
    assert_eq!(
        test.calls(["evalsha", "eval", "subscribe", "ping"]).await,
        [0; 4]
    );
    assert!(test.redis.channels().await.is_empty());
    held.unlock().await.unwrap();
    let mut waiters: FuturesUnordered<_> = waiters.into_iter().collect();
    while let Some(next) = tokio::time::timeout(SOON, waiters.next()).await.unwrap() {
        drop(next.unwrap());
    }
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn a_hand_over_between_waiters_of_one_client_costs_one_command() {
    let test = Fixture::start().await;
    // A hand-over to a waiter that was not polled for a poll cap would be passed on.
    let client = test.without_polling().await;
    test.warm_up(&client).await;
    let lock = client.lock("l");
    let held = lock.lock().lease(LONG).owner(&Owner::new()).await.unwrap();
    let waiters = [waiter(&lock), waiter(&lock)];
    tokio::time::sleep(ms(50)).await;
    test.redis.reset_stats().await;
    held.unlock().await.unwrap();
    // Usually it is the first waiter. On a busy machine the one that was polled in time is first.
    let mut waiters: FuturesUnordered<_> = waiters.into_iter().collect();
    let next = tokio::time::timeout(SOON, waiters.next()).await.unwrap();
    assert_eq!(test.calls(["evalsha", "subscribe"]).await, [1, 0]);
    drop(next.unwrap().unwrap());
    let last = tokio::time::timeout(SOON, waiters.next()).await.unwrap();
    drop(last.unwrap().unwrap());
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn waiters_beyond_the_limit_are_refused_at_once() {
    let test = Fixture::start().await;
    let client = Client::builder()
        .url(test.server.url())
        .max_waiters(2)
        .build()
        .await
        .unwrap();
    let lock = client.lock("l");
    let held = test.held_elsewhere("l").await;
    let waiters = [waiter(&lock), waiter(&client.lock("l"))];
    tokio::task::yield_now().await;
    for refused in [
        lock.lock().await.unwrap_err(),
        lock.try_lock().wait(LONG).await.unwrap_err(),
        // The limit counts the waiters of the client, not of the lock.
        client.lock("other").lock().await.unwrap_err(),
    ] {
        assert!(
            matches!(refused, Error::TooManyWaiters { limit: 2, .. }),
            "{refused}"
        );
        assert!(refused.is_retriable());
        assert!(refused.to_string().contains("max_waiters=2"));
    }
    // A call that does not wait does not count.
    assert!(lock.try_lock().await.unwrap().is_none());
    held.unlock().await.unwrap();
    for waiter in waiters {
        let guard = tokio::time::timeout(SOON, waiter).await.unwrap().unwrap();
        guard.unlock().await.unwrap();
    }
    // The number falls when waiters leave.
    lock.lock().await.unwrap().unlock().await.unwrap();
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn try_lock_makes_one_attempt_beside_the_contender() {
    let test = Fixture::start().await;
    let client = test.without_polling().await;
    let lock = client.lock("l");
    let holder = test.another().await;
    test.warm_up(&holder).await;
    let held = holder.lock("l").lock().lease(LONG).await.unwrap();
    let waiting = waiter(&lock);
    settled_on(&test, &client, 1).await;
    test.redis.reset_stats().await;
    for tries in 1..=3 {
        assert!(lock.try_lock().await.unwrap().is_none());
        assert!(lock.try_lock().wait(ms(0)).await.unwrap().is_none());
        assert_eq!(test.calls(["evalsha", "subscribe"]).await, [tries * 2, 0]);
    }
    held.unlock().await.unwrap();
    let next = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
    next.unlock().await.unwrap();
    test.redis.assert_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn try_lock_succeeds_right_after_a_guard_is_dropped() {
    let test = Fixture::start().await;
    let lock: Lock = test.client.lock("l");
    for round in 0..200 {
        let guard = lock.lock().owner(&Owner::new()).await.unwrap();
        drop(guard);
        let next = lock.try_lock().owner(&Owner::new()).await.unwrap();
        let next = next.unwrap_or_else(|| panic!("busy in round {round}, without another owner"));
        next.unlock().await.unwrap();
    }
    test.redis.assert_clean().await;
}

/// Waits until the contender has done everything before its pause, and a while longer, so that a further
/// command would be seen.
async fn settled_on(test: &Fixture, client: &Client, waiters: usize) {
    let listening = async || {
        let [tries] = test.calls(["evalsha"]).await;
        test.redis.channels().await.len() == 1 && tries >= 2
    };
    let what = format!("{waiters} waiters of {} listen", client.id());
    eventually(SOON, &what, listening).await;
    tokio::time::sleep(ms(200)).await;
}
