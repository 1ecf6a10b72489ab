//! Elections on the test server, whose clock is tokio's.

use std::time::Duration;

use lockdog::Owner;
use lockdog_test::Server;
use tokio::time::{Instant, sleep};

/// LE4: the lease ends, and the next candidate leads within a poll cap of that end.
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
    let first = leaders.next().await.unwrap().expect("it is the leader");
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
    let seen = leaders.next().await.unwrap().expect("it is the leader");
    assert_eq!(seen.term, Some(next.term()));
    next.resign().await.unwrap();
    assert!(leaders.next().await.unwrap().is_none());
}

/// LE3: after a hand-over the key still has the value of the resigned leader, until the next leader
/// publishes one.
#[tokio::test(start_paused = true)]
async fn a_successor_that_ends_before_it_published_a_value_leaves_none() {
    let server = Server::new();
    let (client, other) = (server.client().await, server.client().await);
    let election = client.election("jobs");
    let lead = election.campaign("a").await.unwrap();
    let mut leaders = other.election("jobs").observe();
    let first = leaders.next().await.unwrap().expect("it is the leader");
    assert_eq!(first.value.as_deref(), Some("a"));
    let mut successors = Vec::new();
    for value in ["b", "c"] {
        let campaign = election.campaign(value).owner(&Owner::new());
        let mut campaign = campaign.into_future();
        // The campaign enters the queue and is not polled any more.
        let a_while = Duration::from_millis(50);
        assert!(tokio::time::timeout(a_while, &mut campaign).await.is_err());
        successors.push(campaign);
    }
    let field = |server: &Server| server.holder("jobs").map(|holder| holder.field);
    let resigned = field(&server);
    lead.resign().await.unwrap();
    let next = field(&server);
    assert!(next.is_some() && next != resigned, "it was handed over");
    let seen = other.election("jobs").leader().await.unwrap();
    let seen = seen.expect("the next one is the leader");
    assert_eq!((seen.term, seen.value), (None, None));
    drop(successors);
    server.assert_clean().await;
    // By a message, before the poll cap.
    let began = Instant::now();
    while leaders.next().await.unwrap().is_some() {}
    assert!(
        began.elapsed() < Duration::from_millis(500),
        "{:?}",
        began.elapsed()
    );
}

/// W15, LE4: the leader does not resign, and the first of ten candidates is not polled. The second one leads within
/// the lease, the absence and a poll cap.
#[tokio::test(start_paused = true)]
async fn the_next_of_ten_candidates_leads_when_the_leader_and_the_first_one_are_gone() {
    let server = Server::new();
    let (dead, other) = (server.client().await, server.client().await);
    let lead = dead.election("jobs").campaign("dead").lease(LEASE);
    let lead = lead.await.unwrap();
    let mut first = dead
        .election("jobs")
        .campaign("first")
        .owner(&Owner::new())
        .into_future();
    // The campaign enters the queue and is not polled any more.
    let is_pending = tokio::time::timeout(Duration::from_millis(50), &mut first).await;
    assert!(is_pending.is_err());
    let mut others = Vec::new();
    for number in 0..9 {
        let campaign = other.election("jobs").campaign(number.to_string());
        let campaign = campaign.owner(&Owner::new());
        others.push(tokio::spawn(campaign.into_future()));
        sleep(Duration::from_millis(10)).await;
    }
    let began = Instant::now();
    let mut last = lead.term();
    for (number, next) in others.into_iter().enumerate() {
        let next = next.await.unwrap().unwrap();
        assert!(next.term() > last);
        last = next.term();
        if number == 0 {
            let limit = LEASE + ABSENCE + 2 * POLL_CAP;
            assert!(began.elapsed() <= limit, "{:?}", began.elapsed());
        }
        next.resign().await.unwrap();
    }
}

/// The defaults of a client.
const LEASE: Duration = Duration::from_secs(30);
const ABSENCE: Duration = Duration::from_secs(10);
const POLL_CAP: Duration = Duration::from_secs(1);

/// A leader for an hour, and an observer that receives no message.
#[tokio::test(start_paused = true)]
async fn a_leader_is_renewed_for_hours_and_a_lost_one_is_notified() {
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
