//! Locks that stay for a time at least, also if their guards end earlier.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use lockdog::error::LostReason;
use lockdog::{Client, Error, Lock, MultiLock, Owner, RedLock, Unlocked, Value};
use lockdog_test::Server;
use tokio::time::{Instant, sleep};

const AT_LEAST: Duration = Duration::from_secs(5);
const MOMENT: Duration = Duration::from_millis(100);

/// A lock of each kind that supports it.
fn kinds(client: &Client) -> Vec<Lock> {
    vec![
        client.lock("orders"),
        client.spin_lock("orders"),
        client.non_reentrant_lock("orders"),
        client.fenced_lock("orders"),
        client.fair_lock("orders"),
        client.non_reentrant_fair_lock("orders"),
    ]
}

/// When another client can acquire the lock.
async fn free(other: &Lock) -> Instant {
    let guard = other
        .try_lock()
        .wait(Duration::from_secs(300))
        .await
        .unwrap();
    let at = Instant::now();
    guard.expect("it ends").unlock().await.unwrap();
    at
}

#[tokio::test(start_paused = true)]
async fn a_short_job_keeps_the_lock_for_the_rest_of_the_time_however_its_guard_ends() {
    for kind in 0..6 {
        for how in ["unlock", "drop", "shutdown"] {
            let server = Server::new();
            let (client, other) = (server.client().await, server.client().await);
            let (lock, other) = (
                kinds(&client).swap_remove(kind),
                kinds(&other).swap_remove(kind),
            );
            let began = Instant::now();
            let guard = lock
                .try_lock()
                .hold_at_least(AT_LEAST)
                .await
                .unwrap()
                .expect("it is free");
            sleep(MOMENT).await;
            match how {
                "unlock" => {
                    let Unlocked::Kept { rest } = guard.unlock().await.unwrap() else {
                        panic!("{how}: it is kept");
                    };
                    assert!(
                        rest <= AT_LEAST - MOMENT && rest >= AT_LEAST - 2 * MOMENT,
                        "{rest:?}"
                    );
                }
                "drop" => drop(guard),
                _ => {
                    let report = client.shutdown().await;
                    assert_eq!((report.released, report.unconfirmed), (1, 0));
                    drop(guard);
                }
            }
            // Far shorter than the rest of the watchdog's lease.
            sleep(MOMENT).await;
            let ttl = other.remaining_ttl().await.unwrap();
            assert!(format!("{ttl:?}").contains("4."), "{how}: {ttl:?}");
            if how != "shutdown" {
                assert!(client.holds().is_empty(), "{how}");
                assert!(!lock.is_held().await.unwrap(), "{how}");
                // The same owner has to wait, too.
                assert!(lock.try_lock().await.unwrap().is_none(), "{how}");
            }
            let at = free(&other).await;
            assert!(at - began >= AT_LEAST, "{how}: {:?}", at - began);
            assert!(
                at - began <= AT_LEAST + 2 * Duration::from_secs(1),
                "{how}: {:?}",
                at - began
            );
        }
    }
}

/// A lease has whole milliseconds.
#[tokio::test(start_paused = true)]
async fn a_lock_of_a_dead_process_stays_for_a_fraction_of_a_millisecond_too() {
    let server = Server::new();
    let client = server.client().await;
    let at_least = AT_LEAST + Duration::from_micros(900);
    let request = client.lock("orders").lock().lease(MOMENT);
    let guard = request.hold_at_least(at_least).await.unwrap();
    let holder = server.holder("orders").expect("it is held");
    assert!(holder.ttl >= Some(at_least), "{holder:?}");
    guard.unlock().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn after_the_time_an_unlock_releases_at_once_and_hands_over() {
    let server = Server::new();
    let client = server.client().await;
    let lock = client.lock("orders");
    let request = lock.lock().hold_at_least(AT_LEAST);
    let shown = format!("{request:?}");
    assert!(
        shown.contains(&format!("hold_at_least: Some({AT_LEAST:?})")),
        "{shown}"
    );
    let guard = request.await.unwrap();
    let waiter = {
        let lock = lock.clone();
        tokio::spawn(async move { lock.lock().owner(&Owner::new()).await.unwrap() })
    };
    sleep(AT_LEAST).await;
    assert!(guard.is_valid() && !waiter.is_finished());
    let ended = Instant::now();
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    waiter.await.unwrap().unlock().await.unwrap();
    assert!(ended.elapsed() < MOMENT);
    server.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_time_above_the_watchdogs_lease_outlives_the_client_and_its_renewals() {
    let long = Duration::from_secs(3_600);
    let server = Server::new();
    let (client, other) = (server.client().await, server.client().await);
    let guard = client
        .lock("orders")
        .lock()
        .hold_at_least(long)
        .await
        .unwrap();
    let ttl = server.holder("orders").unwrap().ttl.unwrap();
    assert!(ttl > long - MOMENT && ttl <= long, "{ttl:?}");
    // No later command of the client arrives, as if its process had died.
    server.freeze();
    drop(guard);
    client.shutdown_within(MOMENT).await;
    server.cut();
    server.thaw();
    sleep(long / 2).await;
    let other = other.lock("orders");
    assert!(other.try_lock().await.unwrap().is_none());
    // A living holder is renewed beyond the least time.
    sleep(long).await;
    let guard = other.lock().hold_at_least(long / 60).await.unwrap();
    sleep(long).await;
    assert!(guard.is_valid());
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
}

#[tokio::test(start_paused = true)]
async fn the_last_of_nested_guards_decides_and_the_longest_time_counts() {
    let server = Server::new();
    let (client, other) = (server.client().await, server.client().await);
    let lock = client.lock("orders");
    let began = Instant::now();
    let outer = lock.lock().await.unwrap();
    let inner = lock.lock().hold_at_least(AT_LEAST).await.unwrap();
    assert_eq!(
        inner.unlock().await.unwrap(),
        Unlocked::StillHeld { count: 1 }
    );
    assert!(matches!(
        outer.unlock().await.unwrap(),
        Unlocked::Kept { .. }
    ));
    assert!(free(&other.lock("orders")).await - began >= AT_LEAST);
    // Both end after the time.
    let outer = lock.lock().hold_at_least(AT_LEAST).await.unwrap();
    let inner = lock.lock().await.unwrap();
    drop(outer);
    sleep(2 * AT_LEAST).await;
    assert!(inner.is_valid());
    assert_eq!(inner.unlock().await.unwrap(), Unlocked::Released);
    server.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn an_end_that_is_refused_or_not_answered_is_tried_again_and_the_lock_still_ends_in_time() {
    for is_refused in [false, true] {
        let server = Server::new();
        let (client, other) = (server.client().await, server.client().await);
        let lock = client.lock("orders");
        let guard = lock.lock().hold_at_least(AT_LEAST).await.unwrap();
        let began = Instant::now();
        match is_refused {
            true => server.refuse(
                "evalsha",
                "LOADING Redis is loading the dataset in memory",
                1,
            ),
            false => server.lose_replies(1),
        }
        drop(guard);
        let at = free(&other.lock("orders")).await;
        // Without a second attempt, the refused one leaves the lock for the watchdog's lease: 30 s.
        let took = at - began;
        assert!(took >= AT_LEAST - MOMENT && took < 3 * AT_LEAST, "{took:?}");
    }
}

/// Invariant 3: the connection breaks half a second after the command ran, which was when the server had
/// answered that it does not know the script.
#[tokio::test(start_paused = true)]
async fn a_repeated_unlock_does_not_begin_the_rest_again() {
    let server = Server::new();
    let (client, other) = (server.client().await, server.client().await);
    let lock = client.lock("orders");
    let began = Instant::now();
    let guard = lock.lock().hold_at_least(AT_LEAST).await.unwrap();
    let way = Duration::from_secs(1);
    server.delay(way);
    let unlock = tokio::spawn(guard.unlock());
    sleep(way + 5 * MOMENT).await;
    server.cut();
    server.delay(Duration::ZERO);
    let unlocked = unlock.await.unwrap().unwrap();
    assert!(matches!(unlocked, Unlocked::Kept { .. }), "{unlocked:?}");
    let took = free(&other.lock("orders")).await - began;
    assert!(
        took >= AT_LEAST && took < AT_LEAST + way + MOMENT,
        "{took:?}"
    );
}

/// With a long time, no renewal notices the loss.
#[tokio::test(start_paused = true)]
async fn an_unlock_before_the_time_reports_a_loss_that_was_not_noticed_before() {
    for kind in 0..6 {
        let server = Server::new();
        let (client, other) = (server.client().await, server.client().await);
        let (lock, other) = (
            kinds(&client).swap_remove(kind),
            kinds(&other).swap_remove(kind),
        );
        let long = Duration::from_secs(3_600);
        let guard = lock.lock().hold_at_least(long).await.unwrap();
        server.lose("orders");
        let stolen = other.lock().await.unwrap();
        let Err(Error::Lost(lost)) = guard.unlock().await else {
            panic!("it is lost");
        };
        assert_eq!(lost.reason(), LostReason::NotOurs);
        // The other owner's lock is unchanged.
        assert!(stolen.is_valid());
        assert_eq!(stolen.unlock().await.unwrap(), Unlocked::Released);
        let request = lock.lock().hold_at_least(long);
        let done = request.with(|_| async { server.lose("orders") }).await;
        assert!(matches!(done, Err(Error::Lost(_))));
    }
}

/// Its connection breaks after the command ran.
#[tokio::test(start_paused = true)]
async fn a_repeated_unlock_finds_out_whether_the_lock_is_kept() {
    for is_lost in [false, true] {
        let server = Server::new();
        let (client, other) = (server.client().await, server.client().await);
        // The server knows the scripts.
        let warm = client.lock("warm").lock().hold_at_least(MOMENT);
        warm.await.unwrap().unlock().await.unwrap();
        let lock = client.lock("orders");
        let began = Instant::now();
        let guard = lock.lock().hold_at_least(AT_LEAST).await.unwrap();
        server.delay(AT_LEAST);
        let unlock = tokio::spawn(guard.unlock());
        sleep(MOMENT).await;
        let ttl = server.holder("orders").and_then(|holder| holder.ttl);
        assert!(ttl.is_some_and(|ttl| ttl <= AT_LEAST), "it ran: {ttl:?}");
        if is_lost {
            server.lose("orders");
        }
        server.cut();
        server.delay(Duration::ZERO);
        match unlock.await.unwrap() {
            Ok(Unlocked::Kept { .. }) => assert!(!is_lost),
            Err(Error::Lost(_)) => assert!(is_lost),
            other => panic!("{is_lost}: {other:?}"),
        }
        let free_at = free(&other.lock("orders")).await;
        assert_eq!(free_at - began < AT_LEAST, is_lost);
    }
}

/// Invariants 6 and 14.
#[tokio::test(start_paused = true)]
async fn an_unlock_that_is_cancelled_or_left_keeps_the_lock_for_the_rest_only() {
    // It ends with its third poll at the latest. Its caller polls it on before the end of the time, or after it.
    for polls in 0..3 {
        for polled_on in [None, Some(AT_LEAST / 2), Some(2 * AT_LEAST)] {
            let what = format!("{polls} polls, {polled_on:?}");
            let server = Server::new();
            let (client, other) = (server.client().await, server.client().await);
            // The connection is there, and the server knows the scripts.
            let warm = client.lock("warm").lock().hold_at_least(MOMENT);
            warm.await.unwrap().unlock().await.unwrap();
            let lock = client.lock("orders");
            let began = Instant::now();
            let guard = lock.lock().hold_at_least(AT_LEAST).await.unwrap();
            server.delay(MOMENT / 2);
            let mut unlock = Box::pin(guard.unlock());
            let mut done = None;
            for _ in 0..polls {
                let poll = poll_fn(|cx| Poll::Ready(unlock.as_mut().poll(cx)));
                if let Poll::Ready(unlocked) = poll.await {
                    done = Some(unlocked);
                    break;
                }
                sleep(MOMENT).await;
            }
            match (done, polled_on) {
                (Some(unlocked), _) => {
                    assert!(matches!(unlocked, Ok(Unlocked::Kept { .. })), "{what}");
                }
                (None, Some(after)) if polls > 0 => {
                    sleep(after).await;
                    let unlocked = unlock.await.unwrap();
                    assert!(
                        matches!(unlocked, Unlocked::Kept { .. }),
                        "{what}: {unlocked:?}"
                    );
                }
                (None, _) => drop(unlock),
            }
            let took = free(&other.lock("orders")).await - began;
            assert!(took >= AT_LEAST, "{what}: {took:?}");
            if polled_on != Some(2 * AT_LEAST) {
                // Its lease is 30 s.
                assert!(took <= 2 * AT_LEAST, "{what}: {took:?}");
            }
            assert!(client.holds().is_empty(), "{what}");
            server.assert_clean().await;
        }
    }
}

/// The background sends the command in place of the unlock, and the answer reports the loss.
#[tokio::test(start_paused = true)]
async fn an_unlock_that_is_left_and_polled_on_later_reports_a_loss() {
    let server = Server::new();
    let client = server.client().await;
    let lock = client.lock("orders");
    let guard = lock.lock().hold_at_least(2 * AT_LEAST).await.unwrap();
    server.lose("orders");
    server.delay(MOMENT / 2);
    let mut unlock = Box::pin(guard.unlock());
    let poll = poll_fn(|cx| Poll::Ready(unlock.as_mut().poll(cx)));
    assert!(poll.await.is_pending());
    sleep(AT_LEAST).await;
    assert!(client.holds().is_empty());
    let lost = unlock.await.unwrap_err();
    assert!(matches!(lost, Error::Lost(_)), "{lost}");
}

#[tokio::test(start_paused = true)]
async fn force_unlock_frees_a_kept_lock() {
    let server = Server::new();
    let (client, other) = (server.client().await, server.client().await);
    client
        .lock("orders")
        .lock()
        .hold_at_least(AT_LEAST)
        .await
        .unwrap()
        .unlock()
        .await
        .unwrap();
    let other = other.lock("orders");
    assert!(other.force_unlock().await.unwrap());
    assert!(other.try_lock().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_kept_is_refused_and_nothing_is_sent() {
    let server = Server::new();
    let client = server
        .builder()
        .max_lease(10 * AT_LEAST)
        .build()
        .await
        .unwrap();
    let lock = client.lock("orders");
    let several = [lock.clone(), client.lock("b"), client.lock("c")];
    let group = client.group_lock("orders", [Value::utf8("a")]);
    let long = Duration::from_secs(3_600);
    let refused = [
        lock.lock().hold_at_least(long).await.err(),
        lock.lock().hold_at_least(Duration::ZERO).await.err(),
        lock.lock()
            .hold_at_least(AT_LEAST)
            .max_hold(MOMENT)
            .await
            .err(),
        client
            .read_write_lock("orders")
            .read()
            .lock()
            .hold_at_least(AT_LEAST)
            .await
            .err(),
        client
            .read_write_lock("orders")
            .write()
            .lock()
            .hold_at_least(AT_LEAST)
            .await
            .err(),
        group.lock().hold_at_least(AT_LEAST).await.err(),
        MultiLock::new(several.clone())
            .lock()
            .hold_at_least(AT_LEAST)
            .await
            .err(),
        RedLock::new(several)
            .lock()
            .hold_at_least(AT_LEAST)
            .await
            .err(),
    ];
    for (at, error) in refused.into_iter().enumerate() {
        let error = error.unwrap_or_else(|| panic!("{at} is refused"));
        let is_invalid = matches!(&error, Error::Invalid { .. });
        assert!(
            is_invalid && error.to_string().contains("hold_at_least"),
            "{at}: {error}"
        );
    }
    assert_eq!(server.keys(), [""; 0]);
}
