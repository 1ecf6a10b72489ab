//! What a client finds on the server: the locks and the connections of all clients, and nothing wrong.

use std::collections::BTreeMap;
use std::time::Duration;

use lockdog::Value;
use lockdog::config::Protocol;
use lockdog_test::{Data, Server};
use tokio::time::{Instant, sleep};

use crate::support::logs::Warnings;

#[tokio::test(start_paused = true)]
async fn a_client_finds_the_locks_of_all_clients() {
    let server = Server::new();
    let (holder, client) = (server.client().await, server.client().await);
    let plain = holder.lock("plain").lock().await.unwrap();
    let fair = holder.fair_lock("fair").lock().await.unwrap();
    let fenced = holder.fenced_lock("fenced").lock().await.unwrap();
    let rw = holder.read_write_lock("rw");
    let read = rw.read().lock().await.unwrap();
    let group = holder.group_lock("group", [Value::utf8("a")]);
    let group = group.lock().await.unwrap();
    let seats = holder.permit_semaphore("seats");
    assert!(seats.try_set_permits(3).await.unwrap());
    let seat = seats.acquire().await.unwrap();

    let mut locks = client.locks("*").with_semaphores();
    let mut found = BTreeMap::new();
    while let Some(lock) = locks.next().await.unwrap() {
        let mut holders = lock.holders.iter();
        assert!(
            holders.all(|it| it.client_id() == Some(holder.id())),
            "{lock:?}"
        );
        found.insert(lock.key.clone(), lock.kind.as_str().to_owned());
    }
    let found: Vec<(&str, &str)> = found
        .iter()
        .map(|(key, kind)| (key.as_str(), kind.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            // A fair lock without waiters looks like a reentrant one.
            ("fair", "reentrant"),
            ("fenced", "fenced"),
            ("group", "group"),
            ("plain", "reentrant"),
            ("rw", "read_write"),
            ("seats", "permit_semaphore"),
        ]
    );
    let seen = client.inspect("plain").await.unwrap();
    assert_eq!(seen.holders[0].client_id(), Some(holder.id()));
    let free = client.inspect("free").await.unwrap();
    assert_eq!((free.is_held(), free.listeners), (false, Some(0)));
    drop((plain, fair, fenced, read, group, seat));
}

/// There is a page for locks, one for semaphores and one for counters.
#[tokio::test(start_paused = true)]
async fn the_limit_of_a_scan_counts_each_key_once() {
    let server = Server::new();
    let client = server.client().await;
    let guard = client.lock("plain").lock().await.unwrap();
    let mut locks = client.locks("p*").with_semaphores().with_counters();
    locks = locks.max_keys(1);
    let mut found = 0;
    while locks.next().await.unwrap().is_some() {
        found += 1;
    }
    assert!(locks.is_done());
    assert_eq!((found, locks.scanned()), (1, 500));
    // Here the limit ends the first pass.
    let mut locks = client.locks("p*").max_keys(0);
    assert!(locks.next().await.unwrap().is_none());
    assert!(!locks.is_done());
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn a_client_finds_the_connections_of_all_clients() {
    let server = Server::new();
    let (one, other) = (server.client().await, server.client().await);
    let connections = one.connections().await.unwrap();
    for client in [&one, &other] {
        let name = format!("lockdog/{}", client.id());
        let named = connections.iter().filter(|it| it.name == name);
        assert_eq!(named.count(), 1, "{connections:?}");
    }
}

/// The documented permissions have HGETALL and no HSCAN. Its answer has another form with RESP3.
#[tokio::test(start_paused = true)]
async fn holders_are_found_without_hscan_in_both_protocols() {
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let server = Server::new();
        let client = server.builder().protocol(protocol).build().await.unwrap();
        server.refuse("hscan", "NOPERM no permissions for hscan", u32::MAX);
        let plain = client.lock("plain").lock().await.unwrap();
        let rw = client.read_write_lock("rw");
        let read = rw.read().lock().await.unwrap();
        for (name, kind) in [("plain", "reentrant"), ("rw", "read_write")] {
            let seen = client.inspect(name).await.unwrap();
            assert_eq!(seen.kind.as_str(), kind, "{protocol:?}: {seen:?}");
            assert_eq!(seen.holders.len(), 1, "{protocol:?}: {seen:?}");
        }
        drop((plain, read));
    }
}

/// RESP3 has other forms for scores and for messages.
#[tokio::test(start_paused = true)]
async fn waiters_are_found_and_woken_in_both_protocols() {
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let server = Server::new();
        let client = async || server.builder().protocol(protocol).build().await.unwrap();
        let (holds, waits) = (client().await, client().await);
        let lock = holds.fair_lock("door");
        let guard = lock.lock().await.unwrap();
        let waiter = tokio::spawn(waits.fair_lock("door").lock().into_future());
        sleep(Duration::from_secs(5)).await;
        let found = lock.waiters().await.unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].present && found[0].client_id() == Some(waits.id()));
        let released = Instant::now();
        guard.unlock().await.unwrap();
        waiter.await.unwrap().unwrap().unlock().await.unwrap();
        let took = released.elapsed();
        assert!(took < Duration::from_millis(50), "{protocol:?}: {took:?}");
        server.assert_clean().await;
    }
}

/// Its clock is hours ahead of this machine's by then.
#[tokio::test(start_paused = true)]
async fn a_client_finds_nothing_wrong_with_the_server_after_hours() {
    let server = Server::new();
    let (warnings, _recording) = Warnings::of_this_thread();
    let early = server.client().await;
    sleep(Duration::from_secs(2 * 60 * 60)).await;
    let late = server.client().await;
    server.restart(Data::Kept);
    for client in [early, late] {
        let guard = client.lock("orders").lock().await.unwrap();
        guard.unlock().await.unwrap();
        let diagnosis = client.diagnose().await.unwrap();
        assert!(diagnosis.findings().is_empty(), "{diagnosis}");
    }
    assert_eq!(warnings.with("lockdog::diagnosis"), [""; 0]);
}
