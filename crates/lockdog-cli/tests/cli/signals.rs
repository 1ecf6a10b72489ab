//! Signals to `lockdog run`, and the death of lockdog.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::program::{Files, group, is_running, kill, lockdog, parent, state};
use crate::support::prelude::{LONG, SOON};
use crate::support::{RedisServer, eventually};

#[tokio::test]
async fn signals_reach_a_trap_of_the_command_and_its_code_is_the_exit_code() {
    let server = RedisServer::start().await;
    let files = Files::new();
    for (name, signal) in [
        ("TERM", Signal::TERM),
        ("HUP", Signal::HUP),
        ("INT", Signal::INT),
        ("USR1", Signal::USR1),
    ] {
        let log = files.path(name);
        let script = format!(
            "trap 'echo trapped >> \"$0\"; exit 5' {name}; echo ready >> \"$0\"; while :; do sleep 0.05; done"
        );
        let lease = format!("{}s", LONG.as_secs());
        let log = log.to_str().unwrap();
        let args = ["run", "--lease", &lease, "orders", "sh", "-c", &script, log];
        let running = lockdog(&server, &args).start();
        files.lines(name).await;
        running.signal(signal);
        running.end().await.code(5);
        assert_eq!(files.text(name), "ready\ntrapped\n");
        // The lease is far longer than the test, so the lock was released.
        assert!(server.redis().await.keys().await.is_empty(), "{name}");
    }
}

/// timeout(1) leads the group, and passes TERM on.
#[tokio::test]
async fn a_program_with_a_group_of_its_own_gets_term_and_dies_with_lockdog() {
    let server = RedisServer::start().await;
    for (signal, code) in [(Signal::TERM, Some(5)), (Signal::KILL, None)] {
        let files = Files::new();
        let pid = files.path("pid").display().to_string();
        let script = "trap 'exit 5' TERM; echo $$ > \"$0\"; while :; do sleep 0.05; done";
        let command = ["timeout", "600", "sh", "-c", script, &pid];
        let args = [&["run", "--lease", "6s", "orders"][..], &command].concat();
        let running = lockdog(&server, &args).start();
        let pid = files.number("pid").await;
        assert_eq!(group(pid), parent(pid));
        running.signal(signal);
        assert_eq!(running.end().await.status.code(), code);
        eventually(SOON, "it is gone", async || !is_running(pid)).await;
    }
}

#[tokio::test]
async fn a_signal_without_a_trap_ends_the_command_and_all_below_it() {
    let server = RedisServer::start().await;
    let files = Files::new();
    let pid = files.path("pid");
    let script = "sleep 60 & echo $! > \"$0\"; wait";
    let args = ["run", "orders", "sh", "-c", script, pid.to_str().unwrap()];
    let running = lockdog(&server, &args).start();
    let below = files.number("pid").await;
    assert!(is_running(below));
    running.signal(Signal::TERM);
    running.end().await.code(128 + 15);
    eventually(SOON, "the grandchild is gone", async || !is_running(below)).await;
    assert!(server.redis().await.keys().await.is_empty());
}

/// The launcher catches signals before it starts the command. They are sent as soon as it does.
#[tokio::test]
async fn a_signal_while_the_command_is_started_is_not_lost() {
    let server = RedisServer::start().await;
    for round in 0..80 {
        let running = lockdog(&server, &["run", "orders", "sleep", "600"]).start();
        let began = Instant::now();
        // `eventually` would see the launcher too late.
        while !has_launcher_that_catches_term(running.pid()) {
            assert!(began.elapsed() < SOON, "no launcher is started");
            std::hint::spin_loop();
        }
        std::thread::sleep(Duration::from_micros(50 * (round % 4)));
        running.signal(Signal::TERM);
        running.end().await.code(128 + 15);
    }
    assert!(server.redis().await.keys().await.is_empty());
}

/// A launcher has other arguments than the lockdog that it belongs to. Until it runs, it is a copy of that one.
fn has_launcher_that_catches_term(lockdog: u32) -> bool {
    let read = |pid: &str, file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}"));
    let arguments = |pid: &str| read(pid, "cmdline").unwrap_or_default();
    let own = arguments(&lockdog.to_string());
    children(lockdog).iter().any(|launcher| {
        let status = read(launcher, "status").unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        arguments(launcher) != own && caught.is_some_and(|mask| mask >> 14 & 1 == 1)
    })
}

#[tokio::test]
async fn a_lockdog_that_is_killed_takes_its_command_along() {
    let server = RedisServer::start().await;
    let files = Files::new();
    let pids = files.path("pids");
    // Only KILL ends these two processes.
    let script = "trap '' TERM HUP INT; sleep 60 & echo $$ $! > \"$0\"; wait";
    let args = [
        "run",
        "--lease",
        "6s",
        "orders",
        "sh",
        "-c",
        script,
        pids.to_str().unwrap(),
    ];
    let running = lockdog(&server, &args).start();
    let line = files.lines("pids").await[0].clone();
    let pids: Vec<u32> = line.split(' ').map(|pid| pid.parse().unwrap()).collect();
    running.signal(Signal::KILL);
    assert_eq!(running.end().await.status.code(), None);
    // No client released the lock, so it expires with its lease.
    for pid in pids {
        eventually(SOON, "it is gone", async || !is_running(pid)).await;
    }
    let redis = server.redis().await;
    eventually(SOON, "the lock is free", async || {
        !redis.exists("orders").await
    })
    .await;
}

/// The shell that started timeout(1) has ended, and timeout leads a group of its own.
#[tokio::test]
async fn a_lockdog_that_is_killed_takes_along_what_lost_its_parent() {
    let server = RedisServer::start().await;
    let files = Files::new();
    let pid = files.path("pid").display().to_string();
    let script = "sh -c \"$1\" \"$0\" \"$2\"; echo $$ > \"$0.next\"; sleep 600";
    let starts = "timeout 600 sh -c \"$1\" \"$0\" &";
    let stays = "echo $$ > \"$0\"; while :; do sleep 0.05; done";
    let command = ["sh", "-c", script, &pid, starts, stays];
    let args = [&["run", "--lease", "6s", "orders"][..], &command].concat();
    let running = lockdog(&server, &args).start();
    files.number("pid.next").await;
    let pid = files.number("pid").await;
    assert_eq!(group(pid), parent(pid));
    running.signal(Signal::KILL);
    assert_eq!(running.end().await.status.code(), None);
    eventually(SOON, "it is gone", async || !is_running(pid)).await;
}

/// In the group of timeout(1), each shell starts the next one and ends.
#[tokio::test]
async fn a_lockdog_that_is_killed_takes_along_what_starts_meanwhile() {
    let server = RedisServer::start().await;
    for _ in 0..5 {
        let files = Files::new();
        let pid = files.path("pid").display().to_string();
        let script = "timeout 600 sh -c \"$1\" \"$0\" \"$1\"; echo $$ > \"$0.next\"; sleep 600";
        // The last one ends when the test has deleted the folder.
        let next = "echo $$ > \"$0\" || exit; sleep 0.01; sh -c \"$1\" \"$0\" \"$1\" &";
        let command = ["sh", "-c", script, &pid, next];
        let args = [&["run", "--lease", "6s", "orders"][..], &command].concat();
        let running = lockdog(&server, &args).start();
        files.number("pid.next").await;
        running.signal(Signal::KILL);
        assert_eq!(running.end().await.status.code(), None);
        eventually(SOON, "no shell starts another one", async || {
            let before = files.text("pid");
            tokio::time::sleep(Duration::from_millis(300)).await;
            files.text("pid") == before
        })
        .await;
        server.redis().await.cmd(&["DEL", "orders"]).await;
    }
}

#[tokio::test]
async fn a_signal_during_the_wait_for_the_lock_leaves_nothing() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    redis.cmd(&["HSET", "orders", "other:1", "1"]).await;
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let running = lockdog(&server, &["run", "orders", "true"]).start();
        eventually(SOON, "it waits", async || {
            !redis.channels().await.is_empty()
        })
        .await;
        running.signal(signal);
        running.end().await.code(code);
        eventually(SOON, "it left", async || redis.channels().await.is_empty()).await;
    }
    assert_eq!(redis.hash("orders").await.len(), 1);
}

#[tokio::test]
async fn a_signal_that_was_ignored_at_the_start_is_ignored_by_the_command_too() {
    let server = RedisServer::start().await;
    let run = [crate::program::LOCKDOG, "run", "orders", "sh", "-c"];
    let run = [&run[..], &["grep SigIgn: /proc/self/status"]].concat();
    // As under nohup.
    let (_, mask) = ignoring(&server, "HUP", &run).await;
    // Higher signals belong to the C library.
    let standard = mask & ((1 << 31) - 1);
    assert_eq!(standard, 1, "{mask:x}");
}

/// Runs a program that ignores this signal at its start. Returns its exit code, and the signals that its output, a line
/// of `/proc/self/status`, calls ignored.
async fn ignoring(server: &RedisServer, signal: &str, args: &[&str]) -> (Option<i32>, u64) {
    let output = tokio::process::Command::new("env")
        .arg("--default-signal")
        .arg(format!("--ignore-signal={signal}"))
        .args(args)
        .env("LOCKDOG_URL", server.url())
        .output()
        .await
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mask = u64::from_str_radix(text.trim().rsplit('\t').next().unwrap(), 16).unwrap();
    (output.status.code(), mask)
}

/// Without a handler the kernel keeps no exit code of the launcher, nor of the command.
#[tokio::test]
async fn an_ignored_end_of_children_hides_no_exit_code() {
    let server = RedisServer::start().await;
    let started = async |args: &[&str]| {
        let (code, mask) = ignoring(&server, "CHLD", args).await;
        (code, mask >> 16 & 1 == 1)
    };
    let grep = ["grep", "SigIgn:", "/proc/self/status"];
    assert_eq!(started(&grep).await, (Some(0), true));
    // Not by a shell, which sets CHLD to its default itself.
    let run = [&[crate::program::LOCKDOG, "run", "orders"][..], &grep].concat();
    assert_eq!(started(&run).await, (Some(0), false));
    let run = [crate::program::LOCKDOG, "run", "orders", "sh", "-c"];
    let run = [&run[..], &["grep SigIgn: /proc/self/status; exit 5"]].concat();
    assert_eq!(started(&run).await, (Some(5), false));
    // A program below the outer run ignores it again.
    let outer = [crate::program::LOCKDOG, "run", "orders"];
    let between = ["env", "--ignore-signal=CHLD"];
    let nested = [crate::program::LOCKDOG, "run", "--reenter", "orders"];
    let run = [&outer[..], &between, &nested, &grep].concat();
    assert_eq!(started(&run).await, (Some(0), false));
    assert!(server.redis().await.keys().await.is_empty());
}

#[tokio::test]
async fn a_signal_after_the_command_ends_the_rest_of_at_least() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let files = Files::new();
    let done = files.path("done");
    let args = [
        "run",
        "--at-least",
        "5m",
        "orders",
        "sh",
        "-c",
        "echo > \"$0\"",
        done.to_str().unwrap(),
    ];
    let running = lockdog(&server, &args).start();
    files.lines("done").await;
    // Not before the command has ended.
    let launchers = || children(running.pid());
    eventually(SOON, "the command is gone", async || launchers().is_empty()).await;
    assert!(redis.exists("orders").await);
    running.signal(Signal::TERM);
    running.end().await.code(0);
    assert!(redis.keys().await.is_empty());
}

#[tokio::test]
async fn a_stop_stops_the_command_with_lockdog_until_both_continue() {
    let server = RedisServer::start().await;
    let files = Files::new();
    let ready = files.path("ready").display().to_string();
    let (reader, writer) = std::io::pipe().unwrap();
    // It starts no process. A shell waits for a child that is stopped before it runs its program, and is not stopped
    // itself.
    let script = "echo $$ > \"$0\"; read line; exit 5";
    let lease = format!("{}s", LONG.as_secs());
    let args = [
        "run", "--lease", &lease, "orders", "sh", "-c", script, &ready,
    ];
    let running = lockdog(&server, &args).stdin(reader).start();
    let command = files.number("ready").await;
    running.signal(Signal::TSTP);
    for pid in [command, running.pid()] {
        eventually(SOON, "it is stopped", async || state(pid) == Some('T')).await;
    }
    running.signal(Signal::CONT);
    drop(writer);
    running.end().await.code(5);
    assert!(server.redis().await.keys().await.is_empty());
}

/// The processes that this one started and that are not reaped.
fn children(pid: u32) -> Vec<String> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let list = list.expect("the kernel lists them");
    list.split_whitespace().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_launcher_that_is_killed_ends_the_run() {
    let server = RedisServer::start().await;
    let files = Files::new();
    let ready = files.path("ready");
    let script = "echo $$ > \"$0\"; exec sleep 60";
    let args = ["run", "orders", "sh", "-c", script, ready.to_str().unwrap()];
    let running = lockdog(&server, &args).start();
    let command = files.number("ready").await;
    let launcher: u32 = children(running.pid())[0].parse().unwrap();
    kill(launcher, Signal::KILL);
    running.end().await.code(137);
    // No lockdog supervises the command any more.
    eventually(SOON, "the command is gone", async || !is_running(command)).await;
}
