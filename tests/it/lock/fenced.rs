//! The tokens of the fenced lock. FE1 to FE3 are the invariants of `docs/design.md`.

use lockdog::config::Reentry;
use lockdog::{Error, Guard, MultiLock, Owner, RedLock, Unlocked};

use super::{Fixture, LONG, SOON, ms, waiter};
use crate::kinds::FENCED;
use crate::support::{Redis, eventually, until_ok};

/// FE1: each grant has a larger token than the one before. FE3: the guard has it from the start.
#[tokio::test]
async fn each_hold_has_a_larger_token_than_the_hold_before_it() {
    let test = Fixture::of_kind(&FENCED).await;
    let lock = test.lock("l");
    assert_eq!(lock.last_token().await.unwrap(), None);
    let other = test.kind.lock(&test.another().await, "l");
    let mut last = clock(&test.redis).await - 1;
    for lock in [&lock, &other, &lock, &lock] {
        let guard = lock.lock().await.unwrap();
        let token = token(&guard);
        assert!(token > last, "{token} comes after {last}");
        assert!(token <= clock(&test.redis).await, "the clock is the floor");
        assert_eq!(counter(&test.redis).await, token.to_string());
        assert_eq!(other.last_token().await.unwrap(), Some(token));
        guard.unlock().await.unwrap();
        last = token;
    }
    let with = lock.with(async |held| held.token()).await.unwrap();
    assert!(with > Some(last));
    assert_eq!(test.redis.pttl(COUNTER).await, -1);
    let plain = test.client.lock("plain");
    assert_eq!(plain.lock().await.unwrap().token(), None);
    assert_eq!(plain.last_token().await.unwrap(), None);
    test.redis.assert_clean().await;
}

/// FE2.
#[tokio::test]
async fn all_acquires_of_one_hold_have_its_token() {
    let test = Fixture::of_kind(&FENCED).await;
    let lock = test.lock("l");
    let outer = lock.lock().await.unwrap();
    let first = token(&outer);
    let counted = lock.lock().await.unwrap();
    let local = lock.lock().reentry(Reentry::Local).await.unwrap();
    assert_eq!((token(&counted), token(&local)), (first, first));
    // The same if the counter is missing, or has another value.
    for command in [&["DEL", COUNTER][..], &["SET", COUNTER, "7"]] {
        test.redis.cmd(command).await;
        assert_eq!(token(&lock.lock().await.unwrap()), first);
    }
    outer.unlock().await.unwrap();
    assert_eq!(token(&counted), first);
    drop((counted, local));
    let next = token(&lock.lock().await.unwrap());
    assert!(next > first, "{next} comes after {first}");
    test.redis.assert_clean().await;
}

/// FE1, whatever happens to the counter.
#[tokio::test]
async fn tokens_grow_whatever_happens_to_the_counter() {
    let test = Fixture::of_kind(&FENCED).await;
    let lock = test.lock("l");
    let mut last = 0;
    let ahead = (1_u64 << 52).to_string();
    for command in [
        &["DEL", COUNTER][..],
        &["SET", COUNTER, "1"],
        &["SET", COUNTER, "0"],
        // Redisson acquires in between.
        &["INCRBY", COUNTER, "5"],
        &["PEXPIRE", COUNTER, "100000"],
        // The counter is ahead of the clock.
        &["SET", COUNTER, &ahead],
        &["INCRBY", COUNTER, "5"],
    ] {
        test.redis.cmd(command).await;
        let next = token(&lock.lock().await.unwrap());
        assert!(next > last, "{next} comes after {last} and {command:?}");
        assert_eq!(counter(&test.redis).await, next.to_string());
        assert_eq!(test.redis.pttl(COUNTER).await, -1, "after {command:?}");
        last = next;
        test.redis.eventually_gone("l").await;
    }
    // 2^52 and the later increments.
    assert_eq!(last, (1 << 52) + 1 + 5 + 1);
}

/// FE1 among many owners of several clients: each writes its token under the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_grow_in_the_order_of_the_grants_of_many_owners() {
    let test = Fixture::of_kind(&FENCED).await;
    let seen = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let client = test.another().await;
        for _ in 0..4 {
            let (lock, seen) = (test.kind.lock(&client, "l"), seen.clone());
            tasks.spawn(async move {
                for _ in 0..20 {
                    let guard = lock.lock().await.unwrap();
                    seen.lock().push(token(&guard));
                    guard.unlock().await.unwrap();
                }
            });
        }
    }
    tasks.join_all().await;
    let seen = seen.lock();
    assert_eq!(seen.len(), 240);
    assert!(seen.is_sorted_by(|one, next| one < next), "{seen:?}");
}

/// FE1.
#[tokio::test]
async fn the_holder_after_an_expired_lease_has_a_larger_token_and_the_late_one_keeps_its_own() {
    let test = Fixture::of_kind(&FENCED).await;
    let lock = test.lock("l");
    let late = until_ok(SOON, async || lock.lock().lease(ms(1_000)).await).await;
    let before = token(&late);
    late.lost().await;
    let guard = lock.lock().owner(&Owner::new()).await.unwrap();
    assert!(token(&guard) > before);
    // A resource refuses a write with this token.
    assert_eq!(token(&late), before);
    assert!(late.unlock().await.unwrap_err().is_lost());
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
}

#[tokio::test]
async fn from_one_counts_as_redisson_does_and_a_hold_has_one_number() {
    let test = Fixture::of_kind(&FENCED).await;
    let lock = test.client.fenced_lock_from_one("l");
    for number in 1..4 {
        let guard = lock.lock().await.unwrap();
        assert_eq!(token(&guard), number);
        assert_eq!(token(&lock.lock().await.unwrap()), number);
        guard.unlock().await.unwrap();
        test.redis.eventually_gone("l").await;
    }
    let guard = lock.lock().await.unwrap();
    let waiting = waiter(&lock);
    tokio::time::sleep(ms(50)).await;
    guard.unlock().await.unwrap();
    assert_eq!(token(&waiting.await.unwrap()), 5);
    test.redis.eventually_gone("l").await;
    // Redisson's `delete()`.
    test.redis.cmd(&["DEL", COUNTER]).await;
    assert_eq!(token(&lock.lock().await.unwrap()), 1);
}

#[tokio::test]
async fn a_counter_that_is_no_number_is_an_error_and_nothing_changes() {
    let test = Fixture::of_kind(&FENCED).await;
    let lock = test.lock("l");
    let most = ((1_u64 << 53) - 1).to_string();
    let wrong: [&[&str]; 8] = [
        &["SET", COUNTER, ""],
        &["SET", COUNTER, "x"],
        &["SET", COUNTER, "-1"],
        &["SET", COUNTER, "1.5"],
        &["SET", COUNTER, " 1"],
        &["SET", COUNTER, &most],
        &["SET", COUNTER, "99999999999999999999999"],
        &["HSET", COUNTER, "f", "1"],
    ];
    for command in wrong {
        test.redis.cmd(&["DEL", COUNTER]).await;
        test.redis.cmd(command).await;
        let read = if command[0] == "SET" {
            "GET"
        } else {
            "HGETALL"
        };
        let before = test.redis.cmd(&[read, COUNTER]).await;
        for refused in [lock.try_lock().await, lock.try_lock().wait(LONG).await] {
            refused_for_its_counter(&refused.unwrap_err());
        }
        assert!(!test.redis.exists("l").await, "after {command:?}");
        assert_eq!(test.redis.cmd(&[read, COUNTER]).await, before);
    }
    for command in [&["SET", COUNTER, "x"][..], &["HSET", COUNTER, "f", "1"]] {
        test.redis.cmd(&["DEL", COUNTER]).await;
        test.redis.cmd(command).await;
        let refused = lock.last_token().await.unwrap_err();
        assert_eq!(code(&refused), "WRONGTYPE", "after {command:?}");
    }
    for command in [&["DEL", COUNTER][..], &["SET", COUNTER, "0"]] {
        test.redis.cmd(command).await;
        assert_eq!(lock.last_token().await.unwrap(), None);
    }
    // During a hold: nested calls are refused, the hold stays, and its unlock works.
    let guard = lock.lock().await.unwrap();
    test.redis.cmd(&["SET", COUNTER, "x"]).await;
    refused_for_its_counter(&lock.lock().await.unwrap_err());
    assert!(guard.is_valid() && guard.hold_count() == 1);
    assert_eq!(lock.hold_count().await.unwrap(), 1);
    // The waiter of the same client gets the error instead of the lock.
    let waiting = {
        let request = lock.lock().owner(&Owner::new());
        tokio::spawn(async move { request.await })
    };
    tokio::time::sleep(ms(50)).await;
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    refused_for_its_counter(&waiting.await.unwrap().unwrap_err());
    assert_eq!(counter(&test.redis).await, "x");
    test.redis.cmd(&["DEL", COUNTER]).await;
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn a_multi_lock_has_a_fenced_member_and_its_token_can_be_read() {
    let test = Fixture::of_kind(&FENCED).await;
    let (first, last) = (test.client.lock("{l}a"), test.client.lock("{l}z"));
    let member = test.lock("{l}m");
    let both = MultiLock::new([last, member.clone(), first]);
    let mut before = 0;
    for _ in 0..2 {
        let guard = both.lock().await.unwrap();
        assert_eq!(guard.token(), None, "it has no token of the whole");
        let tokens: Vec<_> = guard.instances().iter().map(|it| it.token).collect();
        let [None, Some(issued), None] = tokens[..] else {
            panic!("{tokens:?}")
        };
        assert!(issued > before);
        // The owner of the whole gets the member's token from the member itself, and from another acquire
        // of the whole.
        assert_eq!(token(&member.lock().await.unwrap()), issued);
        let again = both.lock().await.unwrap();
        assert_eq!(again.instances()[1].token, Some(issued));
        again.unlock().await.unwrap();
        guard.unlock().await.unwrap();
        before = issued;
    }
    // No other lock of the whole stays held while another owner holds the member.
    let held = test.held_elsewhere("{l}m").await;
    assert!(both.try_lock().await.unwrap().is_none());
    for plain in ["{l}a", "{l}z"] {
        test.redis.eventually_gone(plain).await;
    }
    let waiting = tokio::spawn(async move { both.lock().await });
    eventually(SOON, "it listens", async || {
        test.redis.channels().await.len() == 1
    })
    .await;
    let before = token(&held);
    held.unlock().await.unwrap();
    let guard = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
    let guard = guard.unwrap();
    assert!(guard.instances()[1].token > Some(before));
    guard.unlock().await.unwrap();
    test.redis.assert_clean().await;
}

#[tokio::test]
async fn a_red_lock_refuses_a_fenced_lock_and_says_why() {
    let test = Fixture::of_kind(&FENCED).await;
    let locks = [test.client.lock("a"), test.lock("b")];
    for lock in [RedLock::new(locks.clone()), RedLock::new(locks).fenced()] {
        let refused = lock.try_lock().await.unwrap_err();
        let Error::Invalid { what, why, .. } = &refused else {
            panic!("{refused}")
        };
        assert_eq!(*what, "locks");
        assert!(why.contains("issues tokens itself"), "{why}");
        assert!(
            why.contains("lock=\"b\"") && why.contains("place=2"),
            "{why}"
        );
    }
}

fn code(refused: &Error) -> &str {
    let Error::Refused { code, .. } = refused else {
        panic!("{refused}")
    };
    code
}

fn refused_for_its_counter(refused: &Error) {
    assert_eq!(code(refused), "WRONGTYPE");
    let message = refused.to_string();
    assert!(
        message.contains("the counter of the fencing tokens"),
        "{message}"
    );
    assert!(!refused.is_retriable() && !refused.may_be_held());
}

pub(super) fn token(guard: &Guard) -> u64 {
    guard.token().expect("a fenced lock issues tokens")
}

pub(super) async fn counter(redis: &Redis) -> String {
    redis.ask(&["GET", COUNTER]).await
}

async fn clock(redis: &Redis) -> u64 {
    let (seconds, micros): (u64, u64) = redis.ask(&["TIME"]).await;
    seconds * 1_000_000 + micros
}

/// The counter of the lock `l`.
pub(super) const COUNTER: &str = "redisson_lock_token:{l}";
