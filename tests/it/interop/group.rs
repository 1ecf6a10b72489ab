//! Values of a group on both sides.

use std::time::SystemTime;

use lockdog::{Client, Owner, Value};

use super::{NEVER, SAFETY, assert_woken, java_at, ours_at, without_timers};
use crate::support::redisson::{JavaLock, Redisson};
use crate::support::{RedisServer, eventually};

fn java(values: &[&str]) -> JavaLock {
    JavaLock::of_values(GROUP, values)
}

fn ours(client: &Client, values: &[&str]) -> lockdog::Lock {
    let values = values.iter().map(|value| Value::kryo5(value).unwrap());
    client.group_lock(GROUP, values)
}

/// GL2 with both sides: each side sees the other's values, waits for them, and is woken by the other's
/// release.
#[tokio::test]
async fn each_side_waits_for_the_values_of_the_other() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let redisson = java_at(&server).start().await;
    let client = without_timers(&server).build().await.unwrap();
    let t1 = redisson.thread("t1");
    t1.lock_for(java(&["Jack", "Mary"]), NEVER).await;
    let lock = ours(&client, &["Mary", "Tom"]);
    assert!(lock.try_lock().await.unwrap().is_none());
    assert!(lock.is_locked().await.unwrap());
    let tom = ours(&client, &["Tom"])
        .try_lock()
        .owner(&Owner::new())
        .await
        .unwrap();
    tom.expect("Tom is free").unlock().await.unwrap();
    let (waiting, owner) = (lock.clone(), Owner::new());
    let waiting = tokio::spawn(async move {
        let guard = waiting.lock().owner(&owner).await.unwrap();
        (guard, SystemTime::now())
    });
    eventually(SAFETY, "it listens", async || {
        !redis.channels().await.is_empty()
    })
    .await;
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    let unlocked = t1.start_unlock(java(&["Jack", "Mary"])).answer().await;
    unlocked.result.unwrap();
    let (guard, at) = waiting.await.unwrap();
    assert_woken("our waiter", unlocked.at - unlocked.took, at);

    assert!(!t1.try_lock(java(&["Mary", "Jack"])).await);
    assert!(t1.is_locked(java(&["Mary"])).await);
    let waiting = t1.start_lock(java(&["Mary"]));
    eventually(SAFETY, "Java listens", async || {
        !redis.channels().await.is_empty()
    })
    .await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let released = SystemTime::now();
    guard.unlock().await.unwrap();
    let locked = tokio::time::timeout(SAFETY, waiting.answer()).await;
    let locked = locked.expect("a message wakes Java");
    locked.result.unwrap();
    assert_woken("Java", released, locked.at);
    t1.unlock(java(&["Mary"])).await.unwrap();
    // Redisson deletes its latch after the answer to its unlock.
    redis.eventually_empty().await;
}

/// The number of values decides how the script reads the hash.
#[tokio::test]
async fn values_have_the_same_names_on_both_sides() {
    let server = RedisServer::start().await;
    let client = ours_at(&server).build().await.unwrap();
    let text = |length: usize| {
        let letters = (0..length).map(|at| char::from(b' ' + ((at * 7 + length) % 95) as u8));
        letters.collect::<String>()
    };
    // The default codec's encoding of other texts is unknown.
    let redisson = java_at(&server).start().await;
    let texts: Vec<String> = (2..=32).map(text).collect();
    let values = texts.iter().map(|text| Value::kryo5(text).unwrap());
    let values = values.collect::<Vec<_>>();
    are_the_same(&redisson, &client, "kryo", &texts, &values).await;

    let redisson = java_at(&server).string_codec();
    let redisson = redisson.start().await;
    let mut texts: Vec<String> = (1..=130).map(text).collect();
    texts.extend(["\u{e4}\u{20ac}", "\u{1f600}"].map(str::to_owned));
    let values = texts.iter().map(|text| Value::utf8(text));
    let values = values.collect::<Vec<_>>();
    are_the_same(&redisson, &client, "utf8", &texts, &values).await;
}

/// A Java thread takes every second value. Our queries show these as taken, and no others.
async fn are_the_same(
    redisson: &Redisson,
    client: &Client,
    group: &str,
    texts: &[String],
    values: &[Value],
) {
    let taken: Vec<&str> = texts.iter().step_by(2).map(String::as_str).collect();
    let thread = redisson.thread("t1");
    thread
        .lock_for(JavaLock::of_values(group, &taken), NEVER)
        .await;
    for (number, value) in values.iter().enumerate() {
        let lock = client.group_lock(group, [value.clone()]);
        let is_taken = lock.is_locked().await.unwrap();
        assert_eq!(is_taken, number % 2 == 0, "{group}: {:?}", texts[number]);
    }
    thread
        .unlock(JavaLock::of_values(group, &taken))
        .await
        .unwrap();
}

const GROUP: &str = "class_100";
