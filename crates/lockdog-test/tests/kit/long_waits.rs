//! A wait for what another owner of the same client holds.

use std::future::IntoFuture;
use std::time::Duration;

use lockdog::request::TryLockRequest;
use lockdog::{Guard, Lock, Owner};
use lockdog_test::Server;
use tokio::time::sleep;

use crate::support::locks::Fixture;
use crate::support::logs::Warnings;

const TEXT: &str = "waiting for a lock that another owner of this client holds";

#[tokio::test(start_paused = true)]
async fn a_long_wait_for_a_lock_of_the_same_client_logs_one_warning() {
    for fixture in Fixture::each().await {
        logs_one_warning(fixture.held().await, fixture.try_lock()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_wait_for_a_fair_lock_or_for_another_mode_logs_one_warning() {
    let server = Server::new();
    let client = server.client().await;
    let fair = client.fair_lock("fair");
    let read = |name: &str| -> Lock { client.read_write_lock(name).read().into() };
    let write = |name: &str| -> Lock { client.read_write_lock(name).write().into() };
    for (held, wanted) in [
        (fair.clone(), fair),
        (read("a"), write("a")),
        (write("b"), read("b")),
        (write("c"), write("c")),
    ] {
        logs_one_warning(held.lock().await.unwrap(), wanted.try_lock()).await;
    }
}

/// While this guard is held, a task of another owner waits for a minute.
async fn logs_one_warning(guard: Guard, request: TryLockRequest) {
    let (warnings, _recording) = Warnings::of_this_thread();
    let request = request.wait(Duration::from_secs(60));
    let child = tokio::spawn(request.owner(&Owner::from_id(7)).into_future());
    sleep(Duration::from_secs(9)).await;
    assert_eq!(warnings.with(TEXT), [""; 0]);
    sleep(Duration::from_secs(4)).await;
    let logged = warnings.with(TEXT);
    assert_eq!(logged.len(), 1, "{logged:?}");
    assert!(logged[0].starts_with("lockdog::wait "), "{logged:?}");
    let owners = format!(" owner=7 holder={}", guard.owner());
    assert!(
        logged[0].contains(&owners) && logged[0].contains("lock.hash="),
        "{logged:?}"
    );
    assert!(child.await.unwrap().unwrap().is_none());
    assert_eq!(warnings.with(TEXT).len(), 1);
    guard.unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_long_queue_behind_short_holds_logs_no_warning() {
    let server = Server::new();
    let lock = server.client().await.lock("orders");
    let (warnings, _recording) = Warnings::of_this_thread();
    let workers: Vec<_> = (0..30)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.with(|_held| sleep(Duration::from_secs(1))).await })
        })
        .collect();
    for worker in workers {
        worker.await.unwrap().unwrap();
    }
    assert_eq!(warnings.with(TEXT), [""; 0]);
}
