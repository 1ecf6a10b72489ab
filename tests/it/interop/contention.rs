//! Four clients of each side use one object of each exclusive kind, and change a number without other
//! protection. A lost update shows two holders. `LOCKDOG_CONTENTION_SECONDS` sets the duration of each
//! test.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::objects::{Object, WRITE};
use super::{java_at, ours_at, seconds_of_contention};
use crate::kinds;
use crate::support::RedisServer;
use crate::support::redis::Redis;

/// The kind that older versions of Redisson have, too.
#[tokio::test]
async fn four_clients_of_each_side_lose_no_update() {
    lose_no_update(|_| Object::Lock(&kinds::PLAIN)).await;
}

mod of_every_kind {
    use super::*;

    /// A test for each kind. The argument is the number of the client.
    macro_rules! kinds {
        ($($name:ident: $object:expr;)*) => {
            $(
                #[tokio::test]
                async fn $name() {
                    lose_no_update($object).await;
                }
            )*
        };
    }

    kinds! {
        spin_locks_lose_no_update: |_| Object::Lock(&kinds::SPIN);
        non_reentrant_locks_lose_no_update: |_| Object::Lock(&kinds::NON_REENTRANT);
        fenced_locks_lose_no_update: |_| Object::Lock(&kinds::FENCED);
        fair_locks_lose_no_update: |_| Object::Lock(&kinds::FAIR);
        non_reentrant_fair_locks_lose_no_update: |_| Object::Lock(&kinds::NON_REENTRANT_FAIR);
        // GL1 and GL2: the sets differ, and have one value in common.
        locks_of_values_of_a_group_lose_no_update:
            |n| Object::Values(["Mary", ["Jack", "Tom", "Ann", "Bob"][n]]);
        // RW2: readers check the number.
        read_write_locks_lose_no_update: |_| WRITE;
        // LE2: the Java side has a fair lock.
        elections_lose_no_update: |_| Object::Election;
        // PE2, with one permit.
        permits_with_leases_lose_no_update: |_| Object::Permits;
        // SE2, with one permit.
        permits_without_leases_lose_no_update: |_| Object::Semaphore;
    }
}

async fn lose_no_update(object: fn(usize) -> Object) {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let starting = (0..CLIENTS).map(|_| async {
        let java = java_at(&server).start().await;
        (java, ours_at(&server).build().await.unwrap())
    });
    let clients = futures_util::future::join_all(starting).await;
    object(0).make(&clients[0].1, NAME).await;
    let lasts = seconds_of_contention();
    let until = Instant::now() + lasts;
    let (mut writers, mut readers) = (JoinSet::new(), JoinSet::new());
    for (n, (java, client)) in clients.iter().enumerate() {
        let object = object(n);
        let (cell, thread) = (redis.clone(), java.thread("t1"));
        writers.spawn(async move {
            let mut turns = 0;
            // Each client has a turn, however slow the machine is.
            while turns == 0 || Instant::now() < until {
                let (held, _) = object.java_wait(&thread, NAME, None).done().await;
                add_one(&cell, "Redisson").await;
                held.give_back().await;
                turns += 1;
            }
            turns
        });
        let (cell, client) = (redis.clone(), client.clone());
        writers.spawn(async move {
            let mut turns = 0;
            while turns == 0 || Instant::now() < until {
                let held = object.wait(&client, NAME, None).await;
                add_one(&cell, "lockdog").await;
                match turns % 4 {
                    0 => drop(held),
                    _ => held.give_back().await,
                }
                turns += 1;
            }
            turns
        });
    }
    for (java, client) in &clients[..CLIENTS / 2] {
        if object(0).label() != WRITE.label() {
            break;
        }
        let (cell, thread) = (redis.clone(), java.thread("reader"));
        readers.spawn(async move {
            while Instant::now() < until {
                let (held, _) = Object::Read.java_wait(&thread, NAME, None).done().await;
                stays(&cell).await;
                held.give_back().await;
            }
        });
        let (cell, client) = (redis.clone(), client.clone());
        readers.spawn(async move {
            while Instant::now() < until {
                let held = Object::Read.wait(&client, NAME, None).await;
                stays(&cell).await;
                held.give_back().await;
            }
        });
    }
    let mut turns = 0;
    while let Some(of_one) = writers.join_next().await {
        turns += of_one.expect("it has its turns");
    }
    while let Some(reader) = readers.join_next().await {
        reader.expect("no number changed");
    }
    let [counted, lockdog, redisson, changes]: [u64; 4] = redis
        .ask(&["MGET", CELL, "lockdog", "Redisson", "changes"])
        .await;
    let label = object(0).label();
    println!(
        "{label}: {turns} turns in {lasts:?}, {lockdog} of lockdog and {redisson} of Redisson, \
         {changes} changes of the side"
    );
    assert_eq!((counted, lockdog + redisson), (turns, turns), "{label}");
    assert!(changes > 0, "{label}: one side after the other");
}

/// With two holders each reads before the other has written.
async fn add_one(redis: &Redis, side: &str) {
    let [all, own, changes]: [Option<u64>; 3] = redis.ask(&["MGET", CELL, side, "changes"]).await;
    let last: Option<String> = redis.ask(&["GET", "last"]).await;
    tokio::time::sleep(PAUSE).await;
    let is_change = last.is_some_and(|last| last != side);
    let next = |value: Option<u64>| (value.unwrap_or(0) + 1).to_string();
    let changes = changes.unwrap_or(0) + u64::from(is_change);
    redis
        .cmd(&[
            "MSET",
            CELL,
            &next(all),
            side,
            &next(own),
            "changes",
            &changes.to_string(),
            "last",
            side,
        ])
        .await;
}

async fn stays(redis: &Redis) {
    let before: Option<u64> = redis.ask(&["GET", CELL]).await;
    tokio::time::sleep(PAUSE).await;
    let after: Option<u64> = redis.ask(&["GET", CELL]).await;
    assert_eq!(before, after, "somebody wrote while another one read");
}

const CLIENTS: usize = 4;
const NAME: &str = "orders";
const CELL: &str = "cell";
const PAUSE: Duration = Duration::from_millis(3);
