//! A wake-up whose receiver is cancelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use lockdog::{Client, Owner};

use crate::support::prelude::SOON;
use crate::support::{RedisServer, eventually};

/// Remembers that it was woken, and does nothing about it.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Flag {
    fn take(&self) -> bool {
        self.0.swap(false, Ordering::SeqCst)
    }
}

/// Invariant 9: the contender receives the message and is cancelled before it acts on it.
#[tokio::test]
async fn a_cancelled_waiter_passes_its_wake_up_on() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    // No timer fires within this test: only a message and its passing-on can wake a waiter.
    let client = || {
        let client = Client::builder().url(server.url());
        client.poll_cap(FOREVER).watchdog_lease(FOREVER).build()
    };
    let (holder, waiters) = (client().await.unwrap(), client().await.unwrap());
    let guard = holder.lock("passed").lock().await.unwrap();

    let lock = waiters.lock("passed");
    let mut first = lock.lock().owner(&Owner::new()).into_future();
    let flag = Arc::new(Flag::default());
    let waker = Waker::from(flag.clone());
    let mut context = Context::from_waker(&waker);
    let mut quiet = 0;
    assert!(first.as_mut().poll(&mut context).is_pending());
    // The test polls the future by hand until it has subscribed, polled the lock again and only waits.
    eventually(SOON, "the contender waits", async || {
        if flag.take() {
            quiet = 0;
            assert!(first.as_mut().poll(&mut context).is_pending());
        } else if !redis.channels().await.is_empty() {
            quiet += 1;
        }
        quiet > 20
    })
    .await;
    let mut second = lock.lock().owner(&Owner::new()).into_future();
    let early = tokio::time::timeout(Duration::from_millis(50), second.as_mut()).await;
    assert!(early.is_err(), "the lock is held");

    guard.unlock().await.unwrap();
    eventually(SOON, "the contender is woken", async || flag.take()).await;
    drop(first);
    let passed_on = tokio::time::timeout(SOON, second).await;
    let guard = passed_on.expect("the wake-up was passed on").unwrap();
    guard.unlock().await.unwrap();
    redis.assert_clean().await;
}

const FOREVER: Duration = Duration::from_secs(600);
