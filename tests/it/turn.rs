//! The shortest uses of a lock.

use std::time::Instant;

use lockdog::error::Result;
use lockdog::{Error, Guard, Lock, Owner};
use tokio::task::JoinHandle;

use crate::support::prelude::{SOON, ms};
use crate::support::{eventually, until_ok};

/// Acquires a lock that is free or will be soon, and releases it.
pub(crate) async fn turn(lock: &Lock) {
    let guard = lock.lock().await.expect("the servers answer");
    guard.unlock().await.expect("it is held");
}

/// Starts a task that waits for the lock as an owner of its own and returns the guard.
pub(crate) fn waiter(lock: &Lock) -> JoinHandle<Guard> {
    let request = lock.lock().owner(&Owner::new());
    tokio::spawn(async move { request.await.expect("nothing is wrong with the server") })
}

/// Waits until the watchdog has renewed each of these holds once more. It never renews a lost one.
pub(crate) async fn renewed(guards: &[&Guard]) {
    // A pause between the two readings makes the deadline look later, and so does not count as a renewal.
    let deadline = |guard: &&Guard| {
        let left = guard.remaining();
        Instant::now() + left
    };
    let before: Vec<_> = guards.iter().map(deadline).collect();
    for (guard, before) in guards.iter().zip(before) {
        eventually(SOON, "the lease was renewed", async || {
            Instant::now() + guard.remaining() > before + ms(100)
        })
        .await;
    }
}

/// Repeats a call whose wait or lease a busy machine may exceed, while it ends with a timeout. Another error fails the
/// test.
pub(crate) async fn answered<T>(mut call: impl AsyncFnMut() -> Result<T>) -> T {
    until_ok(SOON, async || {
        let outcome = call().await;
        if let Err(error) = &outcome {
            assert!(error.is_timeout(), "{error}");
        }
        outcome
    })
    .await
}

/// What the server answers to a caller who has a second. On a busy machine that may be too short.
pub(crate) async fn refusal(lock: &Lock) -> Error {
    let deadline = Instant::now() + SOON;
    loop {
        let error = lock.try_lock().wait(ms(1_000)).await;
        let error = error.expect_err("the server refuses it");
        if !error.is_timeout() {
            return error;
        }
        assert!(Instant::now() < deadline, "{error}");
    }
}
