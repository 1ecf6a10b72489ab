//! The shortest that can be done with a lock.

use lockdog::{Guard, Lock, Owner};
use tokio::task::JoinHandle;

/// Takes a lock that is free, or will be soon, and gives it back.
pub(crate) async fn turn(lock: &Lock) {
    let guard = lock.lock().await.expect("nothing is wrong");
    guard.unlock().await.expect("it is held");
}

/// Starts a task that waits for the lock as an owner of its own and returns the guard.
pub(crate) fn waiter(lock: &Lock) -> JoinHandle<Guard> {
    let request = lock.lock().owner(&Owner::new());
    tokio::spawn(async move { request.await.expect("nothing is wrong with the server") })
}
