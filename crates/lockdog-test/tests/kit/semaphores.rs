//! Permits without leases on the test server, whose clock is tokio's.

use std::time::Duration;

use lockdog_test::Server;
use tokio::time::{sleep, timeout};

const LONG: Duration = Duration::from_secs(3 * 3600);

#[tokio::test(start_paused = true)]
async fn a_permit_without_a_lease_is_kept_for_hours() {
    let server = Server::new();
    let (client, other) = (server.client().await, server.client().await);
    let seats = client.semaphore("seats");
    assert!(seats.try_set_permits(3).await.unwrap());
    let two = seats.acquire_many(2).await.unwrap();
    let theirs = other.semaphore("seats");
    let waiting = tokio::spawn(theirs.acquire_many(2).into_future());
    sleep(LONG).await;
    assert!(!waiting.is_finished());
    assert_eq!(theirs.holders().await.unwrap().len(), 1);
    two.release().await.unwrap();
    let got = timeout(LONG, waiting).await.expect("a message wakes it");
    got.unwrap().unwrap().release().await.unwrap();
    assert_eq!(seats.available().await.unwrap(), 3);
    // The marks of unknown outcomes expire. The ledger lasts as long as the number.
    sleep(LONG).await;
    let mut keys = server.keys();
    keys.retain(|key| key.starts_with("lockdog_"));
    assert_eq!(keys, ["lockdog_ledger:{seats}"]);
}

#[tokio::test(start_paused = true)]
async fn a_semaphore_ends_with_its_time_to_live() {
    let server = Server::new();
    let client = server.client().await;
    let seats = client.semaphore("seats");
    let ttl = Duration::from_secs(600);
    assert!(seats.try_set_permits_for(2, ttl).await.unwrap());
    let one = seats.acquire().await.unwrap();
    sleep(ttl + Duration::from_secs(1)).await;
    assert!(seats.try_acquire().await.unwrap().is_none());
    // The number ended, and the permit with it.
    let lost = one.release().await.unwrap_err();
    assert!(lost.to_string().contains("lost"), "{lost}");
    assert_eq!(seats.available().await.unwrap(), 0);
    assert!(seats.try_set_permits(1).await.unwrap());
    seats.acquire().await.unwrap().release().await.unwrap();
}
