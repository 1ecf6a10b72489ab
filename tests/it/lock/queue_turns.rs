//! Turns that pass on to the next waiter, and owners that wait in two calls.

use lockdog::{Client, Owner};

use super::{Fixture, SOON, ms, waiter};
use crate::support::eventually;

#[tokio::test]
async fn a_cancelled_waiter_passes_its_wake_up_on() {
    let test = Fixture::start().await;
    let client = test.without_polling().await;
    let lock = client.lock("l");
    let url = redis::Client::open(test.server.plain_url("l")).unwrap();
    let mut hand = url.get_connection().unwrap();
    for _ in 0..5 {
        let held = test.held_elsewhere("l").await;
        let first = waiter(&lock);
        let listens = async || test.redis.channels().await.len() == 1;
        eventually(SOON, "the first one listens", listens).await;
        let second = waiter(&lock);
        tokio::task::yield_now().await;
        tokio::time::sleep(ms(50)).await;
        // The lock is freed, and the message arrives on the client's own thread. Meanwhile the thread of
        // both waiters is blocked: the first waiter is woken, and is cancelled before it runs.
        for command in [
            ["DEL", "l"].as_slice(),
            &[test.server.publishes(), CHANNEL, "0"],
        ] {
            let mut freed = redis::cmd(command[0]);
            freed.arg(&command[1..]).exec(&mut hand).unwrap();
        }
        std::thread::sleep(ms(100));
        first.abort();
        let second = tokio::time::timeout(SOON, second).await;
        let second = second.expect("nothing else wakes it for a minute").unwrap();
        assert!(first.await.unwrap_err().is_cancelled());
        second.unlock().await.unwrap();
        drop(held);
        test.redis.assert_clean().await;
    }
}

#[tokio::test]
async fn a_waiter_cancelled_in_the_middle_of_the_queue_leaves_no_gap() {
    let test = Fixture::start().await;
    let client = test.without_polling().await;
    let lock = client.lock("l");
    let held = test.held_elsewhere("l").await;
    let mut waiters: Vec<_> = (0..6).map(|_| waiter(&lock)).collect();
    tokio::task::yield_now().await;
    for gone in [4, 2, 0] {
        waiters.remove(gone).abort();
    }
    held.unlock().await.unwrap();
    for waiter in waiters {
        let guard = tokio::time::timeout(SOON, waiter).await.unwrap().unwrap();
        guard.unlock().await.unwrap();
    }
    test.redis.assert_clean().await;
}

/// Invariant 9: the second call of the owner is behind another owner, and its first call waits for it while
/// it holds the lock.
#[tokio::test]
async fn two_tasks_of_one_scope_do_not_deadlock_when_one_awaits_the_other() {
    let test = Fixture::start().await;
    let client = test.without_polling().await;
    let lock = client.lock("l");
    let owner = Owner::new();
    let held = test.held_elsewhere("l").await;

    let (child_waits, go) = tokio::sync::oneshot::channel::<tokio::task::JoinHandle<u32>>();
    let parent = {
        let lock = lock.clone();
        tokio::spawn(owner.scope(async move {
            let guard = lock.lock().await.unwrap();
            let child = go.await.unwrap();
            let count = child.await.unwrap();
            guard.unlock().await.unwrap();
            count
        }))
    };
    tokio::task::yield_now().await;
    let stranger = waiter(&lock);
    tokio::task::yield_now().await;
    let child = {
        let lock = lock.clone();
        tokio::spawn(owner.scope(async move {
            let guard = lock.lock().await.unwrap();
            let count = guard.hold_count();
            guard.unlock().await.unwrap();
            count
        }))
    };
    tokio::task::yield_now().await;
    child_waits.send(child).unwrap();
    held.unlock().await.unwrap();
    let count = tokio::time::timeout(SOON, parent).await;
    assert_eq!(
        count
            .expect("the parent and its child wait for each other")
            .unwrap(),
        2
    );
    let stranger = tokio::time::timeout(SOON, stranger).await.unwrap().unwrap();
    stranger.unlock().await.unwrap();
    test.redis.assert_clean().await;
}

/// Invariant 9: an owner that holds the lock does not wait behind the waiters.
#[tokio::test]
async fn a_holder_reenters_past_the_queue() {
    let test = Fixture::start().await;
    let client = test.without_polling().await;
    let lock = client.lock("l");
    let owner = Owner::new();
    let outer = lock.lock().owner(&owner).await.unwrap();
    let waiters: Vec<_> = (0..3).map(|_| waiter(&lock)).collect();
    tokio::task::yield_now().await;
    let inner = lock.lock().owner(&owner);
    let inner = tokio::time::timeout(SOON, inner.into_future()).await;
    let inner = inner.expect("a nested call does not wait").unwrap();
    assert_eq!(inner.hold_count(), 2);
    inner.unlock().await.unwrap();
    outer.unlock().await.unwrap();
    for waiter in waiters {
        drop(tokio::time::timeout(SOON, waiter).await.unwrap().unwrap());
    }
    test.redis.assert_clean().await;
}

/// Invariant 9: after its unlock an owner waits behind the others, like every owner.
#[tokio::test]
async fn an_owner_that_unlocked_goes_to_the_tail_of_the_queue() {
    let test = Fixture::start().await;
    let client: Client = test.without_polling().await;
    let lock = client.lock("l");
    let owner = Owner::new();
    let held = lock.lock().owner(&owner).await.unwrap();
    let waiting = waiter(&lock);
    tokio::task::yield_now().await;
    drop(held);
    let mut again = lock.lock().owner(&owner).into_future();
    tokio::select! {
        biased;
        _ = &mut again => panic!("it overtook the one who waited"),
        next = waiting => {
            let next = next.unwrap();
            assert!(super::poll_once(&mut again).await.is_none());
            next.unlock().await.unwrap();
        }
    }
    let again = tokio::time::timeout(SOON, again).await.unwrap().unwrap();
    assert_eq!(again.hold_count(), 1);
    again.unlock().await.unwrap();
    test.redis.assert_clean().await;
}

const CHANNEL: &str = "redisson_lock__channel:{l}";
