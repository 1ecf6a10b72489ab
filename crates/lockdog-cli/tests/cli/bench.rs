//! `lockdog bench`.

use std::fs;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::program::{Files, lockdog, lockdog_at};
use crate::support::prelude::SOON;
use crate::support::sentinels::{MASTER, Sentinel};
use crate::support::{Cluster, Redis, RedisServer, dead_port, eventually};

const ROWS: [(&str, u64); 6] = [
    ("round trip", 1),
    ("lock and unlock", 1),
    ("lock and unlock", 16),
    ("lock and unlock", 64),
    ("hand-over", 2),
    ("wake-up", 2),
];

#[track_caller]
fn assert_has_all_rows(lines: &[Value]) {
    let rows = lines.iter().map(|it| {
        (
            it["measure"].as_str().unwrap(),
            it["tasks"].as_u64().unwrap(),
        )
    });
    assert_eq!(rows.collect::<Vec<_>>(), ROWS);
    let first = lines[0]["p50_us"].as_f64().unwrap();
    for line in lines {
        let [p50, p99, max, ratio] =
            ["p50_us", "p99_us", "max_us", "round_trips"].map(|it| line[it].as_f64().unwrap());
        assert!(0.0 < p50 && p50 <= p99 && p99 <= max, "{line}");
        // The times are whole microseconds.
        assert!(
            (ratio - p50 / first).abs() <= 0.01 + (1.0 + ratio) / first,
            "{line}"
        );
        assert_eq!(line["schema"], 1);
    }
}

#[tokio::test]
async fn each_row_counts_what_the_server_was_asked() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let args = ["bench", "--duration", "600ms"];
    let json = [&args[..], &["--json"]].concat();
    let ended = lockdog(&server, &json).end().await.code(0);
    let lines = ended.json_lines();
    assert_has_all_rows(&lines);
    assert_eq!(ended.stderr, "");
    let counts: Vec<u64> = lines
        .iter()
        .map(|it| it["count"].as_u64().unwrap())
        .collect();
    for (line, count) in lines.iter().zip(&counts) {
        assert!(*count >= 1, "{line}");
        match line["per_second"].as_f64() {
            // Each row takes at least a sixth of the time.
            Some(per_second) => assert!(per_second <= *count as f64 / 0.1 + 1.0, "{line}"),
            None => assert_eq!(line["tasks"], 2),
        }
    }
    for (line, tasks) in lines[1..4].iter().zip([1, 16, 64]) {
        assert!(line["count"].as_u64().unwrap() >= tasks, "{line}");
    }
    let stats = redis.commandstats().await;
    let calls = |name| stats.get(name).copied().unwrap_or(0);
    // Scripts call EXISTS, too.
    assert!(calls("exists") >= counts[0], "{stats:?}");
    let pairs = counts[1..4].iter().sum::<u64>();
    let asked = 2 * (pairs + counts[5]) + counts[4];
    // Commands of many tasks share one script, which calls these for each of them.
    assert!(
        calls("hincrby") + calls("hdel") >= asked,
        "{asked}: {stats:?}"
    );
    // A waiter of another client listens.
    assert!(calls("subscribe") >= 1, "{stats:?}");
    assert_has_no_key(&redis).await;

    let ended = lockdog(&server, &args).end().await.code(0);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert!(
        lines[0].starts_with("MEASURE") && lines.len() == 7,
        "{}",
        ended.stdout
    );
    for (line, (measure, tasks)) in lines[1..].iter().zip(ROWS) {
        let start = format!("{measure:<15} {tasks:>5} ");
        assert!(line.starts_with(&start), "{line}");
    }
}

/// The check does not wait for the lease, because the bench has ended.
async fn assert_has_no_key(redis: &Redis) {
    assert_eq!(redis.keys().await, [""; 0]);
}

#[tokio::test]
async fn ctrl_c_leaves_no_key() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let args = ["bench", "--duration", "24s", "--lock-prefix", "ours:"];
    // The server does not answer for as long as this test may be frozen.
    let args = [&["--command-timeout", "20s"][..], &args].concat();
    let running = lockdog(&server, &args).start();
    // The server answers no script, so that the keys stay.
    let mut keys = Vec::new();
    while keys.len() < 4 {
        redis.cmd(&["CLIENT", "UNPAUSE"]).await;
        eventually(SOON, "several locks are held", async || {
            redis.keys().await.len() >= 4
        })
        .await;
        redis.cmd(&["CLIENT", "PAUSE", "60000", "WRITE"]).await;
        keys = redis.keys().await;
    }
    assert!(keys.iter().all(|key| key.starts_with("ours:")), "{keys:?}");
    for key in &keys {
        assert!((1..=30_000).contains(&redis.pttl(key).await), "{key}");
    }
    running.signal(Signal::INT);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(redis.keys().await.len(), keys.len());
    redis.cmd(&["CLIENT", "UNPAUSE"]).await;
    let ended = running.end().await.code(130);
    assert_eq!(ended.stderr, "");
    assert_has_no_key(&redis).await;
}

/// Only an acquire of a held lock calls PTTL, so the server refuses the waiter of the last row while
/// the other client holds the lock.
#[tokio::test]
async fn an_error_leaves_no_key() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    add_user_without(&redis, "-pttl").await;
    let ended = lockdog(&server, &["--user", "shy", "bench", "--duration", "100ms"]);
    let ended = ended.env("LOCKDOG_PASSWORD", "pw").end().await.code(125);
    assert!(ended.stdout.contains("hand-over") && !ended.stdout.contains("wake-up"));
    ended.complains("NOPERM");
    assert_has_no_key(&redis).await;
}

async fn add_user_without(redis: &Redis, command: &str) {
    let user = ["shy", "on", ">pw", "~*", "&*", "+@all", command];
    redis.cmd(&[&["ACL", "SETUSER"], &user[..]].concat()).await;
}

#[tokio::test]
async fn a_server_that_may_be_shared_is_loaded_only_if_the_user_says_so() {
    let server = RedisServer::start().await;
    let files = Files::new();
    let file = files.path("lockdog.yaml");
    fs::write(&file, format!("url: {}\n", server.url())).unwrap();
    let file = file.display().to_string();
    let port = server.port();
    let cluster = format!("redis+cluster://127.0.0.1:{port}");
    let sentinel = format!("redis+sentinel://127.0.0.1:{port}/orders");
    let bench = ["bench", "--duration", "100ms", "--json"];
    for place in [
        ["--url", "redis://10.0.0.7"],
        ["--url", &cluster],
        ["--url", &sentinel],
        ["--config", &file],
    ] {
        let args = [&bench[..], &place].concat();
        let ended = lockdog(&server, &args).end().await.code(125);
        ended.complains("--yes");
    }
    let redis = server.redis().await;
    let stats = redis.commandstats().await;
    assert!(!stats.contains_key("evalsha"), "{stats:?}");
    let args = [&bench[..], &["--yes", "--config", &file]].concat();
    let ended = lockdog(&server, &args).end().await.code(0);
    assert_has_all_rows(&ended.json_lines());
    assert_has_no_key(&redis).await;
}

#[tokio::test]
async fn sentinels_and_clusters_are_measured() {
    let server = RedisServer::start().await;
    let (sentinel, cluster) =
        tokio::join!(Sentinel::start_at(server.port(), 0), Cluster::start(3, 0));
    let sentinel = format!("redis+sentinel://127.0.0.1:{}/{MASTER}", sentinel.port());
    for url in [sentinel, cluster.url()] {
        let args = ["bench", "--duration", "100ms", "--yes", "--json"];
        let ended = lockdog_at(&url, &args).end().await.code(0);
        assert_has_all_rows(&ended.json_lines());
    }
    let nodes = cluster.nodes.iter().map(|node| &node.server);
    for server in nodes.chain([&server]) {
        assert_has_no_key(&server.redis().await).await;
    }
}

#[tokio::test]
async fn what_cannot_be_measured_is_reported_in_one_line() {
    let server = RedisServer::start().await;
    for time in ["0s", "99ms", "61s", "2m"] {
        let ended = lockdog(&server, &["bench", "--duration", time]).end().await;
        ended.code(2).complains("--duration is from 100ms to 1m");
    }
    for args in [&["--duration", "10"][..], &["orders"], &["--no-such-flag"]] {
        let args = [&["bench"], args].concat();
        lockdog(&server, &args).end().await.code(2);
    }
    let nowhere = format!("redis://127.0.0.1:{}", dead_port());
    let three = "redis://127.0.0.1:1 redis://127.0.0.1:2 redis://127.0.0.1:3";
    for (url, text) in [
        (&*nowhere, "LOCKDOG_URL"),
        (three, "one --url"),
        ("http://x", "url"),
    ] {
        let ended = lockdog_at(url, &["bench"]).end().await;
        ended.code(125).complains(text);
    }
    let redis = server.redis().await;
    add_user_without(&redis, "-exists").await;
    let refused = lockdog(&server, &["--user", "shy", "bench", "--duration", "100ms"]);
    let ended = refused.env("LOCKDOG_PASSWORD", "pw").end().await.code(125);
    ended.complains("lockdog doctor");
    assert_has_no_key(&redis).await;
}
