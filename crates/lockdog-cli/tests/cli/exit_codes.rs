//! The exit codes of `lockdog run`.

use std::os::unix::fs::PermissionsExt;

use crate::program::{Files, end_of_wait, lockdog, lockdog_at};
use crate::support::{RedisServer, dead_port};

#[tokio::test]
async fn the_exit_code_is_that_of_the_command() {
    let server = RedisServer::start().await;
    for (script, code) in [
        ("exit 0", 0),
        ("exit 3", 3),
        ("exit 42", 42),
        ("kill -KILL $$", 137),
    ] {
        let ended = lockdog(&server, &["run", "orders", "--", "sh", "-c", script]);
        let ended = ended.end().await.code(code);
        assert_eq!((&*ended.stdout, &*ended.stderr), ("", ""), "{script}");
        assert!(server.redis().await.keys().await.is_empty());
    }
}

#[tokio::test]
async fn a_command_that_cannot_start_has_the_codes_of_shells() {
    let server = RedisServer::start().await;
    let files = Files::new();
    let text = files.path("text");
    std::fs::write(&text, "no program").unwrap();
    std::fs::set_permissions(&text, std::fs::Permissions::from_mode(0o600)).unwrap();
    for (command, code) in [(text.to_str().unwrap(), 126), ("no-such-command", 127)] {
        let ended = lockdog(&server, &["run", "orders", "--", command])
            .end()
            .await;
        ended.code(code).complains(command);
    }
    assert!(server.redis().await.keys().await.is_empty());
}

#[tokio::test]
async fn a_busy_lock_ends_with_75_or_the_wanted_code_and_runs_nothing() {
    let server = RedisServer::start().await;
    let files = Files::new();
    let ran = files.path("ran");
    let ran = ran.to_str().unwrap();
    let redis = server.redis().await;
    redis.cmd(&["HSET", "orders", "other:1", "1"]).await;
    for (args, code) in [
        (&["-n"][..], 75),
        (&["-w", "4s"], 75),
        (&["-n", "-E", "9"], 9),
        (&["--wait", "0"], 75),
    ] {
        let all = [&["run"], args, &["orders", "touch", ran]].concat();
        let ended = end_of_wait(|| lockdog(&server, &all)).await.code(code);
        assert_eq!(ended.stderr, "");
    }
    assert!(!files.path("ran").exists());
    assert_eq!(redis.hash("orders").await.len(), 1);
}

#[tokio::test]
async fn what_lockdog_itself_cannot_do_ends_with_125_and_one_line() {
    let server = RedisServer::start().await;
    for (args, text) in [
        (
            &["run", "--lease", "1s", "orders", "true"][..],
            "--lease is 2s or longer",
        ),
        (
            &["run", "--grace", "9s", "orders", "true"],
            "--grace is a third",
        ),
        (&["run", "--max-hold", "0s", "orders", "true"], "--max-hold"),
        (&["run", "-c", "orders", "true", "x"], "one text"),
        (
            &["run", "--also", "orders", "orders", "true"],
            "repeats a name",
        ),
        (&["run", "", "true"], "lock name"),
        (
            &["run", "--report", "/no/such/folder/x", "orders", "true"],
            "/no/such/folder/x",
        ),
        (
            &["run", "--password-file", "/no/such/file", "orders", "true"],
            "/no/such/file",
        ),
        (
            &[
                "run",
                "--url",
                "redis://a",
                "--url",
                "redis://b",
                "x",
                "true",
            ],
            "majority",
        ),
    ] {
        lockdog(&server, args).end().await.code(125).complains(text);
    }
    for args in [
        &["run"][..],
        &["run", "orders"],
        &["run", "-w", "10", "orders", "true"],
        &["run", "--no-such-flag", "orders", "true"],
        &["run", "-E", "256", "orders", "true"],
        &["run", "--also", "b", "--fenced", "orders", "true"],
    ] {
        let ended = lockdog(&server, args).end().await;
        ended.code(125).complains("see --help");
    }
    let ended = lockdog(&server, &["no-such-command"]).end().await;
    ended.code(2).complains("see --help");
    let nowhere = format!("redis://127.0.0.1:{}", dead_port());
    let ended = lockdog_at(&nowhere, &["run", "orders", "true"]).end().await;
    ended.code(125).complains("LOCKDOG_URL");
    assert!(server.redis().await.keys().await.is_empty());
}

#[tokio::test]
async fn a_key_that_is_no_lock_is_named_as_such() {
    let server = RedisServer::start().await;
    server.redis().await.cmd(&["SET", "orders", "5"]).await;
    let ended = lockdog(&server, &["run", "orders", "true"]).end().await;
    ended.code(125).complains("is no lock");
}

#[tokio::test]
async fn a_nested_run_of_the_same_lock_ends_at_once_unless_it_reenters() {
    let server = RedisServer::start().await;
    let program = crate::program::LOCKDOG;
    let nested = ["run", "a", program, "run", "a", "sh", "-c", "exit 4"];
    let ended = lockdog(&server, &nested).end().await;
    ended.code(125).complains("--reenter");
    let reentered = [
        "run",
        "a",
        program,
        "run",
        "--reenter",
        "a",
        "sh",
        "-c",
        "exit 4",
    ];
    lockdog(&server, &reentered).end().await.code(4);
    let other = ["run", "a", program, "run", "b", program, "run", "a", "true"];
    lockdog(&server, &other)
        .end()
        .await
        .code(125)
        .complains("--reenter");
    assert!(server.redis().await.keys().await.is_empty());
}

#[tokio::test]
async fn a_nested_run_reenters_all_of_its_locks_or_none() {
    let server = RedisServer::start().await;
    let program = crate::program::LOCKDOG;
    let (ab, ba) = (["--also", "b", "a"], ["--also", "a", "b"]);
    let nested = [program, "run", "--reenter"];
    let command = ["sh", "-c", "echo $LOCKDOG_LOCK ${LOCKDOG_TOKEN-none}"];
    let half = [&["run", "a"][..], &nested, &ab, &command].concat();
    let ended = lockdog(&server, &half).end().await.code(125);
    assert_eq!(ended.stdout, "");
    ended.complains("and b is not");
    let both = [&["run"][..], &ab, &nested, &ba, &command].concat();
    let ended = lockdog(&server, &both).end().await.code(0);
    assert_eq!(ended.stdout, "b none\n");
    // The token of the run between them is another lock's.
    let between = [program, "run", "--fenced", "b"];
    let outer = [&["run", "a"][..], &between, &nested, &["a"], &command].concat();
    let ended = lockdog(&server, &outer).end().await.code(0);
    assert_eq!(ended.stdout, "a none\n");
    let fenced = ["run", "--fenced", "a"];
    let same = [&fenced[..], &nested, &["a"], &command].concat();
    let ended = lockdog(&server, &same).end().await.code(0);
    let token = ended.stdout.trim().strip_prefix("a ").unwrap_or_default();
    assert!(token.parse::<u64>().is_ok(), "{ended:?}");
    assert!(server.redis().await.keys().await.is_empty());
}

#[tokio::test]
async fn a_nested_fenced_run_without_a_token_runs_nothing() {
    let server = RedisServer::start().await;
    let program = crate::program::LOCKDOG;
    let nested = [program, "run", "--reenter", "--fenced", "a"];
    let command = ["sh", "-c", "echo token $LOCKDOG_TOKEN"];
    let plain = ["run", "a"];
    let fenced = ["run", "--fenced", "a"];
    // Its token is another lock's.
    let between = [&fenced[..], &[program, "run", "--fenced", "b"]].concat();
    for outer in [&plain[..], &between[..]] {
        let args = [outer, &nested, &command].concat();
        let ended = lockdog(&server, &args).end().await.code(125);
        assert_eq!(ended.stdout, "");
        ended.complains("no token of a");
    }
    let args = [&fenced[..], &nested, &command].concat();
    let ended = lockdog(&server, &args).end().await.code(0);
    let token = ended.stdout.trim().strip_prefix("token ");
    let token = token.map(str::parse::<u64>);
    assert!(matches!(token, Some(Ok(_))), "{ended:?}");
    assert!(server.redis().await.keys().await.is_empty());
}

#[tokio::test]
async fn a_run_that_outlived_the_one_above_waits_as_any_other() {
    let server = RedisServer::start().await;
    let left = r#"[{"lock":"a","field":"5f6b8a3e-26a7-4f6b-9c1e-0d2f3a4b5c6d:o1.1"}]"#;
    let run = lockdog(&server, &["run", "-n", "a", "true"]).env("LOCKDOG_HOLDS", left);
    run.end().await.code(0);
}
