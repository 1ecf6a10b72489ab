//! Waiters that do not subscribe, and the number of subscribers that a client knows.

use std::sync::Arc;
use std::time::Instant;

use lockdog::Client;
use lockdog::config::{Backoff, Wake};

use super::{CHANNEL, LONG, Race, SOON, ms, transfers, warm_up};
use crate::support::redis::Redis;
use crate::support::{RedisServer, eventually};

/// A waiter that does not subscribe is invisible to the client, so hand-overs in a row are limited
/// to 250 ms.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_polling_client_gets_the_lock_from_a_busy_client() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let (crowd, race, crowding) = crowd(&server).await;
    let polls = Wake::Poll(Backoff::constant(ms(3)));
    let client = Client::builder().url(server.url()).wake(polls);
    let client = client.build().await.unwrap();
    let began = Instant::now();
    for turn in 1..=TURNS {
        let waited = client.lock("l").lock().into_future();
        let waited = tokio::time::timeout(SOON, waited).await;
        let guard = waited
            .unwrap_or_else(|_| panic!("starved after {turn} turns"))
            .unwrap();
        race.cell.bump_at_once().await;
        race.done.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        guard.unlock().await.unwrap();
    }
    println!("a poller got it every {:?}", began.elapsed() / TURNS);
    finish(crowd, crowding, &redis).await;
}

/// The same for a program that does not use channels.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_program_that_polls_often_gets_the_lock_from_a_busy_client() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let (crowd, race, crowding) = crowd(&server).await;
    let began = Instant::now();
    for _ in 0..TURNS {
        // Like `HSETNX`, if no owner has a field.
        let take =
            "return redis.call('exists', KEYS[1]) == 0 and redis.call('hset', KEYS[1], 's', 1)";
        // The lock is free for only some milliseconds.
        let taken = async {
            while redis
                .ask::<Option<i64>>(&["EVAL", take, "1", "l"])
                .await
                .is_none()
            {
                tokio::time::sleep(ms(2)).await;
            }
        };
        let taken = tokio::time::timeout(SOON, taken).await;
        taken.expect("the stranger gets it");
        race.cell.bump_at_once().await;
        race.done.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        redis.cmd(&["DEL", "l"]).await;
        redis.cmd(&["PUBLISH", CHANNEL, "0"]).await;
    }
    println!("a stranger got it every {:?}", began.elapsed() / TURNS);
    finish(crowd, crowding, &redis).await;
}

/// The client does not release it more often.
#[tokio::test]
async fn a_client_without_listeners_releases_the_lock_every_quarter_of_a_second() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let client = Client::connect(server.url()).await.unwrap();
    warm_up(&client, &redis).await;
    // A pattern subscription does not count as a subscriber.
    let messages = redis.messages("*").await;
    let race = Race::of(u64::MAX);
    let began = Instant::now();
    let crowding = {
        let (race, lock) = (race.clone(), client.lock("l"));
        tokio::spawn(async move { race.run(&lock, 4).await })
    };
    eventually(SOON, "it is released and handed on", async || {
        messages.seen().len() >= 4 && transfers(&redis).await > 4 * 16
    })
    .await;
    let (seen, lasted) = (messages.seen().len(), began.elapsed());
    let handed = transfers(&redis).await;
    println!("{seen} messages and {handed} hand-overs in {lasted:?}");
    assert!(
        seen as u128 <= lasted.as_millis() / 250 + 1,
        "{seen} in {lasted:?}"
    );
    finish(client, crowding, &redis).await;
}

/// The ACL denies PUBSUB, so the limit on hand-overs in a row always applies.
#[tokio::test]
async fn without_permission_for_pubsub_streaks_are_short_and_nothing_fails() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let user = "ACL SETUSER app on >pw ~* &* +@all -pubsub";
    redis.cmd(&user.split(' ').collect::<Vec<_>>()).await;
    let url = server.url().replace("redis://", "redis://app:pw@");
    let client = Client::connect(url).await.unwrap();
    warm_up(&client, &redis).await;
    let monitor = redis.monitor().await;
    let race = Race::of(400);
    race.run(&client.lock("l"), 4).await;
    race.assert_exclusive();
    let rows = rows(&monitor.seen());
    println!("{rows:?}");
    assert!(rows.iter().all(|row| *row <= 16), "{rows:?}");
    assert!(
        rows.iter().any(|row| *row > 1),
        "nothing was handed on: {rows:?}"
    );
    redis.assert_clean().await;
}

/// The client subtracts its own subscription from the number of listeners.
#[tokio::test]
async fn a_client_that_is_the_only_listener_hands_over_in_long_streaks() {
    let mut longest: Vec<usize> = Vec::new();
    // A very busy machine makes fewer hand-overs in the time of a row.
    while longest.iter().all(|row| *row <= 16) {
        assert!(longest.len() < 20, "{longest:?}");
        longest.push(longest_row_of_the_only_listener().await);
    }
}

async fn longest_row_of_the_only_listener() -> usize {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let (client, other) =
        tokio::join!(Client::connect(server.url()), Client::connect(server.url()));
    let (client, other) = (client.unwrap(), other.unwrap());
    warm_up(&client, &redis).await;
    let held = other.lock("l").lock().lease(LONG).await.unwrap();
    let race = Race::of(600);
    let crowding = {
        let (race, lock) = (race.clone(), client.lock("l"));
        tokio::spawn(async move { race.run(&lock, 4).await })
    };
    eventually(SOON, "its contender listens", async || {
        redis.channels().await == [CHANNEL]
    })
    .await;
    tokio::time::sleep(ms(50)).await;
    let monitor = redis.monitor().await;
    held.unlock().await.unwrap();
    other.shutdown().await;
    crowding.await.unwrap();
    race.assert_exclusive();
    let rows = rows(&monitor.seen());
    println!("{rows:?}");
    redis.assert_clean().await;
    rows.into_iter().max().expect("it begins with one")
}

/// The lengths of the rows of hand-overs between releases, in the output of MONITOR.
fn rows(seen: &[String]) -> Vec<usize> {
    let digest = |text| redis::Script::new(text).get_hash().to_owned();
    let transfer = digest(include_str!("../../../lua/lock/transfer.lua"));
    let unlock = digest(include_str!("../../../lua/lock/unlock.lua"));
    let mut rows = vec![0];
    for line in seen {
        if line.contains(&transfer) {
            *rows.last_mut().expect("it begins with one") += 1;
        } else if line.contains(&unlock) {
            rows.push(0);
        }
    }
    rows
}

/// Four owners of one client that contend until they are stopped.
async fn crowd(server: &RedisServer) -> (Client, Arc<Race>, tokio::task::JoinHandle<Vec<u64>>) {
    let crowd = Client::connect(server.url()).await.unwrap();
    let race = Race::of(u64::MAX);
    let crowding = {
        let (race, lock) = (race.clone(), crowd.lock("l"));
        tokio::spawn(async move { race.run(&lock, 4).await })
    };
    eventually(SOON, "they contend", async || race.done() > 50).await;
    (crowd, race, crowding)
}

/// Stops a crowd.
async fn finish(client: Client, crowd: tokio::task::JoinHandle<Vec<u64>>, redis: &Redis) {
    crowd.abort();
    assert!(crowd.await.unwrap_err().is_cancelled());
    client.shutdown().await;
    eventually(SOON, "the lock is free", async || !redis.exists("l").await).await;
    redis.assert_clean().await;
}

/// Each turn comes within [`SOON`]. If the client never released the lock, none would come.
const TURNS: u32 = 4;
