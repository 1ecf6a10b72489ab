//! `lockdog run` on a healthy server.

use crate::program::{
    FIELD, Files, LOCKDOG, end_of_wait, hold_orders, lockdog, lockdog_at, three_servers, urls,
};
use crate::support::prelude::{SOON, ms};
use crate::support::{RedisServer, eventually};

#[tokio::test]
async fn two_runs_that_repeat_lose_no_update() {
    let server = RedisServer::start().await;
    let files = Files::new();
    std::fs::write(files.path("cell"), "0\n").unwrap();
    let cell = files.path("cell");
    // Reads, sleeps, writes.
    let script = "read n < \"$0\"; sleep 0.02; echo $((n + 1)) > \"$0\"";
    let runs = async || {
        for _ in 0..ROUNDS {
            let args = [
                "run",
                "cell",
                "--",
                "sh",
                "-c",
                script,
                cell.to_str().unwrap(),
            ];
            let ended = lockdog(&server, &args).end().await.code(0);
            assert_eq!(ended.stderr, "");
        }
    };
    tokio::join!(runs(), runs());
    assert_eq!(files.text("cell"), format!("{}\n", 2 * ROUNDS));
}

#[tokio::test]
async fn the_command_knows_its_lock_and_the_report_says_how_it_went() {
    let server = RedisServer::start().await;
    let files = Files::new();
    let report = files.path("report");
    let args = [
        "run",
        "--report",
        report.to_str().unwrap(),
        "--fenced",
        "orders",
        "-c",
        "env; exit 7",
    ];
    for _ in 0..2 {
        let ended = lockdog(&server, &args)
            .env("SHELL", "/bin/sh")
            .end()
            .await
            .code(7);
        let has = |text: &str| ended.stdout.lines().any(|line| line.starts_with(text));
        assert!(
            has("LOCKDOG_LOCK=orders") && has("LOCKDOG_HELD=1"),
            "{}",
            ended.stdout
        );
        assert!(
            has("LOCKDOG_LEASE_MS=10000") && has("LOCKDOG_FIELD="),
            "{}",
            ended.stdout
        );
        assert!(has("LOCKDOG_TOKEN="), "{}", ended.stdout);
    }
    let lines = files.lines("report").await;
    assert_eq!(lines.len(), 2);
    let line: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!(
        (&line["outcome"], &line["exit"]),
        (&"exited".into(), &7.into())
    );
    assert!(line["token"].as_u64().is_some() && line["held_ms"].as_u64().is_some());
}

#[tokio::test]
async fn several_locks_are_held_together() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let files = Files::new();
    let ready = files.path("ready");
    let script = "echo > \"$0\"; read line";
    let (reader, writer) = std::io::pipe().unwrap();
    let args = [
        "run",
        "--also",
        "b",
        "a",
        "sh",
        "-c",
        script,
        ready.to_str().unwrap(),
    ];
    let running = lockdog(&server, &args).stdin(reader).start();
    files.lines("ready").await;
    assert_eq!(redis.keys().await, ["a", "b"]);
    end_of_wait(|| lockdog(&server, &["run", "-n", "b", "true"]))
        .await
        .code(75);
    drop(writer);
    // `read` finds the end of its input.
    running.end().await.code(1);
    assert!(redis.keys().await.is_empty());
}

#[tokio::test]
async fn a_quorum_of_servers_holds_one_lock_while_one_of_them_is_down() {
    let servers = three_servers().await;
    servers[2].kill();
    let urls = urls(&servers);
    let run = lockdog_at(
        &urls,
        &["run", "--fenced", "orders", "-c", "echo $LOCKDOG_TOKEN"],
    );
    let ended = run.end().await.code(0);
    assert!(ended.stdout.trim().parse::<u64>().is_ok(), "{ended:?}");
    servers[1].kill();
    let ended = lockdog_at(&urls, &["run", "-w", "100ms", "orders", "true"])
        .end()
        .await;
    ended.code(125);
}

#[tokio::test]
async fn at_least_keeps_the_lock_after_a_quick_command() {
    let server = RedisServer::start().await;
    let began = std::time::Instant::now();
    let run = lockdog(
        &server,
        &["run", "--at-least", "500ms", "orders", "sh", "-c", "exit 3"],
    );
    run.end().await.code(3);
    assert!(began.elapsed() >= ms(500));
    assert!(server.redis().await.keys().await.is_empty());
}

/// Other hosts that wait can start theirs.
#[tokio::test]
async fn at_least_keeps_no_lock_for_a_command_that_cannot_be_started() {
    let server = RedisServer::start().await;
    let args = ["run", "--at-least", "10m", "orders", "no-such-command"];
    lockdog(&server, &args).end().await.code(127);
    assert!(server.redis().await.keys().await.is_empty());
}

#[tokio::test]
async fn a_long_wait_says_for_whom_with_v() {
    let server = RedisServer::start().await;
    let redis = hold_orders(&server).await;
    redis.cmd(&["PEXPIRE", "orders", "300000"]).await;
    let args = ["-v", "run", "-w", "5s", "orders", "true"];
    let ended = end_of_wait(|| lockdog(&server, &args)).await.code(75);
    let line = format!("waiting for orders, held by Redisson {FIELD} (ttl ");
    assert!(ended.stderr.contains(&line), "{}", ended.stderr);
}

#[tokio::test]
async fn the_command_has_the_input_and_output_of_lockdog() {
    let server = RedisServer::start().await;
    let files = Files::new();
    std::fs::write(files.path("input"), "one\ntwo\n").unwrap();
    let input = std::fs::File::open(files.path("input")).unwrap();
    let run = lockdog(&server, &["run", "orders", "-c", "cat; echo no >&2"]).stdin(input);
    let ended = run.env("SHELL", "/bin/sh").end().await.code(0);
    assert_eq!((&*ended.stdout, &*ended.stderr), ("one\ntwo\n", "no\n"));
}

#[tokio::test]
async fn a_log_that_is_not_read_does_not_end_the_command() {
    let server = RedisServer::start().await;
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = tokio::process::Command::new(LOCKDOG)
        .args(["-vvv", "run", "orders", "sh", "-c", "exit 5"])
        .env("LOCKDOG_URL", server.url())
        .stdin(std::process::Stdio::null())
        .stderr(writer)
        .status()
        .await
        .unwrap();
    assert_eq!(status.code(), Some(5));
}

#[tokio::test]
async fn what_a_finished_command_leaves_runs_on() {
    let server = RedisServer::start().await;
    let files = Files::new();
    let pid = files.path("pid");
    let script = "sleep 60 > /dev/null 2>&1 & echo $! > \"$0\"";
    let args = ["run", "orders", "sh", "-c", script, pid.to_str().unwrap()];
    lockdog(&server, &args).end().await.code(0);
    let left = files.number("pid").await;
    assert!(crate::program::is_running(left));
    crate::program::kill(left, rustix::process::Signal::KILL);
    eventually(SOON, "it is gone", async || {
        !crate::program::is_running(left)
    })
    .await;
}

/// Rounds of each of the two loops. A round starts four processes.
const ROUNDS: u32 = 20;
