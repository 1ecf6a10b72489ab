//! A lock that is handed over within a client while something goes wrong: a reply is lost, the receiver is
//! cancelled or past its deadline, or a force unlock comes between.

mod dropped;
mod leases;
mod replies;
mod servers;
mod unpolled;

use lockdog::{Guard, Lock, Owner, Result, Unlocked};
use tokio::task::JoinHandle;

use crate::faults::SOON;
use crate::faults::fixture::Fixture;
use crate::faults::scripts::transfer;
use crate::support::prelude::{LONG, poll_once};

type Waiting = JoinHandle<Result<Guard>>;

/// A fixture whose client hands a lock over to a waiter that was not polled for some seconds. By default a
/// client releases the lock instead if the waiter was not polled for a second.
async fn patient() -> Fixture {
    Fixture::with(|client| client.poll_cap(LONG).command_timeout(SOON)).await
}

/// A waiter with its own owner.
async fn in_line(lock: &Lock) -> Waiting {
    let waiting = tokio::spawn(lock.lock().owner(&Owner::new()).into_future());
    // The tests run on one thread, so the waiter is in the queue when this returns.
    tokio::task::yield_now().await;
    waiting
}

/// A held lock, and a waiter of the same client that is next.
async fn held_with_next(fixture: &Fixture) -> (Guard, Waiting) {
    let lock = fixture.lock();
    let held = lock.lock().owner(&Owner::new()).await.unwrap();
    (held, in_line(&lock).await)
}

/// The guard that a waiter got.
async fn got(waiting: Waiting) -> Guard {
    let got = tokio::time::timeout(SOON, waiting).await;
    let got = got.expect("it waits though the lock is free");
    got.expect("it is not cancelled").expect("nothing is wrong")
}

/// Unlocks the last guard of a test, and checks that nothing is left.
async fn finish(fixture: &Fixture, last: Guard) {
    assert_eq!(last.hold_count(), 1);
    assert_eq!(fixture.counts().await, ["1"]);
    assert_eq!(last.unlock().await.unwrap(), Unlocked::Released);
    fixture.assert_recovered().await;
}

fn transfers(fixture: &Fixture) -> usize {
    fixture.proxy.count(transfer())
}
