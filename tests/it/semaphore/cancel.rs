//! Calls that are dropped at each of their awaits.

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use super::{Fixture, SOON, ms, poll_once};

/// Polls a future whenever it is woken, at most `polls` times, and drops it. Returns whether it had ended.
async fn dropped_after<F: Future>(future: F, polls: usize) -> bool {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(false);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if left == 0 => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// SE1: no permit is lost, at whatever poll the caller drops the call.
#[tokio::test]
async fn a_call_that_is_dropped_at_any_await_leaves_all_permits_free() {
    let test = Fixture::with_permits(2).await;
    let mut ended = 0;
    for polls in 1..8 {
        let acquire = test.seats.acquire_many(2).into_future();
        ended += usize::from(dropped_after(acquire, polls).await);
        test.eventually_free().await;
        let acquire = test.seats.try_acquire_many(2).wait(SOON).into_future();
        ended += usize::from(dropped_after(acquire, polls).await);
        test.eventually_free().await;
        ended += usize::from(dropped_after(test.seats.drain(), polls).await);
        test.eventually_free().await;
        let both = test.seats.acquire_many(2).await.unwrap();
        ended += usize::from(dropped_after(both.release(), polls).await);
        test.eventually_free().await;
        let mut both = test.seats.acquire_many(2).await.unwrap();
        let one = both.split(1).unwrap();
        ended += usize::from(dropped_after(one.release(), polls).await);
        drop(both);
        test.eventually_free().await;
        test.seats.acquire_many(2).await.unwrap().forget();
        ended += usize::from(dropped_after(test.seats.release(2), polls).await);
        test.eventually_free().await;
    }
    assert!(ended > 10, "the calls need fewer polls: {ended}");
}

/// A release by number is sent at its first poll.
#[tokio::test]
async fn a_release_by_number_that_is_dropped_is_done() {
    let test = Fixture::with_permits(0).await;
    for free in 1..=5 {
        // The answer may arrive before the drop.
        let _ = poll_once(test.seats.release(1)).await;
        crate::support::eventually(SOON, "the permit comes", async || test.free().await == free)
            .await;
    }
    tokio::time::sleep(ms(300)).await;
    assert_eq!(test.free().await, 5, "each counts once");
}

/// When a waiter is dropped, the next waiter is served.
#[tokio::test]
async fn a_waiter_that_is_dropped_passes_its_place_on() {
    let test = Fixture::with_permits(1).await;
    let another = test.another().await;
    let held = test.seats.acquire().await.unwrap();
    let first = tokio::spawn(another.acquire().into_future());
    test.somebody_waits().await;
    let second = tokio::spawn(another.acquire().into_future());
    tokio::time::sleep(ms(100)).await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    held.release().await.unwrap();
    let served = tokio::time::timeout(SOON, second).await;
    served
        .expect("it is woken")
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
    test.eventually_free().await;
}

/// A future that is not polled any more does not keep a permit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_that_is_not_polled_any_more_is_undone() {
    struct NoWake;
    impl Wake for NoWake {
        fn wake(self: Arc<Self>) {}
    }
    let test = Fixture::with(2, |client| client.poll_cap(ms(200))).await;
    let waker = Waker::from(Arc::new(NoWake));
    let mut context = Context::from_waker(&waker);
    let left = loop {
        let mut left = Box::pin(test.seats.acquire_many(2).into_future());
        if (0..3).all(|_| left.as_mut().poll(&mut context).is_pending()) {
            break left;
        }
        // On a busy machine the answer may come between two polls.
        test.eventually_free().await;
    };
    let next = tokio::time::timeout(SOON, test.seats.acquire_many(2).into_future()).await;
    next.expect("the other one is undone")
        .unwrap()
        .release()
        .await
        .unwrap();
    drop(left);
    test.eventually_free().await;
}
