//! What `lockdog run` does with its command when the lock is lost.

use crate::program::{Files, group, is_running, lockdog, lockdog_at, parent};
use crate::support::prelude::{LONG, SOON, ms};
use crate::support::{Direction, Proxy, RedisServer, eventually};

/// It takes as long as a lease, because KILL comes just before its end.
#[tokio::test]
async fn a_command_that_ignores_term_is_killed_before_another_one_holds_the_lock() {
    // A lockdog that is stopped at the end of the lease kills too late.
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let (is_asked, written) = killed_at_the_end_of_a_lease().await;
        if is_asked && written < 0 {
            return;
        }
        seen.push((is_asked, written));
    }
    panic!("TERM came before the loss, and the first one wrote too long (ns): {seen:?}");
}

/// Whether TERM came before the loss, and for how long the first one wrote after the second one began, in ns.
async fn killed_at_the_end_of_a_lease() -> (bool, i128) {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let proxy = Proxy::start(&server).await;
    let files = Files::new();
    let [log, begun] = ["log", "begun"].map(|name| files.path(name).display().to_string());
    // The last line of the log is the last write. The writer is a child of the shell, and the shell
    // ends at TERM.
    let script = "(trap 'echo term >> \"$0\"' TERM; date +%s%N > \"$0\"; while [ -e \"$0\" ]; do date +%s%N >> \"$0\"; done) & \
                  trap 'exit 0' TERM; wait; wait";
    let args = ["run", "--lease", "6s", "orders", "sh", "-c", script, &log];
    let first = lockdog_at(proxy.url(), &args).start();
    files.lines("log").await;
    let args = ["run", "orders", "sh", "-c", "date +%s%N > \"$0\"", &begun];
    let second = lockdog(&server, &args).start();
    eventually(SOON, "the second one waits", async || {
        !redis.channels().await.is_empty()
    })
    .await;
    // The first lockdog gets no more answers. The server runs, so the key expires with its lease.
    proxy.blackhole(Direction::ToServer);
    let ended = first.end().await.code(76);
    println!("{}", ended.stderr);
    let is_foreseen = ended.stderr.contains("about to be lost");
    second.end().await.code(0);
    assert!(proxy.counts().blackholed > 0);
    let text = files.text("log");
    let lines: Vec<&str> = text.lines().collect();
    let writes = lines.iter().filter_map(|line| line.parse::<u64>().ok());
    let last = writes.max().expect("it wrote");
    let begun: u64 = files.lines("begun").await[0].parse().unwrap();
    proxy.heal();
    let written = i128::from(last) - i128::from(begun);
    (is_foreseen && lines.contains(&"term"), written)
}

/// timeout(1) leads the group, and its program ignores TERM.
#[tokio::test]
async fn a_lost_lock_stops_a_program_with_a_group_of_its_own() {
    let server = RedisServer::start().await;
    let files = Files::new();
    let pid = files.path("pid").display().to_string();
    let inner = "trap \"\" TERM; echo $$ > \"$0\"; while :; do sleep 0.05; done";
    let script = format!("timeout 600 sh -c '{inner}' \"$0\"; echo $?");
    let args = ["run", "--lease", "6s", "orders", "sh", "-c", &script, &pid];
    let running = lockdog(&server, &args).start();
    let pid = files.number("pid").await;
    assert_eq!(group(pid), parent(pid));
    server.redis().await.cmd(&["DEL", "orders"]).await;
    running.end().await.code(76);
    assert!(!is_running(pid));
}

#[tokio::test]
async fn a_deleted_key_stops_the_command_at_the_next_renewal() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let files = Files::new();
    let [log, report] = ["log", "report"].map(|name| files.path(name).display().to_string());
    let script = "trap 'echo term >> \"$0\"; exit 0' TERM; echo ready >> \"$0\"; \
                  while :; do sleep 0.05; done";
    // The grace is a third of the lease, and the shell needs it to answer TERM.
    let args = [
        "run", "--lease", "12s", "--report", &report, "orders", "sh", "-c", script, &log,
    ];
    let running = lockdog(&server, &args).start();
    files.lines("log").await;
    redis.cmd(&["DEL", "orders"]).await;
    let ended = running.end().await.code(76);
    assert!(ended.stderr.contains("orders was lost"), "{}", ended.stderr);
    assert_eq!(files.text("log"), "ready\nterm\n");
    assert_eq!(files.reported("lost"), "not_ours");
    assert!(redis.keys().await.is_empty());
}

#[tokio::test]
async fn kill_gives_the_command_no_time() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let files = Files::new();
    let pid = files.path("pid").display().to_string();
    let script = "trap '' TERM; echo $$ > \"$0\"; while :; do sleep 0.05; done";
    let args = [
        "run", "--lost", "kill", "--lease", "6s", "orders", "sh", "-c", script, &pid,
    ];
    let running = lockdog(&server, &args).start();
    let pid = files.number("pid").await;
    redis.cmd(&["DEL", "orders"]).await;
    running.end().await.code(76);
    assert!(!is_running(pid));
}

#[tokio::test]
async fn warn_lets_the_command_end_as_it_likes() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let files = Files::new();
    let [ready, report] = ["ready", "report"].map(|name| files.path(name).display().to_string());
    let (reader, writer) = std::io::pipe().unwrap();
    let args = [
        "run",
        "--lost",
        "warn",
        "--lease",
        "12s",
        "--report",
        &report,
        "orders",
        "sh",
        "-c",
        "echo > \"$0\"; read line; exit 6",
        &ready,
    ];
    let running = lockdog(&server, &args).stdin(reader).start();
    files.lines("ready").await;
    redis.cmd(&["DEL", "orders"]).await;
    // More than a lease, and lockdog may be frozen.
    tokio::time::sleep(ms(13_000)).await;
    drop(writer);
    let ended = running.end().await.code(6);
    // Once, and not again at the unlock.
    ended.complains("orders was lost");
    assert_eq!(files.reported("exited"), "not_ours");
}

/// No renewal is due before the command ends.
#[tokio::test]
async fn a_loss_that_only_the_unlock_finds_is_noted_and_in_the_report() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let files = Files::new();
    let [ready, report] = ["ready", "report"].map(|name| files.path(name).display().to_string());
    let (reader, writer) = std::io::pipe().unwrap();
    let lease = format!("{}s", LONG.as_secs());
    let script = "echo > \"$0\"; read line; exit 6";
    let args = [
        "run", "--lease", &lease, "--report", &report, "orders", "sh", "-c", script, &ready,
    ];
    let running = lockdog(&server, &args).stdin(reader).start();
    files.lines("ready").await;
    redis.cmd(&["DEL", "orders"]).await;
    drop(writer);
    let ended = running.end().await.code(6);
    ended.complains("the lock was lost, perhaps while the command ran");
    assert_eq!(files.reported("exited"), "not_ours");
}

#[tokio::test]
async fn a_command_that_runs_too_long_is_stopped_and_the_lock_is_released() {
    let server = RedisServer::start().await;
    let args = [
        "run",
        "--lease",
        "15s",
        "--max-hold",
        "4s",
        "--grace",
        "5s",
        "orders",
        "sh",
        "-c",
    ];
    for (script, patient) in [("exec sleep 60", false), ("trap '' TERM; sleep 60", true)] {
        let began = std::time::Instant::now();
        let ended = lockdog(&server, &[&args[..], &[script]].concat())
            .end()
            .await
            .code(124);
        assert_eq!(
            ended.stderr.contains(": KILL\n"),
            patient,
            "{}",
            ended.stderr
        );
        assert!(began.elapsed() >= ms(4_000));
        assert!(server.redis().await.keys().await.is_empty());
    }
}
