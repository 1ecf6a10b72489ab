//! The cost of a lock without contention.

use std::collections::BTreeMap;

use lockdog::Unlocked;

use super::{Fixture, LONG, SOON};
use crate::support::eventually;

/// The scripts also make fewer calls than the bare protocol.
#[tokio::test]
async fn an_uncontended_acquire_and_its_final_unlock_are_one_command_each() {
    let test = Fixture::start().await;
    for lease in [None, Some(LONG)] {
        test.warm_up(&test.client).await;
        let lock = test.client.lock("l");
        let request = lock.lock();
        let guard = match lease {
            Some(lease) => request.lease(lease).await,
            None => request.await,
        };
        let guard = guard.unwrap();
        let acquire = spent(&test).await;
        println!("acquire, lease {lease:?}: {acquire:?}");
        let script = [
            ("evalsha", 1),
            ("exists", 1),
            ("hincrby", 1),
            ("pexpire", 1),
        ];
        assert_eq!(acquire, counts(&script));
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        let unlock = spent(&test).await;
        println!("final unlock: {unlock:?}");
        assert_eq!(
            unlock,
            counts(&[("evalsha", 1), ("exists", 1), ("hdel", 1), ("publish", 1)])
        );
    }
    assert_one_connection(&test).await;
}

#[tokio::test]
async fn a_try_lock_a_reentry_and_an_inner_unlock_are_one_command_each() {
    let test = Fixture::start().await;
    test.warm_up(&test.client).await;
    let lock = test.client.lock("l");
    let guard = lock.try_lock().await.unwrap().expect("it is free");
    let acquire = [
        ("evalsha", 1),
        ("exists", 1),
        ("hincrby", 1),
        ("pexpire", 1),
    ];
    assert_eq!(spent(&test).await, counts(&acquire));
    let inner = lock.lock().await.unwrap();
    let again = spent(&test).await;
    println!("re-entry: {again:?}");
    // Within the same millisecond the TTL is exactly the lease.
    let mut reentry = vec![("evalsha", 1), ("hget", 1), ("hincrby", 1), ("pttl", 1)];
    if again.contains_key("pexpire") {
        reentry.push(("pexpire", 1));
    }
    assert_eq!(again, counts(&reentry));
    inner.unlock().await.unwrap();
    let unlock = spent(&test).await;
    println!("inner unlock: {unlock:?}");
    assert_eq!(
        unlock,
        counts(&[("evalsha", 1), ("hget", 1), ("hincrby", 1)])
    );
    drop(guard);
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn a_request_that_is_not_awaited_sends_nothing() {
    let test = Fixture::start().await;
    test.warm_up(&test.client).await;
    let lock = test.client.lock("l");
    drop(lock.lock().lease(LONG));
    drop(lock.try_lock().wait(LONG));
    drop(lock.unlock());
    drop(lock.force_unlock());
    drop(lock.lock().into_future());
    assert_eq!(spent(&test).await, counts(&[]));
}

/// The commands that the server ran since the last call, without those of this test.
async fn spent(test: &Fixture) -> BTreeMap<String, u64> {
    let mut stats = test.redis.commandstats().await;
    stats.retain(|command, _| !command.starts_with("config") && command != "info");
    test.redis.reset_stats().await;
    stats
}

fn counts(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
    pairs
        .iter()
        .map(|(name, count)| ((*name).to_owned(), *count))
        .collect()
}

/// Neither the watchdog nor a subscription has its own connection.
async fn assert_one_connection(test: &Fixture) {
    // The server may not have detected yet that the connection of the first check was closed.
    let what = "there are two connections, the client's and this test's";
    eventually(SOON, what, async || test.redis.clients().await.len() == 2).await;
    assert!(test.redis.channels().await.is_empty());
}
