//! Handles whose acquires never re-enter.

use std::cell::Cell;
use std::time::Duration;

use lockdog::request::LockRequest;
use lockdog::{Guard, MultiLock, Owner, RedLock};
use lockdog_test::Server;
use tokio::time::sleep;

/// Four branches of one task add one each. The read and the write are two steps on purpose.
async fn sum_of_four(request: impl Fn() -> LockRequest) -> u32 {
    let value = Cell::new(0);
    let branch = || async {
        let guard = request().await.unwrap();
        let read = value.get();
        sleep(Duration::from_millis(5)).await;
        value.set(read + 1);
        guard.unlock().await.unwrap();
    };
    tokio::join!(branch(), branch(), branch(), branch());
    value.get()
}

#[tokio::test(start_paused = true)]
async fn branches_of_one_task_exclude_each_other_only_with_an_exclusive_handle() {
    let servers = [Server::new(), Server::new(), Server::new()];
    let mut locks = Vec::new();
    for server in &servers {
        locks.push(server.client().await.lock("orders"));
    }
    let lock = locks[0].clone();
    assert_eq!(sum_of_four(|| lock.lock()).await, 1, "they are one owner");
    let exclusive = lock.exclusive();
    assert_eq!(sum_of_four(|| exclusive.lock()).await, 4);
    let all = MultiLock::new(locks.clone()).exclusive();
    assert_eq!(sum_of_four(|| all.lock()).await, 4);
    let quorum = RedLock::new(locks)
        .max_lease(Duration::from_secs(60))
        .exclusive();
    assert_eq!(sum_of_four(|| quorum.lock()).await, 4);
    // Later options of a RedLock keep the handle exclusive.
    let quorum = quorum.min_validity(Duration::from_millis(1));
    assert_eq!(sum_of_four(|| quorum.lock()).await, 4);
    for server in &servers {
        server.assert_clean().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_exclusive_handle_does_not_reenter_unless_the_owner_is_given() {
    let server = Server::new();
    let lock = server.client().await.lock("orders");
    let exclusive = lock.exclusive();
    let guard: Guard = exclusive.lock().await.unwrap();
    assert!(exclusive.try_lock().await.unwrap().is_none());
    assert!(
        lock.try_lock().await.unwrap().is_none(),
        "the current task is another owner"
    );
    assert!(!exclusive.is_held().await.unwrap());
    let again = exclusive.try_lock().owner(&guard.owner()).await.unwrap();
    assert_eq!(again.expect("it is that owner's lock").hold_count(), 2);
    drop(guard);
    server.assert_clean().await;

    // A request that is awaited twice is two acquires.
    let request = exclusive.try_lock();
    let first = request.clone().await.unwrap();
    assert!(first.is_some() && request.await.unwrap().is_none());
    // The owner is never the current one.
    let owner = Owner::new();
    let other = owner.scope(exclusive.try_lock()).await.unwrap();
    assert!(other.is_none());
}
