//! The scripts of semaphores and latches when the server refuses one of their commands, and in rare
//! states.

use redis::{RedisResult, Value};

use super::*;

/// A user without one command. What a script did before that command is undone, so no permit is lost, and none
/// is made.
#[tokio::test]
async fn a_script_that_is_refused_half_way_changes_nothing() {
    let test = empty().await;
    let redis = &test.redis;
    let keys = [NAME, LEDGER, IN_USE, MARK];
    let states = [
        ("decrby", ACQUIRE, &[NAME, LEDGER][..], &["u:1.1", "2"][..]),
        (
            "incrby",
            RELEASE,
            &[NAME, LEDGER],
            &["held:1.1", "0", "c", "publish", "1", "2"],
        ),
        (
            "incrby",
            PERMIT_RELEASE,
            &[NAME, IN_USE],
            &["id", "0", "c", "publish"],
        ),
        (
            "incrby",
            GIVE_BACK,
            &[NAME, IN_USE],
            &["c", "publish", "id"],
        ),
        (
            "pexpire",
            PERMIT_ACQUIRE,
            &[NAME, IN_USE],
            &["30000", "c", "publish", "new"],
        ),
        (
            "decrby",
            COUNT_DOWN,
            &[NAME, MARK],
            &["60000", "c", "publish"],
        ),
    ];
    for (command, script, of, args) in states {
        let fill = "redis.call('flushall')\n\
            redis.call('set', KEYS[1], 3, 'px', 3600000)\n\
            redis.call('zadd', KEYS[2], 0, '', 2, 'held:1.1')\n\
            redis.call('zadd', KEYS[3], 9e14, 'id')";
        redis.cmd(&["EVAL", fill, "3", NAME, LEDGER, IN_USE]).await;
        let before = state(redis, &keys).await;
        let user = format!("ACL SETUSER some on nopass resetkeys ~* &* +@all -{command}");
        redis.cmd(&user.split(' ').collect::<Vec<_>>()).await;
        let url = format!("redis://some:any@127.0.0.1:{}", test.server.port());
        let limited = Redis::connect(&url, test.server.port(), None).await;
        let refused = eval(&limited, script, of, args).await;
        let refused = refused
            .expect_err("the server refuses a command")
            .to_string();
        // Two texts of different servers.
        let texts = ["can't run this command", "has no permissions to run"];
        assert!(
            texts.iter().any(|text| refused.contains(text)),
            "{command}: {refused}"
        );
        assert_eq!(state(redis, &keys).await, before, "{script}");
        redis.cmd(&["ACL", "SETUSER", "some", "+@all"]).await;
        eval(&limited, script, of, args).await.expect("it may now");
        assert_ne!(state(redis, &keys).await, before, "{script}");
    }
}

/// Redisson's `addPermits` ends the number's TTL. The set of the permits in use must not expire alone.
#[tokio::test]
async fn the_permits_in_use_live_as_long_as_the_number() {
    let test = empty().await;
    let acquire = async |id: &str| {
        let args = ["30000", "c", "publish", id];
        eval(&test.redis, PERMIT_ACQUIRE, &[NAME, IN_USE], &args).await
    };
    test.redis.cmd(&["SET", NAME, "5", "PX", "3600000"]).await;
    acquire("a").await.unwrap();
    assert!(test.redis.pttl(IN_USE).await > 0);
    test.redis.cmd(&["SET", NAME, "4"]).await;
    acquire("b").await.unwrap();
    assert_eq!(test.redis.pttl(IN_USE).await, -1);
}

#[tokio::test]
async fn the_ledger_of_a_number_that_was_deleted_ends() {
    let test = empty().await;
    test.redis.cmd(&["ZADD", LEDGER, "0", ""]).await;
    let args = ["u:1.1", "1"];
    eval(&test.redis, ACQUIRE, &[NAME, LEDGER], &args)
        .await
        .unwrap();
    assert!(test.redis.pttl(LEDGER).await > 0);
}

/// A release that remembers its end removes old ends, some at a time.
#[tokio::test]
async fn a_release_removes_a_bounded_number_of_old_ends() {
    let test = empty().await;
    let fill = "redis.call('set', KEYS[1], 1)\n\
        redis.call('zadd', KEYS[2], 0, '', 2, 'held:1.1')\n\
        for i = 1, 250 do redis.call('zadd', KEYS[2], 2 ^ 31 + i, 'old' .. i) end";
    test.redis.cmd(&["EVAL", fill, "2", NAME, LEDGER]).await;
    let args = ["held:1.1", "0", "c", "publish", "1", "2"];
    eval(&test.redis, RELEASE, &[NAME, LEDGER], &args)
        .await
        .unwrap();
    let left: i64 = test.redis.ask(&["ZCARD", LEDGER]).await;
    // The member '', the end of this release, and what is left of the old ends.
    assert_eq!(left, 152);
}

#[tokio::test]
async fn releases_and_count_downs_run_on_a_server_without_memory() {
    let test = empty().await;
    test.redis.cmd(&["SET", NAME, "1"]).await;
    test.redis.cmd(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let args = ["1", "60000", "c", "publish", "0"];
    let refused = test.redis.try_cmd(&["SET", "another", "1"]).await;
    assert!(refused.unwrap_err().to_string().contains("OOM"));
    for _ in 0..2 {
        let added = eval(&test.redis, ADD, &[NAME, MARK], &args).await.unwrap();
        assert_eq!(added, Value::Int(1));
    }
    assert_eq!(test.redis.ask::<i64>(&["GET", NAME]).await, 2);
}

#[tokio::test]
async fn the_deletion_of_a_latch_leaves_a_key_of_another_type() {
    let test = empty().await;
    test.redis.cmd(&["HSET", NAME, "u:1.1", "1"]).await;
    let error = test.client.count_down_latch(NAME).delete().await;
    assert!(error.unwrap_err().to_string().contains("WRONGTYPE"));
    assert!(test.redis.exists(NAME).await);
}

/// A server without keys.
async fn empty() -> Fixture {
    let test = Fixture::with_permits(1).await;
    test.redis.cmd(&["FLUSHALL"]).await;
    test
}

async fn eval(redis: &Redis, script: &str, keys: &[&str], args: &[&str]) -> RedisResult<Value> {
    let number = keys.len().to_string();
    let command = [&["EVAL", script, &number], keys, args].concat();
    redis.try_cmd(&command).await
}

/// What is in the keys.
async fn state(redis: &Redis, keys: &[&str]) -> Vec<Value> {
    let mut dumps = Vec::new();
    for key in keys {
        dumps.push(redis.cmd(&["DUMP", key]).await);
    }
    dumps
}

const MARK: &str = "lockdog_ledger:{seats}:mark";
const IN_USE: &str = "{seats}:timeout";
const ACQUIRE: &str = include_str!("../../../lua/semaphore/acquire.lua");
const RELEASE: &str = include_str!("../../../lua/semaphore/release.lua");
const PERMIT_ACQUIRE: &str = include_str!("../../../lua/permit/acquire.lua");
const PERMIT_RELEASE: &str = include_str!("../../../lua/permit/release.lua");
const GIVE_BACK: &str = include_str!("../../../lua/permit/give_back.lua");
const ADD: &str = include_str!("../../../lua/permit/add.lua");
const COUNT_DOWN: &str = include_str!("../../../lua/latch/count_down.lua");
