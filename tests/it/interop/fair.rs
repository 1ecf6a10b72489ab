//! One queue of Java threads and lockdog owners.

use std::collections::VecDeque;

use lockdog::Owner;

use super::{NEVER, SAFETY, java_at, ours_at};
use crate::kinds::{self, Kind};
use crate::support::redis::Redis;
use crate::support::{RedisServer, eventually};

/// FA4 with both sides.
#[tokio::test]
async fn two_hundred_turns_of_java_and_lockdog_are_granted_in_the_order_of_the_queue() {
    takes_turns_in_order(&kinds::FAIR).await;
}

/// FA4 with both sides.
#[tokio::test]
async fn turns_of_a_non_reentrant_fair_lock_are_in_the_order_of_arrival() {
    takes_turns_in_order(&kinds::NON_REENTRANT_FAIR).await;
}

/// Twenty waiters, half of which are Java threads. Each enters the queue again after its turn. The commands
/// that the server executed show who entered when, and who was granted the lock when.
async fn takes_turns_in_order(kind: &'static Kind) {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let java = java_at(&server).start().await;
    let clients = [
        ours_at(&server).build().await.unwrap(),
        ours_at(&server).build().await.unwrap(),
    ];
    let monitor = redis.monitor().await;
    let held = kind.lock(&clients[0], NAME);
    let held = held.lock().owner(&Owner::new()).lease(NEVER).await.unwrap();
    let mut waiters = Vec::new();
    for number in 0..WAITERS {
        waiters.push(if number % 2 == 0 {
            let (thread, lock) = (java.thread(&format!("t{number}")), kind.java_lock(NAME));
            tokio::spawn(async move {
                for _ in 0..TURNS {
                    thread.lock_for(&lock, NEVER).await;
                    thread.unlock(&lock).await.unwrap();
                }
            })
        } else {
            let lock = kind.lock(&clients[number / 2 % 2], NAME);
            tokio::spawn(async move {
                for _ in 0..TURNS {
                    let guard = lock.lock().owner(&Owner::new()).await.unwrap();
                    guard.unlock().await.unwrap();
                }
            })
        });
        queued(&redis, number + 1).await;
    }
    held.unlock().await.unwrap();
    for waiter in waiters {
        let ended = tokio::time::timeout(SAFETY * 2, waiter).await;
        ended.expect("each waiter has its turns").unwrap();
    }
    let grants = WAITERS * TURNS + 1;
    eventually(SAFETY, "the recorder has seen all grants", async || {
        let steps = monitor.seen().into_iter().filter_map(|line| step(&line));
        steps
            .filter(|step| matches!(step, Step::Granted(_)))
            .count()
            == grants
    })
    .await;

    let (mut queue, mut in_order) = (VecDeque::new(), 0);
    for step in monitor.seen().iter().filter_map(|line| step(line)) {
        match step {
            Step::Entered(field) => queue.push_back(field),
            Step::Granted(field) => match queue.pop_front() {
                Some(first) => {
                    assert_eq!(field, first, "after {in_order} turns in order");
                    in_order += 1;
                }
                // The queue was empty.
                None => continue,
            },
            Step::CameBack(field) => panic!("{field} was dropped, and came back"),
        }
    }
    println!(
        "{}: {in_order} of {grants} grants came from the queue, in order",
        kind.object
    );
    assert!(queue.is_empty() && in_order >= 180, "{in_order}, {queue:?}");
    redis.eventually_empty().await;
}

/// The change that a script made to the queue or the lock, and the owner's field.
enum Step {
    Entered(String),
    CameBack(String),
    Granted(String),
}

fn step(line: &str) -> Option<Step> {
    let (_, command) = line.split_once(" lua] \"")?;
    let words: Vec<&str> = command.trim_end_matches('"').split("\" \"").collect();
    match words[..] {
        ["rpush", QUEUE, field] => Some(Step::Entered(field.to_owned())),
        ["lpush", QUEUE, field] => Some(Step::CameBack(field.to_owned())),
        ["hset" | "hincrby", NAME, field, "1"] => Some(Step::Granted(field.to_owned())),
        _ => None,
    }
}

async fn queued(redis: &Redis, waiters: usize) {
    eventually(SAFETY, "they are in the queue", async || {
        redis.ask::<usize>(&["LLEN", QUEUE]).await == waiters
    })
    .await;
}

const NAME: &str = "orders";
const QUEUE: &str = "redisson_lock_queue:{orders}";
const WAITERS: usize = 20;
const TURNS: usize = 10;
