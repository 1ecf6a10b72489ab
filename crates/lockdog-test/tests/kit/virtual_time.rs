//! Hours of leases on a paused clock.

use std::pin::pin;
use std::time::Duration;

use lockdog::error::LostReason;
use lockdog::{Error, MultiLock, Owner, RedLock};
use lockdog_test::{Data, Server};
use tokio::task::JoinSet;
use tokio::time::Instant;

const HOUR: Duration = Duration::from_secs(60 * 60);

#[tokio::test(start_paused = true)]
async fn an_hour_of_renewals_passes_at_once() {
    let server = Server::new();
    let client = server.client().await;
    let guard = client.lock("nightly").lock().await.unwrap();
    let before = server.commands().len();
    tokio::time::sleep(HOUR).await;
    assert!(guard.is_valid());
    assert!(
        server.commands().len() >= before + 360,
        "it was renewed every ten seconds"
    );
    guard.unlock().await.unwrap();
    server.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_day_of_renewals_passes_quickly() {
    let server = Server::new();
    let client = server.client().await;
    let guard = client.lock("nightly").lock().await.unwrap();
    let limit = Duration::from_secs(5);
    let mut took = Duration::MAX;
    // Other work on the machine slows the processor down, so the best of three days counts.
    for _ in 0..3 {
        let began = processor_time();
        tokio::time::sleep(24 * HOUR).await;
        took = took.min(processor_time() - began);
        assert!(guard.is_valid());
        if took < limit {
            break;
        }
    }
    println!("24 hours of a watched lock took {took:?}");
    assert!(took < limit, "{took:?}");
}

/// What this thread, and so its runtime, has used of a processor. What else the machine does counts little.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("this is Linux");
    let nanoseconds = text.split(' ').next().and_then(|it| it.parse().ok());
    Duration::from_nanos(nanoseconds.expect("the first number of three"))
}

/// A lease of 30 s that is renewed every 10 s has a deadline 20 s ahead at least.
#[tokio::test(start_paused = true)]
async fn a_task_that_awaits_a_loss_sleeps_until_the_deadline() {
    let servers = [Server::new(), Server::new(), Server::new()];
    let mut clients = Vec::new();
    for server in &servers {
        clients.push(server.client().await);
    }
    let locks = |name| clients.iter().map(move |client| client.lock(name));
    let guards = [
        ("plain", clients[0].lock("plain").lock().await),
        ("multi", MultiLock::new(locks("member")).lock().await),
        ("red", RedLock::new(locks("instance")).lock().await),
    ];
    let began = std::time::Instant::now();
    let hours = guards.map(|(kind, guard)| async move {
        let guard = guard.unwrap();
        let mut polls = 0;
        {
            let mut lost = pin!(guard.lost());
            let counted = std::future::poll_fn(|cx| {
                polls += 1;
                lost.as_mut().poll(cx)
            });
            let waited = tokio::time::timeout(6 * HOUR, counted).await;
            assert!(waited.is_err(), "{kind}: {waited:?}");
        }
        assert!(polls <= 6 * 60 * 60 / 20 + 1, "{kind}: {polls} polls");
        guard.unlock().await.unwrap();
    });
    let mut tasks: JoinSet<()> = hours.into_iter().collect();
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let took = began.elapsed();
    println!("six hours of a lock of each kind took {took:?}");
    assert!(took < Duration::from_secs(300), "{took:?}");
    for server in &servers {
        server.assert_clean().await;
    }
}

/// As on a machine that was suspended: no timer runs in between.
#[tokio::test(start_paused = true)]
async fn a_clock_that_is_advanced_beyond_the_lease_in_one_step_loses_the_lock() {
    let server = Server::new();
    let client = server.client().await;
    let guard = client.lock("nightly").lock().await.unwrap();
    tokio::time::advance(Duration::from_secs(31)).await;
    assert!(!guard.is_valid());
    drop(guard);
    server.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_lock_is_reported_at_the_next_renewal() {
    let server = Server::new();
    let client = server.client().await;
    let guard = client.lock("nightly").lock().await.unwrap();
    tokio::time::sleep(HOUR).await;
    server.lose("nightly");
    let began = Instant::now();
    assert_eq!(guard.lost().await.reason(), LostReason::NotOurs);
    assert!(
        began.elapsed() <= Duration::from_secs(11),
        "{:?}",
        began.elapsed()
    );
    drop(guard);
    server.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_message_wakes_the_waiter() {
    let server = Server::new();
    let (holds, waits) = (server.client().await, server.client().await);
    let guard = holds.lock("orders").lock().await.unwrap();
    let lock = waits.lock("orders");
    let waiter = tokio::spawn(async move {
        let guard = lock.lock().await.unwrap();
        (Instant::now(), guard)
    });
    tokio::time::sleep(Duration::from_millis(333)).await;
    let freed = Instant::now();
    guard.unlock().await.unwrap();
    let (woken, guard) = waiter.await.unwrap();
    assert!(
        woken - freed < Duration::from_millis(50),
        "{:?}",
        woken - freed
    );
    guard.unlock().await.unwrap();
    server.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lease_ends_on_time() {
    let server = Server::new();
    let client = server.client().await;
    let lock = client.lock("orders");
    let guard = lock.lock().lease(Duration::from_secs(5)).await.unwrap();
    let began = Instant::now();
    assert_eq!(guard.lost().await.reason(), LostReason::Deadline);
    let after = began.elapsed();
    assert!(
        after > Duration::from_secs(4) && after <= Duration::from_secs(5),
        "{after:?}"
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(server.holder("orders"), None);
    assert!(
        lock.try_lock()
            .owner(&Owner::new())
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_frozen_for_a_lease_loses_the_lock() {
    let server = Server::new();
    let client = server.client().await;
    let guard = client.lock("orders").lock().await.unwrap();
    server.freeze();
    let began = Instant::now();
    assert_eq!(guard.lost().await.reason(), LostReason::Deadline);
    assert!(began.elapsed() <= Duration::from_secs(30));
    let asked = client.lock("other").try_lock().await;
    let failed = matches!(
        asked,
        Err(Error::Timeout { .. } | Error::Unavailable { .. })
    );
    assert!(failed, "{asked:?}");
    server.thaw();
    client
        .lock("other")
        .lock()
        .await
        .unwrap()
        .unlock()
        .await
        .unwrap();
    drop(guard);
    server.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_frozen_for_less_than_a_lease_loses_nothing() {
    let server = Server::new();
    let client = server.client().await;
    let guard = client.lock("orders").lock().await.unwrap();
    for _ in 0..10 {
        server.freeze();
        tokio::time::sleep(Duration::from_secs(12)).await;
        server.thaw();
        tokio::time::sleep(Duration::from_secs(15)).await;
        assert!(guard.is_valid());
    }
    guard.unlock().await.unwrap();
    server.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_without_data_is_reported() {
    let server = Server::new();
    let client = server.client().await;
    let guard = client.lock("orders").lock().await.unwrap();
    server.restart(Data::Lost);
    let began = Instant::now();
    assert_eq!(guard.lost().await.reason(), LostReason::NotOurs);
    assert!(
        began.elapsed() <= Duration::from_secs(11),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_stolen_lock_is_renewed_by_the_thief() {
    let server = Server::new();
    let client = server.client().await;
    let stolen = server.steal("orders");
    tokio::time::sleep(HOUR).await;
    assert!(stolen.is_held());
    assert!(client.lock("orders").try_lock().await.unwrap().is_none());
    drop(stolen);
    assert!(client.lock("orders").try_lock().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_minority_of_a_red_lock_may_lose_its_data() {
    let servers = [Server::new(), Server::new(), Server::new()];
    let mut locks = Vec::new();
    for server in &servers {
        locks.push(server.client().await.lock("orders"));
    }
    let lock = RedLock::new(locks).fenced();
    let guard = lock.lock().await.unwrap();
    servers[0].restart(Data::Lost);
    tokio::time::sleep(HOUR).await;
    assert!(guard.is_valid());
    guard.unlock().await.unwrap();
    for server in &servers {
        server.assert_clean().await;
    }
}

/// The quorum counts deadlines on the clock of the client with the smallest id. Ids are random, so the
/// test repeats.
#[tokio::test(start_paused = true)]
async fn clients_built_hours_apart_form_a_red_lock() {
    let servers = [Server::new(), Server::new(), Server::new()];
    for round in 0..8 {
        let mut locks = Vec::new();
        for server in &servers {
            locks.push(server.client().await.lock("orders"));
            tokio::time::sleep(HOUR).await;
        }
        let guard = RedLock::new(locks).lock().await.unwrap();
        // The client may acquire the last instance in the background.
        tokio::time::sleep(Duration::from_secs(1)).await;
        for (number, server) in servers.iter().enumerate() {
            assert!(
                server.holder("orders").is_some(),
                "round {round}, server {number}"
            );
        }
        guard.unlock().await.unwrap();
    }
    for server in &servers {
        server.assert_clean().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_leaves_nothing_after_its_shutdown() {
    let server = Server::new();
    let client = server.client().await;
    client.lock("orders").lock().await.unwrap().forget();
    client.shutdown().await;
    server.assert_clean().await;
}

#[tokio::test]
async fn several_servers_run_at_once() {
    let mut tasks = JoinSet::new();
    for number in 0..200 {
        tasks.spawn(async move {
            let server = Server::new();
            let client = server.client().await;
            let guard = client.lock("orders").lock().await.unwrap();
            assert_eq!(server.keys(), ["orders"], "server {number}");
            guard.unlock().await.unwrap();
            server.assert_clean().await;
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_multi_thread_runtime_uses_real_time() {
    let server = Server::new();
    let client = server.client().await;
    let guard = client.lock("orders").lock().await.unwrap();
    assert!(guard.remaining() <= Duration::from_secs(30));
    guard.unlock().await.unwrap();
    server.assert_clean().await;
}
