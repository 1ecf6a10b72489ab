//! Each event is counted with the right labels.

use std::time::Duration;

use lockdog::{Owner, RedLock};
use lockdog_test::Server;
use tokio::time::sleep;

use crate::support::{Exporter, LEASE, Page, builder, client};

#[tokio::test(start_paused = true)]
async fn calls_are_counted_by_their_outcomes_and_holds_are_timed() {
    let (server, exporter) = (Server::new(), Exporter::new());
    let client = client(&server, &exporter).await;
    let lock = client.lock("orders:1");
    let guard = lock.lock().await.unwrap();
    drop(lock.lock().await.unwrap());
    let other = Owner::new();
    assert!(lock.try_lock().owner(&other).await.unwrap().is_none());
    let waiter = tokio::spawn(lock.lock().into_future());
    let cancelled = tokio::spawn(lock.lock().into_future());
    sleep(Duration::from_secs(7)).await;
    cancelled.abort();
    guard.unlock().await.unwrap();
    waiter.await.unwrap().unwrap().unlock().await.unwrap();
    let _ = cancelled.await;
    let page = exporter.page();
    for (outcome, count) in [
        ("acquired", 1.0),
        ("reentered", 1.0),
        ("busy", 1.0),
        ("handed_over", 1.0),
        ("cancelled", 1.0),
        ("timeout", 0.0),
    ] {
        let series = format!(r#"lockdog_acquires_total{{group="orders",outcome="{outcome}"}}"#);
        page.assert(&series, count);
    }
    let durations = |part| {
        format!(r#"lockdog_acquire_duration_seconds_{part}{{group="orders",outcome="acquired"}}"#)
    };
    // A re-entry is not counted here.
    page.assert(&durations("count"), 2.0);
    let waited = page.value(&durations("sum")).unwrap();
    assert!((7.0..7.1).contains(&waited), "{waited}");
    page.assert(
        r#"lockdog_hold_duration_seconds_count{group="orders"}"#,
        2.0,
    );
    page.assert(
        r#"lockdog_hold_duration_seconds_bucket{group="orders",le="10"}"#,
        2.0,
    );
    page.assert(
        r#"lockdog_releases_total{how="handed_on",confirmed="true"}"#,
        1.0,
    );
    page.assert(r#"lockdog_wakeups_total{by="hand_over"}"#, 1.0);
    page.assert(
        r#"lockdog_command_duration_seconds_count{command="transfer",result="ok"}"#,
        1.0,
    );
    assert!(!page.0.contains("quantile="), "{}", page.0);
}

/// Prometheus does not count the first value of a new series as an increase.
#[tokio::test(start_paused = true)]
async fn the_count_of_losses_is_zero_before_the_first_one() {
    let (server, exporter) = (Server::new(), Exporter::new());
    let client = client(&server, &exporter).await;
    let guard = client.lock("orders:1").lock().await.unwrap();
    let lost = r#"lockdog_lost_total{group="orders",reason="not_ours"}"#;
    exporter.page().assert(lost, 0.0);
    server.lose("orders:1");
    guard.lost().await;
    let page = exporter.page();
    page.assert(lost, 1.0);
    page.assert(r#"lockdog_renewals_total{result="not_ours"}"#, 1.0);
}

#[tokio::test(start_paused = true)]
async fn a_frozen_server_shows_in_the_gauges_and_the_renewals() {
    let (server, exporter) = (Server::new(), Exporter::new());
    let client = client(&server, &exporter).await;
    exporter.metrics.record([client.stats()]);
    let page = exporter.page();
    assert!(
        page.value("lockdog_hold_remaining_min_seconds")
            .unwrap()
            .is_nan()
    );
    page.assert("lockdog_oldest_hold_seconds", 0.0);
    let guard = client.lock("l").lock().await.unwrap();
    sleep(LEASE).await;
    server.freeze();
    sleep(LEASE / 2).await;
    exporter.metrics.record([client.stats()]);
    let page = exporter.page();
    page.assert("lockdog_locks_held", 1.0);
    page.assert("lockdog_locks_in_jeopardy", 1.0);
    page.assert("lockdog_watchdog_lease_seconds", 3.0);
    page.assert("lockdog_max_waiters", 100_000.0);
    let left = page.value("lockdog_hold_remaining_min_seconds").unwrap();
    assert!(left < 1.5, "{left}");
    assert!(page.value("lockdog_oldest_hold_seconds").unwrap() >= 4.0);
    page.assert(r#"lockdog_connections{role="commands"}"#, 1.0);
    let renewed = page.value(r#"lockdog_renewals_total{result="ok"}"#);
    assert!(renewed.unwrap() >= 2.0);
    let failed = page.value(r#"lockdog_renewals_total{result="failed"}"#);
    assert!(failed.unwrap() >= 1.0);
    server.thaw();
    drop(guard);
    let connects = page.value(r#"lockdog_connects_total{role="commands",result="ok"}"#);
    assert!(connects.unwrap() >= 1.0);
}

#[tokio::test(start_paused = true)]
async fn several_clients_have_one_sum() {
    let (server, exporter) = (Server::new(), Exporter::new());
    let (one, two) = (
        client(&server, &exporter).await,
        client(&server, &exporter).await,
    );
    let _first = one.lock("a").lock().await.unwrap();
    sleep(LEASE).await;
    let _second = two.lock("b").lock().await.unwrap();
    exporter.metrics.record([one.stats(), two.stats()]);
    let page = exporter.page();
    page.assert("lockdog_locks_held", 2.0);
    page.assert("lockdog_max_waiters", 200_000.0);
    assert!(page.value("lockdog_oldest_hold_seconds").unwrap() >= 3.0);
}

#[tokio::test(start_paused = true)]
async fn rounds_of_a_red_lock_are_counted_with_the_least_margin() {
    let servers = [Server::new(), Server::new(), Server::new()];
    let exporter = Exporter::new();
    let mut clients = Vec::new();
    for server in &servers {
        let builder = builder(server, &exporter);
        clients.push(builder.command_timeout(LEASE / 10).build().await.unwrap());
    }
    let lock = RedLock::new(clients.iter().map(|client| client.lock("orders:1")));
    lock.lock().await.unwrap().unlock().await.unwrap();
    exporter
        .metrics
        .record(clients.iter().map(lockdog::Client::stats));
    let page = exporter.page();
    page.assert(r#"lockdog_quorum_rounds_total{result="won"}"#, 1.0);
    let margin = page.value("lockdog_quorum_margin_min");
    assert!(margin.is_some());
    let acquired = r#"lockdog_acquires_total{group="orders",outcome="acquired"}"#;
    page.assert(acquired, 1.0);
    servers[0].freeze();
    servers[1].freeze();
    lock.try_lock().await.unwrap_err();
    exporter
        .metrics
        .record(clients.iter().map(lockdog::Client::stats));
    let page = exporter.page();
    page.assert(r#"lockdog_quorum_rounds_total{result="lost"}"#, 1.0);
    assert_eq!(page.value("lockdog_quorum_margin_min"), margin);
    page.assert(
        r#"lockdog_acquires_total{group="orders",outcome="no_quorum"}"#,
        1.0,
    );
}

/// What the alert `LockdogLeaseRunsOut` compares, before the loss.
#[tokio::test(start_paused = true)]
async fn a_red_lock_without_a_quorum_shows_in_the_gauges_before_it_is_lost() {
    let servers = [Server::new(), Server::new(), Server::new()];
    let exporter = Exporter::new();
    let mut clients = Vec::new();
    for server in &servers {
        clients.push(client(server, &exporter).await);
    }
    let lock = RedLock::new(clients.iter().map(|client| client.lock("orders:1")));
    let guard = lock.lock().await.unwrap();
    let page = || {
        let stats = clients.iter().map(lockdog::Client::stats);
        exporter.metrics.record(stats);
        exporter.page()
    };
    sleep(LEASE * 2).await;
    page().assert("lockdog_locks_in_jeopardy", 0.0);
    servers[0].freeze();
    servers[1].freeze();
    let runs_out = |page: &Page| {
        let left = page.value("lockdog_hold_remaining_min_seconds").unwrap();
        left < 0.4 * LEASE.as_secs_f64()
    };
    let mut seen = page();
    while !runs_out(&seen) {
        assert!(guard.is_valid(), "it was lost before: {}", seen.0);
        sleep(LEASE / 100).await;
        seen = page();
    }
    seen.assert("lockdog_locks_in_jeopardy", 3.0);
    servers[0].thaw();
    servers[1].thaw();
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn the_problems_of_the_last_diagnosis_are_a_gauge() {
    let (server, exporter) = (Server::new(), Exporter::new());
    let client = client(&server, &exporter).await;
    let diagnosis = client.diagnose().await.unwrap();
    exporter.metrics.record_diagnosis(&diagnosis);
    let page = exporter.page();
    let problem = diagnosis.problems().next();
    for kind in ["eviction", "replica", "clock_difference"] {
        let count = diagnosis.problems().filter(|it| it.kind.as_str() == kind);
        let series = format!(r#"lockdog_findings{{kind="{kind}"}}"#);
        page.assert(&series, count.count() as f64);
    }
    if let Some(problem) = problem {
        let series = format!(r#"lockdog_findings{{kind="{}"}}"#, problem.kind.as_str());
        assert!(page.value(&series).unwrap() >= 1.0);
    }
}
