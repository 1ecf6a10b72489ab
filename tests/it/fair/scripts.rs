//! The scripts of the fair lock on states of the queue that clients take long to produce.

use redis::Value;

use super::*;

/// Thousands of waiters of a crashed client are before a Redisson waiter. One query drops all of them.
#[tokio::test]
async fn the_cost_of_dropping_absent_waiters_grows_with_their_number_only() {
    let test = Fixture::start().await;
    let few = dropping(&test, 400).await;
    let many = dropping(&test, 4_000).await;
    println!("400 in {few:?}, 4,000 in {many:?}");
    // Ten times as many waiters. A pass over the queue for each of them would take a hundred times as long.
    assert!(many < few * 40, "{few:?} and {many:?}");
}

/// The server's processor time for a query that drops this many waiters.
async fn dropping(test: &Fixture, waiters: usize) -> Duration {
    let mut quickest = LONG;
    for _ in 0..3 {
        let fill = "redis.call('flushall')\n\
            for i = 1, ARGV[1] do\n\
                redis.call('rpush', KEYS[1], 'f' .. i)\n\
                redis.call('zadd', KEYS[2], 1e15 + i, 'f' .. i)\n\
                redis.call('zadd', KEYS[3], 1, 'f' .. i)\n\
            end\n\
            redis.call('rpush', KEYS[1], 'java')\n\
            redis.call('zadd', KEYS[2], 2e15, 'java')";
        let number = waiters.to_string();
        (test.redis)
            .cmd(&["EVAL", fill, "3", QUEUE, PLACES, PRESENCE, &number])
            .await;
        let before = used(&test.redis).await;
        look(test, "late:1.1").await;
        quickest = quickest.min(used(&test.redis).await - before);
        assert_eq!(test.queue().await, ["java", "late:1.1"]);
    }
    quickest
}

/// The server's processor time, which other load does not change.
async fn used(redis: &Redis) -> Duration {
    let info: String = redis.ask(&["INFO", "cpu"]).await;
    let seconds = ["used_cpu_sys:", "used_cpu_user:"].map(|name| {
        let line = info.lines().find_map(|line| line.strip_prefix(name));
        line.expect("INFO has the line")
            .parse::<f64>()
            .expect("a number")
    });
    Duration::from_secs_f64(seconds.iter().sum())
}

/// The Redisson waiter came long ago, and the score of the lockdog waiter before it was raised since.
#[tokio::test]
async fn a_waiter_of_redisson_outlives_a_grant_to_a_waiter_that_was_long_before_it() {
    let test = Fixture::start().await;
    let until = |after: &str| format!("{after}000");
    for transfer in [false, true] {
        let fill = "redis.call('flushall')\n\
            local now = redis.call('time')[1] * 1000\n\
            redis.call('rpush', KEYS[1], 'own:1.1', 'java')\n\
            redis.call('zadd', KEYS[2], now + ARGV[1], 'own:1.1', now + ARGV[2], 'java')\n\
            redis.call('zadd', KEYS[3], now + 60000, 'own:1.1')";
        let (own, java) = (until("300"), until("250"));
        (test.redis)
            .cmd(&["EVAL", fill, "3", QUEUE, PLACES, PRESENCE, &own, &java])
            .await;
        if transfer {
            test.redis.cmd(&["HSET", NAME, "first:1.1", "1"]).await;
            let answer = transferred(&test.redis, "first:1.1", "own:1.1").await;
            assert_eq!(answer, Value::Int(-1));
        } else {
            look(&test, "own:1.1").await;
        }
        assert!(test.redis.hash(NAME).await.contains_key("own:1.1"));
        // The next query drops the waiters whose scores have passed.
        look(&test, "late:1.1").await;
        assert_eq!(test.queue().await, ["java", "late:1.1"], "{transfer}");
    }
}

/// No client uses the lock after the crash, so no script deletes the keys.
#[tokio::test]
async fn the_queue_of_waiters_whose_client_crashed_expires() {
    let test = Fixture::start().await;
    test.redis.cmd(&["HSET", NAME, "own:1.1", "1"]).await;
    look(&test, "crashed:1.1").await;
    for key in [QUEUE, PLACES, PRESENCE] {
        assert!(test.redis.pttl(key).await > 0, "{key}");
    }
}

/// The script fails after the grant. The receiver gets an error, so it must not hold the lock.
#[tokio::test]
async fn a_hand_over_that_fails_half_way_grants_nothing() {
    let test = Fixture::start().await;
    test.redis.cmd(&["HSET", NAME, "first:1.1", "1"]).await;
    look(&test, "next:1.1").await;
    let user = "ACL SETUSER some on nopass ~* &* +@all -lpop";
    test.redis.cmd(&user.split(' ').collect::<Vec<_>>()).await;
    let url = format!("redis://some:any@127.0.0.1:{}", test.server.port());
    let limited = Redis::connect(&url, test.server.port(), None).await;
    let answer = transferred(&limited, "first:1.1", "next:1.1").await;
    assert_eq!(answer, Value::Int(-2));
    assert!(!test.redis.exists(NAME).await);
    assert_eq!(test.queue().await, ["next:1.1"]);
}

/// A query of this field, which enters the queue unless the lock is granted.
async fn look(test: &Fixture, field: &str) -> Value {
    let prefix = CHANNELS.trim_end_matches(':');
    let mut command = vec!["EVAL", ACQUIRE, "4", NAME, QUEUE, PLACES, PRESENCE, field];
    command.extend(["1", "30000", "300000", "10000", "enter", prefix, "publish"]);
    test.redis.cmd(&command).await
}

async fn transferred(redis: &Redis, from: &str, to: &str) -> Value {
    let prefix = CHANNELS.trim_end_matches(':');
    let mut command = vec!["EVAL", TRANSFER, "4", NAME, QUEUE, PLACES, PRESENCE];
    command.extend([from, to, "30000", prefix, "publish", "300000"]);
    redis.cmd(&command).await
}

const ACQUIRE: &str = include_str!("../../../lua/fair/acquire.lua");
const TRANSFER: &str = include_str!("../../../lua/fair/transfer.lua");
