//! A holder that ends without an unlock: its task is aborted or panics, or its guard is dropped outside a
//! runtime.

use std::time::Duration;

use lockdog::{Client, Guard, Owner};
use tokio::runtime::Runtime;

use crate::faults::SOON;
use crate::faults::fixture::{Fixture, NAME};
use crate::support::eventually;

#[tokio::test]
async fn aborting_the_task_that_holds_a_guard_frees_the_lock() {
    let fixture = Fixture::start().await;
    let lock = fixture.lock();
    let holder = tokio::spawn(async move {
        let _guard = lock.lock().await.unwrap();
        std::future::pending::<()>().await;
    });
    held(&fixture).await;
    holder.abort();
    assert!(holder.await.unwrap_err().is_cancelled());
    fixture.assert_recovered().await;
}

#[tokio::test]
async fn a_panic_of_the_holder_frees_the_lock() {
    let fixture = Fixture::start().await;
    let lock = fixture.lock();
    let holder = tokio::spawn(async move {
        let _guard = lock.lock().await.unwrap();
        panic!("on purpose");
    });
    assert!(holder.await.unwrap_err().is_panic());
    fixture.assert_recovered().await;
}

#[tokio::test]
async fn a_guard_dropped_outside_a_runtime_frees_the_lock() {
    let fixture = Fixture::start().await;
    let guard = owned(&fixture).await;
    std::thread::spawn(move || {
        assert!(tokio::runtime::Handle::try_current().is_err());
        drop(guard);
    })
    .join()
    .unwrap();
    fixture.assert_recovered().await;
}

#[tokio::test]
async fn a_guard_dropped_or_unlocked_in_another_runtime_frees_the_lock() {
    let fixture = Fixture::start().await;
    for unlock in [false, true] {
        let guard = owned(&fixture).await;
        elsewhere(move |runtime| {
            runtime.block_on(async move {
                if unlock {
                    guard.unlock().await.unwrap();
                } else {
                    drop(guard);
                }
            });
        })
        .await;
        fixture.assert_recovered().await;
    }
}

#[tokio::test]
async fn a_guard_in_a_runtime_that_shuts_down_frees_the_lock() {
    let fixture = Fixture::start().await;
    let lock = fixture.lock();
    let (taken, is_taken) = std::sync::mpsc::channel();
    elsewhere(move |runtime| {
        runtime.spawn(async move {
            let _guard = lock.lock().await.unwrap();
            taken.send(()).unwrap();
            std::future::pending::<()>().await;
        });
        is_taken.recv().unwrap();
        runtime.shutdown_background();
    })
    .await;
    fixture.assert_recovered().await;
}

/// Design: invariant 11.
#[tokio::test]
async fn a_command_connection_of_an_ended_runtime_is_reopened_on_the_callers_runtime() {
    let fixture = Fixture::start().await;
    let url = fixture.proxy.url().to_owned();
    // The client's first connection belongs to a runtime that ends with this call.
    let (client, guard) = elsewhere(move |runtime| {
        let opened = runtime.block_on(async move {
            let client = Client::connect(url).await.unwrap();
            let taken = client.lock(NAME).lock().owner(&Owner::new()).await;
            (client, taken.unwrap())
        });
        drop(runtime);
        opened
    })
    .await;
    assert!(guard.is_valid() && !fixture.is_free().await);
    guard.unlock().await.unwrap();
    assert!(fixture.is_free().await);
    drop(client.lock(NAME).lock().await.unwrap());
    fixture.assert_recovered().await;
}

/// A guard for another owner than this task.
async fn owned(fixture: &Fixture) -> Guard {
    let owner = Owner::new();
    let guard = fixture.lock().lock().owner(&owner).await.unwrap();
    assert!(!fixture.is_free().await);
    guard
}

async fn held(fixture: &Fixture) {
    eventually(SOON, "it is held", async || !fixture.is_free().await).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
}

/// In its own thread. The test's runtime drives its connections meanwhile.
async fn elsewhere<T: Send + 'static>(work: impl FnOnce(Runtime) -> T + Send + 'static) -> T {
    let (done, result) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || done.send(work(Runtime::new().unwrap())).ok());
    result.await.expect("the work does not panic")
}
