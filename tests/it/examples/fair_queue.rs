//! Two processes and a Redisson thread take turns.

use super::program::Program;
use crate::support::prelude::SOON;
use crate::support::redisson::{JavaLock, Redisson};
use crate::support::{RedisServer, eventually};

#[tokio::test]
async fn two_processes_print_in_turns() {
    // While one prints, the other one waits, except for the last document.
    let waited = [[1, 1, 1], [1, 1, 0]];
    let mut seen: Vec<[[usize; 3]; 2]> = Vec::new();
    // On a busy machine a process may enter the queue only when the other one has printed a page.
    while !seen.contains(&waited) {
        assert!(seen.len() < 5, "{seen:?}");
        seen.push(print_in_turns().await);
    }
}

/// How many waited behind each of the documents of Alice and of Bob.
async fn print_in_turns() -> [[usize; 3]; 2] {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let held = lockdog::Client::connect(server.url()).await.unwrap();
    let held = held.fair_lock("example:printer").lock().await.unwrap();
    // Both are in the queue before the first page.
    let mut alice = Program::start("fair_queue", &[&server.url(), "alice", "3"]);
    alice.says("alice waits with document 1").await;
    queued(&redis, 1).await;
    let mut bob = Program::start("fair_queue", &[&server.url(), "bob", "3"]);
    bob.says("bob waits with document 1").await;
    queued(&redis, 2).await;
    held.unlock().await.unwrap();
    let mut waited = [[0; 3]; 2];
    for (process, waited) in [alice, bob].into_iter().zip(&mut waited) {
        let (status, output) = process.end().await;
        assert!(status.success(), "{status}: {output:#?}");
        let printed = output
            .iter()
            .filter_map(|it| it.split_once(" printed document "));
        let printed: Vec<&str> = printed.map(|(_, rest)| rest).collect();
        assert_eq!(printed.len(), 3, "{output:#?}");
        for (number, rest) in printed.into_iter().enumerate() {
            let begins = format!("{}, ", number + 1);
            let rest = rest.strip_prefix(&begins).expect("they are in order");
            let behind = rest.strip_suffix(" waited").expect("it says how many");
            waited[number] = behind.parse().expect("a number");
        }
    }
    redis.eventually_empty().await;
    waited
}

/// One queue for two processes and a Redisson thread.
#[tokio::test]
async fn a_java_thread_takes_its_turn_between_two_processes() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let java = Redisson::start(&server.url()).await;
    let (carol, printer) = (
        java.thread("carol"),
        JavaLock::from_getter("getFairLock", "example:printer"),
    );
    let held = lockdog::Client::connect(server.url()).await.unwrap();
    let held = held.fair_lock("example:printer").lock().await.unwrap();
    let mut alice = Program::start("fair_queue", &[&server.url(), "alice", "2"]);
    queued(&redis, 1).await;
    let waiting = carol.start_lock(&printer);
    queued(&redis, 2).await;
    let mut bob = Program::start("fair_queue", &[&server.url(), "bob", "1"]);
    queued(&redis, 3).await;
    held.unlock().await.unwrap();
    alice.says("alice printed document 1, 2 waited").await;
    waiting.value().await;
    assert!(carol.is_held(&printer).await);
    // Alice is behind Bob.
    queued(&redis, 2).await;
    carol.unlock(&printer).await.unwrap();
    bob.says("bob printed document 1, 1 waited").await;
    alice.says("alice printed document 2, 0 waited").await;
    for process in [alice, bob] {
        let (status, output) = process.end().await;
        assert!(status.success(), "{status}: {output:#?}");
    }
    redis.eventually_empty().await;
}

async fn queued(redis: &crate::support::Redis, waiters: usize) {
    eventually(SOON, "they are in the queue", async || {
        redis.ask::<usize>(&["LLEN", QUEUE]).await == waiters
    })
    .await;
}

const QUEUE: &str = "redisson_lock_queue:{example:printer}";
