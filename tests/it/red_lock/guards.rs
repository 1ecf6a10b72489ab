//! Guards that are moved, dropped anywhere, or whose acquire was given up.

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Wake, Waker};

use lockdog::error::LostReason;
use lockdog::{Guard, Owner};

use super::{SOON, Servers, decided, has, lock_of, ms};
use crate::support::{eventually, until_ok};

#[tokio::test]
async fn a_guard_moved_to_another_task_keeps_its_owner() {
    let servers = Servers::start(3).await;
    let lock = servers.lock("l").await;
    let owner = Owner::new();
    let guard = lock.lock().owner(&owner).await.unwrap();
    let guard = tokio::spawn(async move {
        assert_eq!(guard.owner(), owner);
        assert!(guard.is_valid());
        guard
    });
    let guard = guard.await.unwrap();
    assert!(decided(|| lock.try_lock()).await.is_none());
    let unlocked = tokio::spawn(guard.unlock());
    unlocked.await.unwrap().unwrap();
    servers.assert_counts("l", [0; 3]).await;
}

#[test]
fn a_guard_may_outlive_its_runtime_and_be_dropped_outside_one() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(2).enable_all().build().unwrap()
    };
    let (first, second) = (runtime(), runtime());
    let servers = second.block_on(Servers::start(3));
    let clients = second.block_on(servers.clients());
    let lock = lock_of(&clients, "l");
    let guard = first.block_on(async { lock.lock().await.unwrap() });
    let nested = first.block_on(async { lock.lock().await.unwrap() });
    // The runtime's tasks for the rest of the round end with it.
    drop(first);
    assert!(guard.is_valid());
    drop(nested);
    drop(guard);
    second.block_on(servers.assert_counts("l", [0; 3]));
    // The same from a thread without a runtime.
    let guard = second.block_on(async { lock.lock().await.unwrap() });
    std::thread::spawn(move || drop(guard)).join().unwrap();
    second.block_on(servers.assert_counts("l", [0; 3]));
    // The drop of an unpolled unlock releases the lock, too.
    let guard = second.block_on(async { lock.lock().await.unwrap() });
    drop(guard.unlock());
    second.block_on(servers.assert_counts("l", [0; 3]));
    second.block_on(servers.assert_clean());
}

#[tokio::test]
async fn a_panic_releases_the_lock() {
    let servers = Servers::start(3).await;
    let lock = servers.lock("l").await;
    let panicking = tokio::spawn({
        let lock = lock.clone();
        async move {
            let _guard = lock.lock().await.unwrap();
            panic!("on purpose");
        }
    });
    assert!(panicking.await.unwrap_err().is_panic());
    let next = tokio::time::timeout(SOON, lock.lock().into_future());
    drop(next.await.expect("it is free").unwrap());
}

/// Dropped after each number of polls that there is, until one was not interrupted.
#[tokio::test]
async fn an_acquire_dropped_at_any_point_leaves_nothing() {
    let servers = Servers::start(3).await;
    let clients = servers.clients().await;
    let lock = lock_of(&clients, "l");
    let mut polls = 0;
    loop {
        polls += 1;
        let mut acquire = lock.lock().owner(&Owner::new()).into_future();
        let mut left = polls;
        let interrupted = std::future::poll_fn(|context| {
            if left == 0 {
                return std::task::Poll::Ready(None);
            }
            left -= 1;
            acquire.as_mut().poll(context).map(Some)
        });
        let outcome = interrupted.await;
        drop(acquire);
        let done = match outcome {
            Some(guard) => {
                drop(guard.unwrap());
                true
            }
            None => false,
        };
        servers.assert_counts("l", [0; 3]).await;
        if done {
            break;
        }
    }
    assert!(polls > 1, "nothing was interrupted");
    // A later guard is not affected by the dropped calls.
    let guard = lock.try_lock().wait(SOON).await.unwrap();
    has(&guard.expect("no owner has it"), 3).await;
}

#[tokio::test]
async fn a_dropped_waiter_leaves_no_key_and_no_gap() {
    let servers = Servers::start(3).await;
    let (mine, other) = (
        servers.clients_without_polling().await,
        servers.lock("l").await,
    );
    let lock = lock_of(&mine, "l");
    let held = other.lock().await.unwrap();
    let mut waiters = Vec::new();
    for _ in 0..4 {
        let request = lock.lock().owner(&Owner::new()).into_future();
        waiters.push(tokio::spawn(request));
        tokio::time::sleep(ms(50)).await;
    }
    // The contender, one in the middle, and the last one.
    for n in [0, 2, 3] {
        waiters[n].abort();
    }
    held.unlock().await.unwrap();
    let guard = tokio::time::timeout(SOON, waiters.remove(1)).await;
    let guard = guard.expect("it is woken").unwrap().unwrap();
    assert!(guard.is_valid());
    guard.unlock().await.unwrap();
    servers.assert_counts("l", [0; 3]).await;
    servers.assert_clean().await;
}

#[tokio::test]
async fn work_is_cancelled_when_the_lock_is_lost() {
    let servers = Servers::start(3).await;
    let lock = servers.lock("l").await;
    let work = lock.lock().lease(ms(4_000)).with(async |held| {
        held.lost_token().cancelled().await;
        std::future::pending::<()>().await;
    });
    let error = tokio::time::timeout(SOON, work).await.unwrap().unwrap_err();
    let lockdog::Error::Lost(lost) = error else {
        panic!("{error}")
    };
    assert_eq!((lost.reason(), lost.lock()), (LostReason::Deadline, "l"));
    // Its guard is gone with it.
    assert_eq!(lock.with(async |_| 5).await.unwrap(), 5);
    let busy = servers.lock("l").await;
    let held = busy.lock().await.unwrap();
    let refused = until_ok(SOON, async || lock.try_lock().with(async |_| 5).await);
    assert_eq!(refused.await, None);
    drop(held);
    eventually(SOON, "it is free", async || {
        matches!(lock.try_lock().with(async |_| 5).await, Ok(Some(5)))
    })
    .await;
}

/// Queries the guard during the notification of its loss.
#[derive(Default)]
struct Curious {
    guard: OnceLock<Arc<Guard>>,
    has_looked: AtomicBool,
}

impl Wake for Curious {
    fn wake(self: Arc<Self>) {
        let guard = self
            .guard
            .get()
            .expect("it is there before the notification");
        let looked = !guard.is_valid() && guard.remaining().is_zero();
        self.has_looked.store(looked, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_waker_called_for_a_loss_may_query_the_guard() {
    let servers = Servers::start(3).await;
    let lock = servers.lock("l").await;
    let curious = Arc::new(Curious::default());
    let guard = Arc::new(lock.lock().lease(ms(4_000)).await.unwrap());
    assert!(curious.guard.set(guard.clone()).is_ok());
    let mut lost = pin!(guard.lost());
    let waker = Waker::from(curious.clone());
    let polled = lost.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    eventually(SOON, "it was notified and has checked", async || {
        curious.has_looked.load(Ordering::SeqCst)
    })
    .await;
}
