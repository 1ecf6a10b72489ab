//! Futures that are polled once and then neither polled nor dropped.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use lockdog::config::Reentry;
use lockdog::{Client, MultiLock, Owner, Unlocked};
use lockdog_test::Server;
use tokio::time::{sleep, timeout};

/// Longer than the time after which the client takes over an abandoned release, and shorter than a
/// lease.
const A_WHILE: Duration = Duration::from_secs(5);

/// A command is under way for as long as the test takes to poll other futures.
async fn slow_server() -> (Server, Client) {
    let server = Server::new();
    let client = server.client().await;
    // The connection is open, and the scripts are known.
    for _ in 0..2 {
        let lock = client.lock("orders");
        let outer = lock.lock().await.unwrap();
        lock.lock().await.unwrap().unlock().await.unwrap();
        outer.unlock().await.unwrap();
    }
    server.delay(Duration::from_millis(100));
    (server, client)
}

async fn begin<F: Future>(mut future: Pin<&mut F>) {
    let is_pending = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending()));
    assert!(is_pending.await);
}

/// The count of the earlier command includes the claim of the unlock, so the unlock cannot be sent yet.
#[tokio::test(start_paused = true)]
async fn an_unlock_that_is_left_behind_a_nested_acquire_releases_its_claim() {
    let (server, client) = slow_server().await;
    let owner = Owner::new();
    let lock = || client.lock("orders").lock().owner(&owner);
    let outer = lock().await.unwrap();
    let mut nested = pin!(lock().into_future());
    begin(nested.as_mut()).await;
    let mut unlock = pin!(outer.unlock());
    begin(unlock.as_mut()).await;
    let nested = nested.await.unwrap();
    sleep(A_WHILE).await;
    assert_eq!(nested.hold_count(), 1);
    nested.unlock().await.unwrap();
    server.assert_clean().await;
    // The caller still gets the result.
    assert_eq!(unlock.await.unwrap(), Unlocked::StillHeld { count: 1 });
}

/// Another call of the owner took over the turn, and its answer has not arrived, as on a busy machine.
#[tokio::test(start_paused = true)]
async fn an_unlock_that_is_polled_late_learns_that_the_lock_is_free() {
    let (server, client) = slow_server().await;
    let owner = Owner::new();
    let lock = client.lock("orders");
    let guard = lock.lock().owner(&owner).await.unwrap();
    let mut unlock = pin!(guard.unlock());
    begin(unlock.as_mut()).await;
    let next = tokio::spawn(lock.lock().owner(&owner).into_future());
    sleep(Duration::from_millis(75)).await;
    assert_eq!(unlock.await.unwrap(), Unlocked::Released);
    next.await.unwrap().unwrap().unlock().await.unwrap();
    server.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn an_unlock_of_a_multi_lock_that_is_left_releases_each_member() {
    let (server, client) = slow_server().await;
    let owner = Owner::new();
    let members = ["orders", "stock"].map(|name| client.lock(name));
    let multi = MultiLock::new(members.clone());
    let whole = multi.lock().owner(&owner).await.unwrap();
    let mut nested = pin!(members[0].lock().owner(&owner).into_future());
    begin(nested.as_mut()).await;
    let mut unlock = pin!(whole.unlock());
    begin(unlock.as_mut()).await;
    let nested = nested.await.unwrap();
    sleep(A_WHILE).await;
    assert!(server.holder("stock").is_none());
    assert_eq!(nested.hold_count(), 1);
    nested.unlock().await.unwrap();
    server.assert_clean().await;
    unlock.await.unwrap();
}

/// The unlock ends two holds.
#[tokio::test(start_paused = true)]
async fn an_unlock_after_an_upgrade_that_is_left_releases_both_holds() {
    let (server, client) = slow_server().await;
    let reads = client.read_write_lock("doc").read().lock().await.unwrap();
    let writes = reads.upgrade().await.unwrap();
    let mut unlock = pin!(writes.unlock());
    begin(unlock.as_mut()).await;
    sleep(A_WHILE).await;
    server.assert_clean().await;
    unlock.await.unwrap();
}

/// The permits are of one hold, so the second release waits for the first.
#[tokio::test(start_paused = true)]
async fn abandoned_releases_of_parts_release_all_permits() {
    let (server, client) = slow_server().await;
    let seats = client.semaphore("seats");
    seats.try_set_permits(3).await.unwrap();
    let mut three = seats.acquire_many(3).await.unwrap();
    let one = three.split(1).unwrap();
    let mut first = pin!(one.release());
    begin(first.as_mut()).await;
    let mut second = pin!(three.release());
    begin(second.as_mut()).await;
    sleep(A_WHILE).await;
    server.delay(Duration::ZERO);
    assert_eq!(seats.available().await.unwrap(), 3);
    first.await.unwrap();
    second.await.unwrap();
}

/// The future is dropped before its turn.
#[tokio::test(start_paused = true)]
async fn an_unlock_that_is_dropped_behind_a_nested_acquire_ends_its_claim_at_once() {
    let (server, client) = slow_server().await;
    let owner = Owner::new();
    let lock = || client.lock("orders").lock().owner(&owner);
    let (outer, other) = (lock().await.unwrap(), lock().await.unwrap());
    let mut nested = pin!(lock().into_future());
    begin(nested.as_mut()).await;
    begin(Box::pin(outer.unlock()).as_mut()).await;
    assert_eq!(other.hold_count(), 1);
    nested.await.unwrap().unlock().await.unwrap();
    other.unlock().await.unwrap();
    server.assert_clean().await;
}

/// A multi lock that waits for its second server and is not polled any more holds its first member for
/// at most the time limit of a round.
#[tokio::test(start_paused = true)]
async fn a_multi_lock_that_is_left_between_two_servers_releases_its_first_member() {
    let (server, client) = slow_server().await;
    let slow = Server::new();
    let other = slow.client().await;
    slow.freeze();
    let multi = MultiLock::new([client.lock("orders"), other.lock("stock")]);
    let left = multi
        .try_lock()
        .owner(&Owner::new())
        .wait(Duration::from_secs(60));
    let mut left = left.into_future();
    assert!(timeout(Duration::from_secs(1), &mut left).await.is_err());
    assert!(server.holder("orders").is_some(), "it has the first member");
    let waits = client.lock("orders").try_lock().owner(&Owner::new());
    let guard = waits.wait(Duration::from_secs(10)).await.unwrap();
    guard.expect("it was released").unlock().await.unwrap();
    slow.thaw();
    // It continues when it is polled again.
    let whole = left.await.unwrap().expect("no other owner has them");
    whole.unlock().await.unwrap();
    server.assert_clean().await;
    slow.assert_clean().await;
}

/// The hold of the owner's guard ends with that guard.
#[tokio::test(start_paused = true)]
async fn a_multi_lock_that_is_left_keeps_no_member_that_it_counted_locally() {
    let (server, client) = slow_server().await;
    let slow = Server::new();
    let other = slow.client().await;
    slow.freeze();
    let owner = Owner::new();
    let outer = client.lock("orders").lock().owner(&owner).await.unwrap();
    let multi = MultiLock::new([client.lock("orders"), other.lock("stock")]);
    let multi = multi.lock().owner(&owner).reentry(Reentry::Local);
    let mut left = pin!(multi.into_future());
    begin(left.as_mut()).await;
    assert_eq!(outer.hold_count(), 2);
    outer.unlock().await.unwrap();
    sleep(Duration::from_secs(60)).await;
    server.assert_clean().await;
    slow.thaw();
    slow.assert_clean().await;
}
