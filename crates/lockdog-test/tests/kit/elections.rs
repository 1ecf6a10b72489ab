//! Elections on the test server, whose clock is tokio's.

use std::time::Duration;

use lockdog::Owner;
use lockdog_test::Server;
use tokio::time::{Instant, sleep};

/// LE4: the server takes the lock away, and the next one leads within a poll cap of the end of the lease.
#[tokio::test(start_paused = true)]
async fn a_leader_whose_lease_ends_is_followed_by_the_next() {
    let server = Server::new();
    let (client, other) = (server.client().await, server.client().await);
    let lease = Duration::from_secs(60);
    let lead = client
        .election("jobs")
        .campaign("a")
        .lease(lease)
        .await
        .unwrap();
    let mut leaders = other.election("jobs").observe();
    let first = leaders.next().await.unwrap().expect("it leads");
    assert_eq!(first.value.as_deref(), Some("a"));
    let began = Instant::now();
    let election = other.election("jobs");
    let next = tokio::spawn(async move { election.campaign("b").await.unwrap() });
    let next = next.await.unwrap();
    assert!(
        began.elapsed() < lease + Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    assert!(!lead.is_valid());
    let passed = u64::try_from((lease * 9 / 10).as_micros()).unwrap();
    assert!(
        next.term() >= lead.term() + passed,
        "terms follow the clock"
    );
    let seen = leaders.next().await.unwrap().expect("it leads");
    assert_eq!(seen.term, Some(next.term()));
    next.resign().await.unwrap();
    assert!(leaders.next().await.unwrap().is_none());
}

/// An hour of leading, and an observer that no message reaches.
#[tokio::test(start_paused = true)]
async fn a_leader_is_renewed_for_hours_and_a_lost_one_is_told() {
    let server = Server::new();
    let (client, other) = (server.client().await, server.client().await);
    let lead = client.election("jobs").campaign("a").owner(&Owner::new());
    let lead = lead.await.unwrap();
    sleep(Duration::from_secs(3600)).await;
    assert!(lead.is_valid());
    let mut leaders = other.election("jobs").observe();
    assert!(leaders.next().await.unwrap().is_some());
    server.lose_messages(true);
    server.lose("jobs");
    lead.lost().await;
    assert!(leaders.next().await.unwrap().is_none());
    let again = client.election("jobs").campaign("b").await.unwrap();
    assert!(again.term() > lead.term());
    again.resign().await.unwrap();
}
