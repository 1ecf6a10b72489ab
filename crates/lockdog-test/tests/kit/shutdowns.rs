//! A shutdown with a budget.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use lockdog::Error;
use lockdog_test::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep};

const BUDGET: Duration = Duration::from_millis(500);

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_within_its_budget_and_the_background_continues() {
    let server = Server::new();
    let client = server.client().await;
    let guard = client.lock("orders").lock().await.unwrap();
    server.freeze();
    let began = Instant::now();
    let report = client.shutdown_within(BUDGET).await;
    let took = began.elapsed();
    // Without the budget it is four command timeouts: 12 s.
    assert!((BUDGET..BUDGET + BUDGET / 5).contains(&took), "{took:?}");
    assert_eq!((report.released, report.unconfirmed), (0, 1));
    assert!(!guard.is_valid());
    server.thaw();
    sleep(Duration::from_secs(2)).await;
    assert_eq!(server.holder("orders"), None);
}

/// The tasks drop their guards when the shutdown notifies them.
#[tokio::test(start_paused = true)]
async fn a_lock_whose_guard_is_dropped_during_a_shutdown_is_counted_once() {
    for is_refused in [false, true] {
        let server = Server::new();
        let client = server.client().await;
        let mut tasks = Vec::new();
        for name in ["orders", "stock"] {
            let guard = client.lock(name).lock().await.unwrap();
            tasks.push(tokio::spawn(async move {
                guard.lost().await;
                drop(guard);
            }));
        }
        // Each task waits for its loss.
        sleep(Duration::from_millis(1)).await;
        match is_refused {
            true => server.refuse("evalsha", "NOPERM no permissions for evalsha", u32::MAX),
            false => server.freeze(),
        }
        let report = client.shutdown_within(BUDGET).await;
        assert_eq!((report.released, report.unconfirmed), (0, 2), "{report:?}");
        for task in tasks {
            task.await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_that_is_done_does_not_wait_for_its_budget() {
    let server = Server::new();
    let client = server.client().await;
    let guard = client.lock("orders").lock().await.unwrap();
    let began = Instant::now();
    let report = client.shutdown_within(Duration::MAX).await;
    assert_eq!((report.released, report.unconfirmed), (1, 0));
    assert!(began.elapsed() < BUDGET);
    drop(guard);
    server.assert_clean().await;
}

/// How many connections the server has.
async fn connections(server: &Server) -> usize {
    let mut own = server.connect();
    let list = b"*2\r\n$6\r\nCLIENT\r\n$4\r\nLIST\r\n";
    own.write_all(list).await.unwrap();
    let mut answer = vec![0; 100_000];
    let read = own.read(&mut answer).await.unwrap();
    let lines = String::from_utf8_lossy(&answer[..read]).into_owned();
    lines.matches(" fd=").count() - 1
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_leaves_no_connection_whatever_handles_live_and_whatever_its_budget_is() {
    for budget in [BUDGET, Duration::MAX] {
        let server = Server::new();
        let client = server.client().await;
        let lock = client.lock("orders");
        let guard = lock.lock().await.unwrap();
        let _stolen = server.steal("other");
        let waiter = tokio::spawn(client.lock("other").lock().into_future());
        // A third of the lease passes.
        sleep(Duration::from_secs(11)).await;
        // Commands, renewals and messages.
        assert_eq!(connections(&server).await, 3);
        server.freeze();
        client.shutdown_within(budget).await;
        let closed = waiter.await.unwrap().unwrap_err();
        assert!(matches!(closed, Error::Closed), "{closed}");
        // Four command timeouts.
        sleep(Duration::from_secs(12)).await;
        server.thaw();
        sleep(BUDGET).await;
        assert_eq!(connections(&server).await, 0);
        let closed = [
            lock.try_lock().await.err(),
            lock.is_locked().await.err(),
            client.lock("other").lock().await.err(),
        ];
        for error in closed {
            assert!(matches!(error, Some(Error::Closed)), "{error:?}");
        }
        assert_eq!(connections(&server).await, 0);
        drop(guard);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_polled_on_after_a_shutdown_opens_no_connection() {
    for polls in 1..10 {
        let server = Server::new();
        let client = server.builder().lazy(true).build().await.unwrap();
        let mut call = pin!(client.lock("orders").lock().into_future());
        for _ in 0..polls {
            let poll = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx)));
            if poll.await.is_ready() {
                // The call ended, so every step before its end was polled.
                return;
            }
        }
        client.shutdown_within(BUDGET).await;
        sleep(Duration::from_secs(12)).await;
        let closed = call.await.unwrap_err();
        assert!(matches!(closed, Error::Closed), "{closed}");
        sleep(BUDGET).await;
        assert_eq!(connections(&server).await, 0, "{polls} polls");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_sent_before_the_shutdown_is_unconfirmed_and_may_count() {
    let server = Server::new();
    let (client, other) = (server.client().await, server.client().await);
    let latch = client.count_down_latch("start");
    assert!(latch.try_set_count(2).await.unwrap());
    // From now on the server has the script.
    latch.count_down().await.unwrap();
    server.freeze();
    let counting = tokio::spawn(async move { latch.count_down().await });
    sleep(Duration::from_millis(50)).await;
    let report = client.shutdown_within(BUDGET).await;
    assert_eq!(report.unanswered_calls, 1);
    let error = counting.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Unconfirmed { .. }), "{error}");
    server.thaw();
    let waiting = other.count_down_latch("start");
    assert!(waiting.wait_zero_within(BUDGET * 4).await.unwrap());
}

/// More calls than the client sends at once.
#[tokio::test(start_paused = true)]
async fn a_call_that_the_shutdown_kept_from_its_first_sending_is_closed_and_does_not_count() {
    const CALLS: i64 = 300;
    let server = Server::new();
    let (client, other) = (server.client().await, server.client().await);
    let semaphore = client.semaphore("seats");
    semaphore.add_permits(1).await.unwrap();
    server.freeze();
    let calls = (0..CALLS).map(|_| {
        let semaphore = semaphore.clone();
        tokio::spawn(async move { semaphore.add_permits(1).await })
    });
    let calls: Vec<_> = calls.collect();
    sleep(Duration::from_millis(50)).await;
    client.shutdown_within(BUDGET).await;
    let (mut closed, mut unconfirmed) = (0, 0);
    for call in calls {
        match call.await.unwrap().unwrap_err() {
            Error::Closed => closed += 1,
            Error::Unconfirmed { .. } => unconfirmed += 1,
            error => panic!("{error}"),
        }
    }
    assert!(closed > 0 && closed + unconfirmed == CALLS, "{closed}");
    server.thaw();
    sleep(BUDGET).await;
    let counted = other.semaphore("seats").available().await.unwrap();
    assert!(counted <= 1 + unconfirmed, "{counted} of {unconfirmed}");
}
