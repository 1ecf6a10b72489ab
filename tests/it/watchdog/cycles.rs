//! Short holds leave no work for the watchdog.

use std::time::Duration;

use lockdog::Guard;
use tokio::time::sleep;

use super::{OUTLAST, PERIOD, SAFETY, builder, connect, connected, hold_many, is_acquire};
use super::{renewals, scripts_run};
use crate::support::{Action, Gate, Proxy, RedisServer, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_quick_cycles_leave_no_entry_and_harm_no_later_lock() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let client = connected(builder(&server.url()).command_timeout(SAFETY)).await;
    let workers: Vec<_> = (0..20)
        .map(|worker| {
            let lock = client.lock(format!("cycle:{worker}"));
            tokio::spawn(async move {
                for round in 0..500 {
                    let guard = lock.lock().await.unwrap();
                    // Holds end alternately by unlock and by drop.
                    if round % 2 == 0 {
                        guard.unlock().await.unwrap();
                    }
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.unwrap();
    }
    eventually(SAFETY, "every release is done", async || {
        let is_settled = client.holds().is_empty() && client.stats().settling == 0;
        redis.keys().await.is_empty() && is_settled
    })
    .await;
    redis.reset_stats().await;
    sleep(PERIOD * 2).await;
    assert_eq!(scripts_run(&redis).await, 0, "nothing is left to renew");

    let guards = hold_many(&client, "later", 500).await;
    sleep(OUTLAST).await;
    assert!(guards.iter().all(Guard::is_valid));
    assert_eq!(redis.keys().await.len(), 500);
    for guard in guards {
        guard.unlock().await.unwrap();
    }
    redis.assert_clean().await;
}

#[tokio::test]
async fn one_acquire_and_one_release_leave_no_renewal() {
    left_by(async |lock| {
        let guard = lock.lock().await.unwrap();
        guard.unlock().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn two_acquires_and_two_releases_leave_no_renewal() {
    left_by(async |lock| {
        let outer = lock.lock().await.unwrap();
        let inner = lock.lock().await.unwrap();
        outer.unlock().await.unwrap();
        inner.unlock().await.unwrap();
    })
    .await;
    left_by(async |lock| {
        lock.lock().await.unwrap().forget();
        let guard = lock.lock().await.unwrap();
        lock.unlock().await.unwrap();
        guard.unlock().await.unwrap();
    })
    .await;
}

async fn left_by(cycle: impl AsyncFnOnce(&lockdog::Lock)) {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let client = connect(proxy.url()).await;
    let redis = server.redis().await;
    cycle(&client.lock("a")).await;
    assert!(client.holds().is_empty());
    assert!(!redis.exists("a").await);
    // The proxy may still have to read one that was sent before.
    let before = renewals(&proxy);
    sleep(PERIOD * 3).await;
    assert!(renewals(&proxy) <= before + 1);
}

#[tokio::test]
async fn a_lock_granted_to_a_dropped_try_lock_is_freed_soon_and_not_renewed() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let lease = SAFETY * 3;
    let client = connected(builder(proxy.url()).watchdog_lease(lease)).await;
    let other = connect(&server.url()).await;
    // The server knows the script, so that the answer held back is a grant.
    client.lock("warm").try_lock().await.unwrap();
    for dropped_after_it_ran in [false, true] {
        let gate = Gate::new();
        let action = if dropped_after_it_ran {
            Action::HoldReply(gate.clone())
        } else {
            Action::HoldRequest(gate.clone())
        };
        let rule = proxy.on(is_acquire, action);
        tokio::select! {
            biased;
            () = gate.wait_reached() => {}
            _ = client.lock("a").try_lock().into_future() => panic!("it has no answer"),
        }
        gate.open();
        rule.wait_hits(1).await;
        // The lease is far from its end, so only a release can have freed the lock.
        let got = other.lock("a").try_lock().wait(SAFETY).await.unwrap();
        got.expect("it is free").unlock().await.unwrap();
        eventually(SAFETY, "it is free for good", async || {
            client.holds().is_empty() && !other.lock("a").is_locked().await.unwrap()
        })
        .await;
    }
    assert_eq!(renewals(&proxy), 0);
    server.redis().await.assert_clean().await;
}

/// Calls are interrupted a few milliseconds after their start.
#[tokio::test]
async fn calls_dropped_at_any_time_leave_the_lock_free() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let client = connected(builder(&server.url()).watchdog_lease(SAFETY * 3)).await;
    for micros in (0..2000).step_by(40) {
        let lock = client.lock("a");
        let call = tokio::spawn(async move {
            if let Some(guard) = lock.try_lock().await.unwrap() {
                guard.unlock().await.unwrap();
            }
        });
        sleep(Duration::from_micros(micros)).await;
        call.abort();
    }
    eventually(SAFETY, "the lock is free", async || {
        !redis.exists("a").await && client.holds().is_empty()
    })
    .await;
    redis.assert_clean().await;
}
