//! No name of a lock is a label, and groups are few.

use lockdog::MultiLock;
use lockdog_metrics::group;
use lockdog_test::Server;

use crate::support::{Exporter, LEASE};

#[tokio::test(start_paused = true)]
async fn no_name_of_a_lock_is_ever_a_label() {
    let (server, exporter) = (Server::new(), Exporter::new());
    let builder = server.builder().watchdog_lease(LEASE);
    let client = builder
        .observer(exporter.metrics.clone())
        .build()
        .await
        .unwrap();
    client
        .lock("first")
        .lock()
        .await
        .unwrap()
        .unlock()
        .await
        .unwrap();
    client
        .lock("second")
        .lock()
        .await
        .unwrap()
        .unlock()
        .await
        .unwrap();
    let before = exporter.page().series();
    for number in 0..10_000 {
        let lock = client.lock(format!("secret-{number}"));
        lock.lock().await.unwrap().unlock().await.unwrap();
    }
    let rw = client.read_write_lock("secret-rw");
    drop(rw.read().lock().await.unwrap());
    let both = MultiLock::new([client.lock("secret-a"), client.lock("secret-b")]);
    let guard = both.lock().await.unwrap();
    server.lose("secret-a");
    guard.lost().await;
    let page = exporter.page();
    assert!(!page.0.contains("secret"), "{}", page.0);
    assert!(!page.0.contains("group="), "{}", page.0);
    // Those of renewals and settlements were not there before; no other ones came.
    let new = page.series() - before;
    assert!(new < 100, "{new} more series");
}

#[tokio::test(start_paused = true)]
async fn more_groups_than_there_is_room_for_share_one_value() {
    let (server, exporter) = (Server::new(), Exporter::new());
    let metrics = exporter.metrics.max_groups(3);
    let builder = server.builder().observer(metrics);
    let client = builder
        .lock_group(group::before(':'))
        .build()
        .await
        .unwrap();
    for number in 0..40 {
        let lock = client.lock(format!("group{number}:{number}"));
        lock.lock().await.unwrap().unlock().await.unwrap();
    }
    client
        .lock("plain")
        .lock()
        .await
        .unwrap()
        .unlock()
        .await
        .unwrap();
    let page = exporter.page();
    let acquired = |labels: &str| format!("lockdog_acquires_total{{{labels}}}");
    page.assert(&acquired(r#"group="group2",outcome="acquired""#), 1.0);
    page.assert(&acquired(r#"group="other",outcome="acquired""#), 37.0);
    page.assert(&acquired(r#"outcome="acquired""#), 1.0);
    assert!(!page.0.contains("group3"), "{}", page.0);
}

/// With the default of 20 groups, each with each outcome.
#[tokio::test(start_paused = true)]
async fn the_number_of_series_has_a_bound() {
    let (server, exporter) = (Server::new(), Exporter::new());
    let builder = server.builder().observer(exporter.metrics.clone());
    let client = builder
        .lock_group(group::before(':'))
        .build()
        .await
        .unwrap();
    for number in 0..30 {
        let lock = client.lock(format!("group{number}:l"));
        let guard = lock.lock().await.unwrap();
        let other = lockdog::Owner::new();
        assert!(lock.try_lock().owner(&other).await.unwrap().is_none());
        guard.unlock().await.unwrap();
    }
    server.refuse("evalsha", "ERR refused", u32::MAX);
    for number in 0..30 {
        let lock = client.lock(format!("group{number}:l"));
        lock.lock().await.unwrap_err();
    }
    exporter.metrics.record([client.stats()]);
    let series = exporter.page().series();
    assert!((1_000..2_500).contains(&series), "{series}");
}
