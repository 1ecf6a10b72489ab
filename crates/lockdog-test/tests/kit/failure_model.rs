//! The effects of faults that `docs/failure-model.md` describes, on a paused clock.

use std::time::Duration;

use lockdog::error::LostReason;
use lockdog::report::Verdict;
use lockdog::{Error, Unlocked};
use lockdog_test::{Data, Server};
use tokio::time::{Instant, sleep};

use crate::support::LONG;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(60 * 60);

/// How often clients sent a command.
fn sent(server: &Server, word: &str) -> usize {
    let is_meant = |command: &&Vec<String>| command[0].eq_ignore_ascii_case(word);
    server.commands().iter().filter(is_meant).count()
}

#[tokio::test(start_paused = true)]
async fn connections_that_are_cut_again_and_again_lose_no_lock() {
    let server = Server::new();
    let client = server.client().await;
    let guard = client.lock("orders").lock().await.unwrap();
    let until = Instant::now() + HOUR;
    while Instant::now() < until {
        sleep(7 * SECOND).await;
        server.cut();
        assert!(guard.is_valid());
    }
    // Each connection queries the server's identity, and each renewal needs a new connection.
    assert!(sent(&server, "info") >= 360);
    guard.unlock().await.unwrap();
    server.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_network_loses_no_lock() {
    let server = Server::new();
    let client = server.client().await;
    server.delay(SECOND);
    let began = Instant::now();
    let guard = client.lock("orders").lock().await.unwrap();
    assert!(began.elapsed() >= SECOND);
    sleep(HOUR).await;
    assert!(guard.is_valid());
    guard.unlock().await.unwrap();
    server.delay(Duration::ZERO);
    server.assert_clean().await;
}

/// Each answer comes after the command timeout of three seconds.
#[tokio::test(start_paused = true)]
async fn a_server_that_answers_after_the_command_timeout_loses_its_locks() {
    let server = Server::new();
    let client = server.client().await;
    let guard = client.lock("orders").lock().await.unwrap();
    server.delay(5 * SECOND);
    let began = Instant::now();
    let other = client.lock("other").lock().await;
    assert!(matches!(other, Err(Error::Timeout { .. })), "{other:?}");
    assert_eq!(guard.lost().await.reason(), LostReason::Deadline);
    assert!(began.elapsed() <= 30 * SECOND);
    server.delay(Duration::ZERO);
    drop(guard);
    sleep(30 * SECOND).await;
    server.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn scripts_whose_replies_are_lost_take_effect_once() {
    let server = Server::new();
    let client = server.client().await;
    let lock = client.lock("orders");
    for _ in 0..10 {
        server.lose_replies(1);
        let outer = lock.lock().await.unwrap();
        server.lose_replies(1);
        let inner = lock.lock().await.unwrap();
        assert_eq!(server.holder("orders").unwrap().count, 2);
        server.lose_replies(1);
        let left = inner.unlock().await.unwrap();
        assert!(
            matches!(left, Unlocked::StillHeld { count: 1, .. }),
            "{left:?}"
        );
        server.lose_replies(1);
        assert_eq!(outer.unlock().await.unwrap(), Unlocked::Released);
        assert_eq!(server.holder("orders"), None);
    }
    let scripts = sent(&server, "evalsha") + sent(&server, "eval");
    assert!(
        scripts >= 80,
        "{scripts} of 40 calls that lost a reply each"
    );
    server.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_waiter_without_messages_checks_within_the_poll_cap() {
    let server = Server::new();
    let client = server.client().await;
    server.lose_messages(true);
    let mut longest = Duration::ZERO;
    for _ in 0..5 {
        let stolen = server.steal("orders");
        let lock = client.lock("orders");
        let waiter = tokio::spawn(async move {
            let guard = lock.lock().await.unwrap();
            (Instant::now(), guard)
        });
        sleep(10 * SECOND).await;
        let freed = Instant::now();
        drop(stolen);
        let (woken, guard) = tokio::time::timeout(LONG, waiter).await.unwrap().unwrap();
        longest = longest.max(woken - freed);
        guard.unlock().await.unwrap();
    }
    assert!(longest <= SECOND, "{longest:?}");
    assert!(longest > Duration::ZERO, "the messages arrived");
    server.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn refused_renewals_put_a_lock_in_jeopardy_until_its_deadline() {
    let server = Server::new();
    let client = server.client().await;
    let guard = client.lock("orders").lock().await.unwrap();
    let no_replicas = "NOREPLICAS Not enough good replicas to write.";
    server.refuse("evalsha", no_replicas, u32::MAX);
    sleep(15 * SECOND).await;
    assert!(guard.is_valid());
    assert_eq!(guard.verdict(), Verdict::Jeopardy);
    server.refuse("evalsha", no_replicas, 0);
    sleep(10 * SECOND).await;
    assert_eq!(guard.verdict(), Verdict::Held);
    server.refuse("evalsha", no_replicas, u32::MAX);
    let began = Instant::now();
    assert_eq!(guard.lost().await.reason(), LostReason::Deadline);
    assert!(began.elapsed() <= 30 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn restarts_that_keep_the_data_lose_no_lock() {
    let server = Server::new();
    let client = server.client().await;
    let guard = client.lock("orders").lock().await.unwrap();
    for _ in 0..100 {
        sleep(25 * SECOND).await;
        server.restart(Data::Kept);
        assert!(guard.is_valid());
    }
    guard.unlock().await.unwrap();
    // A restarted server has no scripts, so the client sends their full text.
    assert!(sent(&server, "eval") >= 100);
    server.assert_clean().await;
}
