//! Lockdog and a real `RedissonMultiLock` with members of the same kinds.

use lockdog::{Client, Owner};

use super::*;
use crate::multi_lock::{LONG, SOON, ms, waiter};
use crate::support::eventually;
use crate::support::redisson::{JavaLock, Redisson};

/// What Java has as members too: its calls, and ours.
fn theirs() -> JavaLock {
    JavaLock::multi_of([
        (0, "getFairLock", "fair"),
        (1, "getReadWriteLock.writeLock", "write"),
        (0, "getFencedLock", "fenced"),
        (1, "getLock", "plain"),
    ])
}

fn ours(clients: &[Client]) -> MultiLock {
    MultiLock::new([
        clients[1].lock("plain"),
        clients[0].fenced_lock("fenced"),
        write(&clients[1], "write"),
        clients[0].fair_lock("fair"),
    ])
}

async fn redisson(test: &Fixture) -> Redisson {
    let java = Redisson::builder(&test.servers.all[0].url()).server(&test.servers.all[1].url());
    java.timeout(SOON).start().await
}

#[tokio::test]
async fn each_side_waits_for_the_other() {
    let test = Fixture::start(2).await;
    let java = redisson(&test).await;
    let thread = java.thread("t1");
    let lock = ours(&test.clients);
    thread.start_lock_for(theirs(), LONG).value().await;
    assert!(lock.try_lock().await.unwrap().is_none());
    let waiting = waiter(&lock);
    tokio::time::sleep(ms(200)).await;
    assert!(!waiting.is_finished());
    thread.unlock(theirs()).await.unwrap();
    let guard = tokio::time::timeout(SOON, waiting)
        .await
        .expect("it is free");
    let guard = guard.unwrap();
    assert!(!thread.try_lock(theirs()).await);
    let waits = thread.start_lock_for(theirs(), LONG);
    eventually(SOON, "Java is in the queue", async || {
        test.servers.redis[0]
            .exists("redisson_lock_queue:{fair}")
            .await
    })
    .await;
    guard.unlock().await.unwrap();
    tokio::time::timeout(SOON, waits.value())
        .await
        .expect("it is free");
    assert!(lock.try_lock().await.unwrap().is_none());
    thread.unlock(theirs()).await.unwrap();
    drop((lock, java));
    test.assert_clean().await;
}

/// A Java thread that waits for the fair member has its turn in the order of the queue.
#[tokio::test]
async fn java_threads_and_multi_locks_have_their_turns_in_one_queue() {
    let test = Fixture::start(2).await;
    let java = redisson(&test).await;
    let fair = || JavaLock::from_getter("getFairLock", "fair");
    let held = test.clients[0].fair_lock("fair").lock().await.unwrap();
    let queued = async |waiters: u64| {
        eventually(SOON, "it waits in the queue", async || {
            let key = "redisson_lock_queue:{fair}";
            test.servers.redis[0].ask::<u64>(&["LLEN", key]).await == waiters
        })
        .await;
    };
    let others = test.others().await;
    let (one, two) = (java.thread("t1"), java.thread("t2"));
    let first = one.start_lock(fair());
    queued(1).await;
    let second = waiter(&ours(&test.clients));
    queued(2).await;
    let third = two.start_lock(fair());
    queued(3).await;
    let last = waiter(&ours(&others));
    queued(4).await;
    held.unlock().await.unwrap();
    tokio::time::timeout(SOON, first.value())
        .await
        .expect("its turn");
    assert!(!second.is_finished() && !third.is_finished() && !last.is_finished());
    one.unlock(fair()).await.unwrap();
    let guard = tokio::time::timeout(SOON, second).await.expect("its turn");
    assert!(!third.is_finished() && !last.is_finished());
    guard.unwrap().unlock().await.unwrap();
    tokio::time::timeout(SOON, third.value())
        .await
        .expect("its turn");
    assert!(!last.is_finished());
    two.unlock(fair()).await.unwrap();
    let guard = tokio::time::timeout(SOON, last).await.expect("its turn");
    guard.unwrap().unlock().await.unwrap();
    drop((others, java));
    test.assert_clean().await;
}

/// Both sides with opposite orders of the members, and owners of the fair member alone: no update is
/// lost, and each acquires the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_lose_no_update_with_members_of_other_kinds() {
    let test = Fixture::start(2).await;
    let java = redisson(&test).await;
    let pause = ms(1);
    let java_threads: Vec<_> = (0..2)
        .map(|n| {
            let thread = java.thread(&format!("t{n}"));
            thread.start_cell(theirs(), "cell", ROUNDS, pause)
        })
        .collect();
    let tasks: Vec<_> = (0..2)
        .map(|_| {
            let lock = ours(&test.clients);
            let redis = test.servers.redis[0].clone();
            tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    let guard = lock.lock().owner(&Owner::new()).await.unwrap();
                    let value: Option<u64> = redis.ask(&["GET", "cell"]).await;
                    tokio::time::sleep(pause).await;
                    let next = value.unwrap_or(0) + 1;
                    redis.cmd(&["SET", "cell", &next.to_string()]).await;
                    guard.unlock().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        let ended = tokio::time::timeout(SOON * 4, task).await;
        ended.expect("it acquires the locks").unwrap();
    }
    for call in java_threads {
        let ended = tokio::time::timeout(SOON * 4, call.value()).await;
        ended.expect("it acquires the locks");
    }
    let value: u32 = test.servers.redis[0].ask(&["GET", "cell"]).await;
    assert_eq!(value, 4 * ROUNDS);
    test.servers.redis[0].cmd(&["DEL", "cell"]).await;
    drop(java);
    test.assert_clean().await;
}

const ROUNDS: u32 = 20;
