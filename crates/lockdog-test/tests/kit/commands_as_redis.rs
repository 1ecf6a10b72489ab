//! Every command does on the test server what it does on Redis 7.0, for random sequences of them.

use std::cell::RefCell;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestCaseError, TestRunner};

use crate::support::cases;
use crate::support::compare::{Pair, twice_if_different};

#[test]
fn every_command_behaves_as_on_redis() {
    compare_random_commands(Pair::start());
}

#[test]
fn every_command_behaves_as_on_redis_in_resp3() {
    compare_random_commands(Pair::with_resp3());
}

fn compare_random_commands(pair: Pair) {
    let pair = RefCell::new(pair);
    pair.borrow_mut().listen(&["c", "d"]);
    let config = Config {
        cases: cases(300),
        failure_persistence: None,
        ..Config::default()
    };
    let outcome = TestRunner::new(config).run(&vec(command(), 1..30), |commands| {
        let mut pair = pair.borrow_mut();
        let outcome = twice_if_different(|| {
            pair.send(&["FLUSHALL"])?;
            for command in &commands {
                pair.send(command)?;
            }
            pair.compare()
        });
        outcome.map_err(TestCaseError::fail)
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

/// What scripts see of commands, and how they fail.
#[test]
fn commands_in_scripts_return_and_fail_as_on_redis() {
    compare_scripts_and_others(Pair::start());
}

#[test]
fn commands_in_scripts_return_and_fail_as_on_redis_in_resp3() {
    compare_scripts_and_others(Pair::with_resp3());
}

fn compare_scripts_and_others(mut pair: Pair) {
    for script in SCRIPTS {
        pair.send(&["FLUSHALL"]).unwrap();
        let command = ["EVAL", script, "2", "k", "l", "a", "1"];
        if let Err(difference) = pair.send(&command).and_then(|()| pair.compare()) {
            panic!("{difference}");
        }
    }
    for command in [
        &["EVAL", "return 1", "-1"][..],
        &["EVAL", "return 1", "3", "a"],
        &["EVAL", "return 1", "x"],
        &["EVAL", "return 1"],
        &["EVAL", "return (", "0"],
        &["EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "0"],
        &["SCRIPT", "LOAD", "return 1"],
        &["EVALSHA", "E0E1F9FABFC9D4800C877A703B823AC0578FF8DB", "0"],
        &[
            "SCRIPT",
            "EXISTS",
            "e0e1f9fabfc9d4800c877a703b823ac0578ff8db",
            "x",
        ],
        &["SCRIPT", "FLUSH"],
        &[
            "SCRIPT",
            "EXISTS",
            "e0e1f9fabfc9d4800c877a703b823ac0578ff8db",
        ],
        &["SET", "expires", "x"],
        &["PEXPIRE", "expires", "50000", "GT"],
        &["PEXPIRE", "expires", "50000", "LT"],
        &["PEXPIRE", "expires", "30000", "GT"],
        &["PEXPIRE", "expires", "90000", "GT"],
        &["PEXPIRE", "expires", "95000", "LT"],
        &["PEXPIRE", "expires", "20000", "LT", "XX"],
        &["PTTL", "expires"],
        &["WAIT", "0", "0"],
        &["WAIT", "1", "10"],
        &["ROLE"],
        &["SELECT", "16"],
        &["SELECT", "x"],
        &["SELECT", "1"],
        &["SET", "k", "in 1"],
        &["SELECT", "0"],
        &["GET", "k"],
        &["CONFIG", "GET", "maxmemory"],
        &["CLUSTER", "INFO"],
        &["AUTH", "secret"],
        &["AUTH", "default", "any"],
        &["AUTH", "nobody", "any"],
        &["HELLO", "4"],
        &["CLIENT", "GETNAME"],
        &["CLIENT", "SETNAME", "a b"],
        &["CLIENT", "SETNAME", "a"],
        &["CLIENT", "GETNAME"],
        &["CLIENT", "KILL", "ID", "99999"],
        &["PUBSUB", "NUMSUB", "c", "d"],
        &["PUBSUB", "NUMPAT"],
        &["PUBSUB", "SHARDNUMSUB", "c"],
        &["ECHO", "a"],
        &["PING", "a"],
    ] {
        pair.send(command).unwrap();
    }
}

/// More values than an interpreter can refer to outside tables.
#[test]
fn a_script_handles_thousands_of_values_as_on_redis() {
    let mut pair = Pair::start();
    let items: Vec<String> = (0..9_000).map(|item| item.to_string()).collect();
    let push = "for item = 1, 9000 do redis.call('rpush', KEYS[1], item) end \
        return #redis.call('lrange', KEYS[1], 0, -1) == 9000";
    pair.send(&["EVAL", push, "1", "k"]).unwrap();
    // The comparison allows numbers of this size to differ.
    for count in ["return #KEYS == 9000", "return #ARGV == 9000"] {
        let keys = if count.contains("KEYS") { "9000" } else { "0" };
        let mut command = vec!["EVAL", count, keys];
        command.extend(items.iter().map(String::as_str));
        pair.send(&command).unwrap();
    }
    pair.compare().unwrap();
}

/// Both servers answer these commands alike, and have the same keys afterwards.
fn assert_as_redis(commands: &[&[&str]]) {
    let mut pair = Pair::start();
    for command in commands {
        pair.send(command).unwrap();
    }
    pair.compare().unwrap();
}

#[test]
fn a_score_that_would_be_no_number_is_refused_as_on_redis() {
    assert_as_redis(&[
        &["ZADD", "k", "inf", "a"][..],
        &["ZINCRBY", "k", "-inf", "a"],
        &["ZADD", "k", "INCR", "-inf", "a"],
        &["ZINCRBY", "k", "inf", "a"],
    ]);
}

#[test]
fn a_score_that_no_float_has_is_refused_and_a_bound_is_infinite_as_on_redis() {
    assert_as_redis(&[
        &["ZADD", "k", "1e400", "a"][..],
        &["ZADD", "k", "-1e400", "a"],
        &["ZADD", "k", "1e-400", "a"],
        &["ZINCRBY", "k", "1e400", "a"],
        &["ZADD", "k", "5", "a"],
        &["ZCOUNT", "k", "-1e400", "1e400"],
    ]);
}

#[test]
fn passwords_are_required_as_on_redis() {
    let mut pair = Pair::start();
    pair.require_password("right");
    for command in [
        &["PING"][..],
        &["GET"],
        &["GET", "k"],
        &["AUTH", "wrong"],
        &["AUTH", "a", "b", "c"],
        &["AUTH", "default", "wrong"],
        &["AUTH", "nobody", "right"],
        &["HELLO", "2"],
        &["HELLO", "2", "AUTH", "default", "wrong"],
        &["GET", "k"],
        &["AUTH", "right"],
        &["GET", "k"],
        // A connection that is logged in stays logged in.
        &["AUTH", "wrong"],
        &["GET", "k"],
        &["RESET"],
        &["GET", "k"],
        &["AUTH", "default", "right"],
        &["EVAL", "return redis.call('get', 'k')", "0"],
        &["QUIT"],
    ] {
        pair.send(command).unwrap();
    }
}

fn command() -> impl Strategy<Value = Vec<String>> {
    select(FORMS).prop_flat_map(|form| {
        let words: Vec<_> = form.split(' ').map(word).collect();
        words.prop_map(|words| {
            words
                .iter()
                .flat_map(|word| word.split(' '))
                .filter(|word| !word.is_empty())
                .map(|word| {
                    if word == "''" {
                        String::new()
                    } else {
                        word.to_owned()
                    }
                })
                .collect()
        })
    })
}

/// Capitals are the command; the rest are places for arguments.
fn word(place: &'static str) -> BoxedStrategy<String> {
    let of = |values: &'static [&'static str]| select(values).prop_map(str::to_owned).boxed();
    match place {
        "key" => of(&["a", "b", "c"]),
        "value" => of(&["1", "2", "-7", "x", "''", "9223372036854775807"]),
        "field" | "item" => of(&["f", "g", "h", "i"]),
        "int" => of(&["0", "1", "2", "-1", "-2", "10", "x", "1.5"]),
        "score" => of(&[
            "0",
            "1",
            "2",
            "-1",
            "1.5",
            "1700000000000",
            "0.1",
            "inf",
            "-inf",
            "x",
        ]),
        "bound" => of(&["0", "1", "(1", "2", "-inf", "+inf", "(1700000000000", "x"]),
        "ms" => of(&["20000", "100000", "0", "-5", "x"]),
        "seconds" => of(&["20", "100", "0", "-5", "x"]),
        // The clock decides whether GT and LT see a difference between two times that are set one after
        // the other.
        "expire" => of(&["", "", "NX", "XX", "NX XX", "GT LT", "GT NX", "ZZ"]),
        "set" => of(&[
            "",
            "NX",
            "XX",
            "GET",
            "KEEPTTL",
            "PX 20000",
            "EX 20",
            "NX PX 20000",
            "XX GET",
            "PX 0",
            "PX x",
            "NX XX",
            "PX",
        ]),
        "zadd" => of(&[
            "", "", "NX", "XX", "GT", "LT", "CH", "INCR", "XX CH", "NX GT",
        ]),
        "zrange" => of(&["", "", "WITHSCORES", "REV", "REV WITHSCORES", "LIMIT 0 1"]),
        "byscore" => of(&["", "WITHSCORES", "LIMIT 0 1", "LIMIT 1 -1 WITHSCORES"]),
        "maybe" => of(&["", "1", "2", "x", "-1"]),
        "channel" => of(&["c", "d", "e"]),
        // In the past, or so far ahead that the time between the two servers does not count.
        "second" => of(&["1", "4000000000", "0", "-5", "x", "9223372036854775807"]),
        "millisecond" => of(&["1", "4000000000000", "0", "-5", "x"]),
        // Each matches one key or none, because Redis has no order of keys.
        "pattern" => of(&[
            "a", "b*", "*c", "?x", "[a]", "[^bc]", "[b-b]", "[]b]", "[b", "[c-", r"\a", r"[\b]",
        ]),
        "cursor" => of(&["0", "0", "0", "x"]),
        "scan" => of(&[
            "MATCH a",
            "MATCH [^ab] COUNT 20",
            "MATCH b TYPE hash",
            "TYPE hash MATCH c",
            "MATCH a COUNT 0",
            "MATCH a COUNT x",
            "MATCH",
            "MATCH a ZZ 1",
        ]),
        "hscan" => of(&[
            "",
            "MATCH [fg]",
            "MATCH [^f] COUNT 20",
            "COUNT 0",
            "COUNT x",
            "MATCH",
            "TYPE hash",
        ]),
        command => Just(command.to_owned()).boxed(),
    }
}

const FORMS: &[&str] = &[
    "APPEND key value",
    "DBSIZE",
    "DECR key",
    "DECRBY key int",
    "DEL key key",
    "EXISTS key key",
    "EXPIRE key seconds expire",
    "EXPIREAT key second expire",
    "FLUSHDB",
    "GET key",
    "GETDEL key",
    "GETSET key value",
    "HDEL key field field",
    "HEXISTS key field",
    "HGET key field",
    "HGET key",
    "HGETALL key",
    "HINCRBY key field int",
    "HINCRBY key field value",
    "HKEYS key",
    "HLEN key",
    "HMGET key field field",
    "HMSET key field value field value",
    "HSCAN key cursor hscan",
    "HSET key field value",
    "HSET key field value field",
    "HSETNX key field value",
    "HSTRLEN key field",
    "HVALS key",
    "INCR key",
    "INCRBY key value",
    "KEYS pattern",
    "LINDEX key int",
    "LLEN key",
    "LPOP key maybe",
    "LPUSH key item item",
    "LRANGE key int int",
    "LREM key int item",
    "LSET key int item",
    "LTRIM key int int",
    "MGET key key",
    "PERSIST key",
    "PEXPIRE key ms expire",
    "PEXPIREAT key millisecond expire",
    "PTTL key",
    "PSETEX key ms value",
    "PUBLISH channel value",
    "RPOP key maybe",
    "RPUSH key item item item",
    "SADD key item item",
    "SCAN cursor scan",
    "SCARD key",
    "SET key value set",
    "SETEX key seconds value",
    "SETNX key value",
    "SISMEMBER key item",
    "SPUBLISH channel value",
    "SREM key item item",
    "STRLEN key",
    "TTL key",
    "TYPE key",
    "UNLINK key",
    "ZADD key zadd score item",
    "ZADD key zadd score item score item",
    "ZCARD key",
    "ZCOUNT key bound bound",
    "ZINCRBY key score item",
    "ZMSCORE key item item",
    "ZPOPMIN key maybe",
    "ZRANGE key int int zrange",
    "ZRANGE key bound bound BYSCORE byscore",
    "ZRANGEBYSCORE key bound bound byscore",
    "ZRANK key item",
    "ZREM key item item",
    "ZREMRANGEBYSCORE key bound bound",
    "ZSCORE key item",
];

const SCRIPTS: &[&str] = &[
    "return {KEYS[1], ARGV[1], #KEYS, #ARGV}",
    "return 3.99",
    "return -3.99",
    "return {1, 'a', false, 2}",
    "return {1, nil, 2}",
    "return {ok = 'FINE'}",
    "return {err = 'MY error'}",
    "return {1, {err = 'MY error'}, {ok = 'x'}, {2, {3}}}",
    "return redis.error_reply('MY error')",
    "return redis.error_reply('MY')",
    "return redis.error_reply('-MY error')",
    "return redis.status_reply('fine')",
    "return redis.call('set', 'k', 1)",
    "return redis.call('get', 'k')",
    "return redis.call('hgetall', 'k')",
    "return redis.call('hrandfield', 'k', 4)",
    "return {redis.call('hrandfield', 'k'), 1}",
    "redis.call('hset', 'k', 'f', 1) return {redis.call('hrandfield', 'k'), redis.call('hrandfield', 'k', 4), redis.call('hrandfield', 'k', -2)}",
    "redis.call('hset', 'k', 'a', 1, 'b', 2, 'c', 3) local two = redis.call('hrandfield', 'k', 2) return {#two, two[1] ~= two[2] and 1 or 0, #redis.call('hrandfield', 'k', 4)}",
    "return redis.call('hrandfield', 'k', 'x')",
    "redis.call('lpush', 'k', 'x') return redis.call('hrandfield', 'k', 4)",
    "redis.call('lpush', 'k', 'x') return redis.call('hget', 'k', 'f')",
    "redis.call('lpush', 'k', 'x')\n\nredis.call('hget', 'k', 'f') return 1",
    "redis.call('lpush', 'k', 'x') local e = redis.pcall('hget', 'k', 'f') return e.err",
    "redis.call('lpush', 'k', 'x') return redis.pcall('hget', 'k', 'f')",
    "redis.call('lpush', 'k', 'x') local ok, e = pcall(redis.call, 'hget', 'k', 'f') return {tostring(ok), type(e), tostring(e)}",
    "local ok, e = pcall(error, 'x') return {tostring(ok), e}",
    "local ok, e = pcall(error, {err = 'A b'}) return {tostring(ok), e}",
    "error('x')",
    "error({err = 'MY error'})",
    "return nosuchglobal",
    "nosuchglobal = 1",
    "local x = nil return x.y",
    "return 1 + {}",
    "return tostring(1e15) .. tostring(1.5) .. tostring(2^53)",
    "return redis.call('set', 'k', 1e15) and redis.call('get', 'k')",
    "return redis.call('set', 'k', 1e17) and redis.call('get', 'k')",
    "return redis.call('set', 'k', 1.5) and redis.call('get', 'k')",
    "return redis.call('set', 'k', -0.1) and redis.call('get', 'k')",
    "return redis.call('set', 'k', true)",
    "return redis.call('set', 'k', {})",
    "return redis.call()",
    "return redis.call('set', 'k')",
    "return redis.call('subscribe', 'c')",
    "return redis.sha1hex('abc')",
    "return redis.call('zadd', 'k', 1.5, 'a') and redis.call('zscore', 'k', 'a')",
    "redis.call('zadd', 'k', 1700000000000, 'a') return redis.call('zrange', 'k', 0, -1, 'withscores')",
    "return redis.call('type', 'k')",
    "return redis.call('type', 'k').ok",
    "return #redis.call('time')",
    "return tonumber(redis.call('time')[1])",
    "return {redis.acl_check_cmd('get', 'k'), pcall(redis.acl_check_cmd, 'nosuchcommand')}",
    "return redis.acl_check_cmd('nosuchcommand')",
    "return string.format('%.0f', 1700000000000123)",
    "return math.floor(-1.5)",
    "return select('#', unpack({1, 2, 3}))",
    "redis.log(redis.LOG_WARNING, 'x') return redis.LOG_WARNING",
    "return redis.replicate_commands()",
    "local t = {} for k, v in ipairs({'a', 'b'}) do t[#t + 1] = v .. k end return t",
    "local x <const> = 1",
    "return",
    "",
    "return '\\0\\1'",
    "return table.concat(KEYS, ',')",
    "return redis.pcall('incr')",
    "redis.call('set', 'k', 'x') return redis.pcall('incr', 'k')",
    "redis.call('hset', 'k', 'f', 1) redis.call('pexpire', 'k', 0) return redis.call('exists', 'k')",
];
