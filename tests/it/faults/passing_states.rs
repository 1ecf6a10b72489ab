//! Temporary states of the server. Calls wait for their end within the deadline, and name the state in
//! their error if it lasts longer.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lockdog::{Client, Error, Unlocked};
use tokio::task::JoinSet;

use crate::faults::SOON;
use crate::faults::fixture::{Fixture, MOMENT, NAME, error_of, take};
use crate::fixture::{connected, patient};
use crate::support::prelude::LONG;
use crate::support::redis::WAITING;
use crate::support::{Data, Redis, RedisServer, eventually};

#[tokio::test]
async fn a_call_waits_until_loading_ends() {
    let server = RedisServer::builder()
        .while_loading()
        .arg("--key-load-delay", "1500")
        .arg("--rdbcompression", "no")
        .start()
        .await;
    let fixture = Fixture::on(server, |client| client.command_timeout(SOON * 3)).await;
    // A loading server processes commands once every two megabytes, so the values are large.
    let fill = "for i = 1, 10000 do redis.call('SET', i, string.rep('x', 4096), 'EX', 100) end";
    fixture.redis.cmd(&["EVAL", fill, "0"]).await;
    let guard = fixture.lock().lock().await.unwrap();
    fixture.server.restart(Data::Kept).await;
    let loading = fixture.server.redis().await;
    let refused = loading.try_cmd(&["GET", "1"]).await.unwrap_err();
    assert_eq!(refused.code(), Some("LOADING"));
    let impatient = fixture.client.lock("other").try_lock().wait(MOMENT);
    let error = impatient.await.unwrap_err();
    assert!(error.is_retriable() && !error.is_lost(), "{error}");
    // It loads for fifteen seconds at least.
    let refused = loading.try_cmd(&["GET", "1"]).await;
    assert!(refused.is_err(), "it has loaded already");
    let waiting = fixture.client.lock("third").try_lock().wait(SOON * 3);
    let hasten = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let set = ["CONFIG", "SET", "key-load-delay", "0"];
        loading.cmd(&set).await;
    };
    let (unlocked, waited, ()) = tokio::join!(guard.unlock(), waiting.into_future(), hasten);
    assert_eq!(unlocked.unwrap(), Unlocked::Released);
    drop(waited.unwrap().expect("it is free"));
    let redis = fixture.server.redis().await;
    assert!(redis.errorstats().await["LOADING"] >= 2);
    redis.assert_clean().await;
}

#[tokio::test]
async fn a_call_waits_until_a_busy_script_ends() {
    let fixture = Fixture::with(|client| client.command_timeout(SOON)).await;
    fixture
        .redis
        .cmd(&["CONFIG", "SET", "lua-time-limit", "20"])
        .await;
    let busy = async || {
        let runner = fixture.server.redis().await;
        tokio::spawn(async move { runner.try_cmd(&["EVAL", "while true do end", "0"]).await });
        eventually(SOON, "the script keeps the server busy", async || {
            let answer = fixture.redis.try_cmd(&["GET", "n"]).await;
            answer.is_err_and(|error| error.code() == Some("BUSY"))
        })
        .await;
    };
    waited_out(&fixture, "BUSY", busy, async || {
        fixture.redis.cmd(&["SCRIPT", "KILL"]).await;
    })
    .await;
}

#[tokio::test]
async fn a_call_waits_until_a_replica_is_a_master() {
    let fixture = Fixture::with(|client| client.command_timeout(SOON)).await;
    let demote = async || drop(fixture.redis.cmd(&["REPLICAOF", "127.0.0.1", "1"]).await);
    waited_out(&fixture, "READONLY", demote, async || {
        fixture.redis.cmd(&["REPLICAOF", "NO", "ONE"]).await;
    })
    .await;
}

#[tokio::test]
async fn a_call_waits_for_missing_replicas() {
    let fixture = Fixture::with(|client| client.command_timeout(SOON)).await;
    let require = async |n: &str| {
        let set = ["CONFIG", "SET", "min-replicas-to-write", n];
        fixture.redis.cmd(&set).await;
    };
    waited_out(
        &fixture,
        "NOREPLICAS",
        async || require("1").await,
        async || {
            require("0").await;
        },
    )
    .await;
}

#[tokio::test]
async fn a_call_waits_for_a_server_full_of_clients() {
    let fixture = Fixture::with(|client| client.command_timeout(SOON)).await;
    let set = async |n: usize| {
        let n = n.to_string();
        fixture
            .redis
            .cmd(&["CONFIG", "SET", "maxclients", &n])
            .await;
    };
    let guard = fixture.lock().lock().await.unwrap();
    let caller = caller(&fixture.redis).await;
    fixture.redis.kill_client(caller).await;
    let there = fixture.redis.clients().await.len();
    set(there).await;
    let lock = fixture.client.lock("other");
    let error = error_of(&lock).await;
    assert!(error.is_retriable() && !error.is_timeout(), "{error}");
    let rejected = rejected(&fixture.redis).await;
    assert!(rejected >= 1, "{rejected} were turned away");
    let release = async {
        tokio::time::sleep(MOMENT).await;
        set(1000).await;
    };
    let (unlocked, ()) = tokio::join!(guard.unlock(), release);
    assert_eq!(unlocked.unwrap(), Unlocked::Released);
    take(&lock).await.unlock().await.unwrap();
    fixture.assert_recovered().await;
}

#[tokio::test]
async fn a_call_waits_for_a_server_that_is_down() {
    let server = RedisServer::builder().persistent().start().await;
    let fixture = Fixture::on(server, |client| client.command_timeout(SOON * 2)).await;
    let guard = fixture.lock().lock().await.unwrap();
    fixture.server.kill();
    let lock = fixture.client.lock("other");
    let error = error_of(&lock).await;
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(error.is_retriable() && error.may_be_held() && !error.is_timeout());
    assert!(fixture.proxy.counts().unreachable >= 1);
    let come_back = async {
        tokio::time::sleep(MOMENT).await;
        fixture.server.restart(Data::Kept).await;
    };
    let waiting = lock.try_lock().wait(SOON * 2);
    let (unlocked, waited, ()) = tokio::join!(guard.unlock(), waiting.into_future(), come_back);
    assert_eq!(unlocked.unwrap(), Unlocked::Released);
    drop(waited.unwrap().expect("it is free"));
    let redis = fixture.server.redis().await;
    eventually(SOON, "all is free", async || redis.keys().await.is_empty()).await;
}

#[tokio::test]
async fn connections_that_are_reset_or_killed_are_reopened() {
    let fixture = Fixture::start().await;
    let total = AtomicU64::new(0);
    for round in 0..60 {
        let end = async || {
            let ended = if round % 2 == 0 {
                fixture.proxy.reset_all() as u64
            } else {
                let kill = ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
                fixture.redis.ask(&kill).await
            };
            total.fetch_add(ended, Ordering::Relaxed);
        };
        let (guard, ()) = tokio::join!(fixture.lock().lock().into_future(), end());
        let guard = guard.unwrap();
        let (unlocked, ()) = tokio::join!(guard.unlock(), end());
        assert_eq!(unlocked.unwrap(), Unlocked::Released);
    }
    assert!(fixture.proxy.counts().reset >= 30);
    assert!(total.into_inner() >= 60);
    fixture.assert_recovered().await;
}

#[tokio::test]
async fn a_call_waits_for_a_paused_or_sleeping_server() {
    let fixture = Fixture::with(|client| client.command_timeout(SOON)).await;
    let lock = fixture.lock();
    for command in [&["CLIENT", "PAUSE", "700"][..], &["DEBUG", "SLEEP", "0.7"]] {
        for inner in [false, true] {
            let outer = if inner { Some(take(&lock).await) } else { None };
            let guard = during(&fixture, command, lock.lock().into_future()).await;
            let expected = match outer {
                Some(_) => Unlocked::StillHeld { count: 1 },
                None => Unlocked::Released,
            };
            let unlocked = during(&fixture, command, guard.unwrap().unlock()).await;
            assert_eq!(unlocked.unwrap(), expected);
        }
    }
    fixture.assert_recovered().await;
}

#[tokio::test]
async fn flushed_scripts_are_sent_again() {
    let fixture = Fixture::start().await;
    let redis = fixture.redis.clone();
    let flusher = tokio::spawn(async move {
        loop {
            redis.cmd(&["SCRIPT", "FLUSH"]).await;
            tokio::task::yield_now().await;
        }
    });
    let lock = fixture.lock();
    for _ in 0..100 {
        let outer = lock.lock().await.unwrap();
        let inner = lock.lock().await.unwrap();
        assert_eq!(fixture.counts().await, ["2"]);
        inner.unlock().await.unwrap();
        drop(outer);
    }
    flusher.abort();
    let missed = fixture.redis.errorstats().await["NOSCRIPT"];
    assert!(missed >= 10, "{missed} scripts were missing");
    fixture.assert_recovered().await;
}

/// No timer wakes a waiter during the test. The list of the waiting clients is data, which a flush does not delete.
#[tokio::test]
async fn listed_clients_get_the_lock_by_messages_though_the_scripts_are_flushed() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let connect = || connected(patient(server.url()).poll_cap(LONG));
    let holder = connect().await;
    let mut held = holder.lock(NAME).lock().lease(LONG).await.unwrap();
    let list = format!("{WAITING}{{{NAME}}}");
    let listed = async || redis.ask::<usize>(&["ZCARD", &list]).await;
    let mut waiting = JoinSet::new();
    for number in 1..=3 {
        let client = connect().await;
        waiting.spawn(client.lock(NAME).lock().lease(LONG).into_future());
        let is_listed = async || listed().await == number;
        eventually(SOON, "the client is listed", is_listed).await;
    }
    let channel = format!("redisson_lock__channel:{{{NAME}}}");
    // Otherwise a release wakes all, for a waiter that is in no list.
    eventually(SOON, "all of them listen", async || {
        let listeners: (String, u64, String, u64) =
            redis.ask(&["PUBSUB", "NUMSUB", &channel, &list]).await;
        (listeners.1, listeners.3) == (3, 3)
    })
    .await;
    let missed = async || {
        let stats = redis.errorstats().await;
        stats.get("NOSCRIPT").copied().unwrap_or(0)
    };
    let before = missed().await;
    let monitor = redis.monitor().await;
    for left in (0..3).rev() {
        redis.cmd(&["SCRIPT", "FLUSH"]).await;
        held.unlock().await.unwrap();
        let next = tokio::time::timeout(SOON, waiting.join_next()).await;
        let next = next.expect("a message wakes it").expect("it waits");
        held = next.unwrap().unwrap();
        // The others are listed again if they have asked.
        let are_listed = async || listed().await == left;
        eventually(SOON, "the others are listed", are_listed).await;
    }
    assert_eq!(held.unlock().await.unwrap(), Unlocked::Released);
    // Each of the three unlocks that followed a flush.
    assert!(missed().await >= before + 3, "the scripts were there");
    let wakes_one = |line: &String| {
        let is_of_list = line.contains("\"publish\" \"lockdog_waiters:");
        is_of_list && line.ends_with("\"1\"")
    };
    eventually(SOON, "a release woke a client of the list", async || {
        monitor.seen().iter().any(wakes_one)
    })
    .await;
    drop(monitor);
    assert!(redis.keys().await.is_empty());
    redis.assert_clean().await;
}

/// Acquire and unlock fail with `code` while the state lasts, and succeed when it ends.
async fn waited_out(fixture: &Fixture, code: &str, enter: impl AsyncFn(), leave: impl AsyncFn()) {
    let lock = fixture.lock();
    let guard = lock.lock().await.unwrap();
    let free = fixture.client.lock("other");
    let impatient = Client::connect(fixture.server.url()).await.unwrap();
    let before = errors(fixture, code).await;
    enter().await;
    let mut error = impatient.lock("1").try_lock().await.unwrap_err();
    for name in ["2", "3", "4"] {
        // On a busy machine the last answer may be too late.
        if matches!(error, Error::Timeout { .. } | Error::Unavailable { .. }) {
            error = impatient.lock(name).try_lock().await.unwrap_err();
        }
    }
    let Error::Refused { code: returned, .. } = &error else {
        panic!("the server answered: {error}");
    };
    assert_eq!(returned, code);
    assert!(error.is_retriable() && !error.may_be_held() && !error.is_timeout());
    let later = async {
        tokio::time::sleep(MOMENT).await;
        leave().await;
    };
    let waiting = free.try_lock().wait(SOON);
    let (unlocked, waited, ()) = tokio::join!(guard.unlock(), waiting.into_future(), later);
    assert_eq!(unlocked.unwrap(), Unlocked::Released);
    drop(waited.unwrap().expect("it is free"));
    assert!(errors(fixture, code).await > before);
    fixture.assert_recovered().await;
}

async fn errors(fixture: &Fixture, code: &str) -> u64 {
    let stats = fixture.redis.errorstats().await;
    // Redis 6.2 counts an error inside a script as a plain ERR.
    let count = |name| stats.get(name).copied().unwrap_or(0);
    count(code) + count("ERR")
}

/// Runs `call` after the server has started `command`, and checks that the call waited for it.
async fn during<T>(fixture: &Fixture, command: &[&str], call: impl Future<Output = T>) -> T {
    let admin = fixture.server.redis().await;
    let before = fixture.proxy.commands().len();
    let command: Vec<String> = command.iter().map(|&arg| arg.to_owned()).collect();
    let began = Instant::now();
    let stalled = tokio::spawn(async move {
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        admin.cmd(&command).await
    });
    // On a busy machine the PING may come after the stall.
    eventually(SOON, "the server stalls", async || {
        let answer = fixture.redis.try_cmd(&["PING"]);
        let answer = tokio::time::timeout(Duration::from_millis(50), answer).await;
        answer.is_err() || stalled.is_finished()
    })
    .await;
    let answer = call.await;
    let took = began.elapsed();
    assert!(took >= STALL, "it did not wait for the stall: {took:?}");
    assert!(fixture.proxy.commands().len() > before);
    stalled.await.unwrap();
    answer
}

/// How long the server of `a_call_waits_for_a_paused_or_sleeping_server` stalls.
const STALL: Duration = Duration::from_millis(700);

/// The connection that carries the callers' commands.
async fn caller(redis: &Redis) -> i64 {
    let clients = redis.clients().await;
    let found = clients.iter().find(|client| client.cmd.starts_with("eval"));
    found.expect("it ran a script last").id
}

async fn rejected(redis: &Redis) -> u64 {
    let info: String = redis.ask(&["INFO", "stats"]).await;
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("rejected_connections:"));
    line.and_then(|count| count.parse().ok())
        .expect("the server counts them")
}
