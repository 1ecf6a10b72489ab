//! `--config`, LOCKDOG_CONFIG and `lockdog config check`: the files of Redisson and lockdog.

use std::fs;

use crate::program::{Ended, Files, lockdog_at};
use crate::support::RedisServer;

const SECRET: &str = "geheimnis-4711";
/// No server listens at this address.
const NOWHERE: &str = "redis://127.0.0.1:1";

/// The path of a file with this text.
fn written(files: &Files, name: &str, text: &str) -> String {
    fs::write(files.path(name), text).unwrap();
    files.path(name).display().to_string()
}

#[track_caller]
fn assert_silent(ended: &Ended) {
    assert!(!ended.stdout.contains(SECRET), "{ended:#?}");
    assert!(!ended.stderr.contains(SECRET), "{ended:#?}");
}

#[tokio::test]
async fn every_command_takes_its_servers_from_a_file_and_shows_no_password_of_it() {
    let server = RedisServer::builder().password(SECRET).start().await;
    let files = Files::new();
    let port = server.port();
    let java = format!(
        "singleServerConfig:\n  address: redis://127.0.0.1:{port}\n  password: ${{REDIS_PW}}\n"
    );
    let java = written(&files, "redisson.yaml", &java);
    let own = format!("url: redis://127.0.0.1:{port}\npassword: {SECRET}\ncommand_timeout: 9s\n");
    let own = written(&files, "lockdog.yaml", &own);
    for file in [&java, &own] {
        for args in [
            &["run", "orders", "true"][..],
            &["ls"],
            &["inspect", "orders", "--json"],
            &["release", "orders", "--force", "--yes", "--holder", "x"],
            &["watch", "orders", "--until", "free"],
            &["top", "--once"],
            &["doctor"],
        ] {
            // The flag overrides LOCKDOG_URL.
            let by_flag = [&["-vvv", "--config", file], args].concat();
            let by_flag = lockdog_at(NOWHERE, &by_flag).env("REDIS_PW", SECRET);
            let by_variable = lockdog_at("", &[&["-vvv"], args].concat());
            let by_variable = by_variable
                .env("LOCKDOG_CONFIG", file)
                .env("REDIS_PW", SECRET);
            for ended in [by_flag.end().await, by_variable.end().await] {
                assert!(
                    [Some(0), Some(1)].contains(&ended.status.code()),
                    "{args:?}: {ended:#?}"
                );
                assert_silent(&ended);
            }
        }
    }
    // Flags and environment variables override the file.
    let ended = lockdog_at("", &["--config", &own, "ls"]).env("LOCKDOG_PASSWORD", "wrong");
    ended.end().await.code(125).complains("LOCKDOG_PASSWORD");
    let missing = lockdog_at("", &["--config", &java, "ls"])
        .end()
        .await
        .code(2);
    missing.complains("REDIS_PW");
}

#[tokio::test]
async fn two_answers_to_which_servers_are_refused() {
    let files = Files::new();
    let file = written(&files, "lockdog.yaml", "url: redis://127.0.0.1:1\n");
    for args in [&["--config", &file, "--url", NOWHERE, "ls"][..], &["ls"]] {
        let ended = lockdog_at(NOWHERE, args)
            .env("LOCKDOG_CONFIG", &file)
            .end()
            .await;
        let ended = ended.code(2);
        assert!(ended.stderr.contains("--config"), "{ended:#?}");
    }
    let run = lockdog_at(NOWHERE, &["run", "orders", "true"]).env("LOCKDOG_CONFIG", &file);
    run.end().await.code(125).complains("LOCKDOG_CONFIG");
    // A flag overrides the environment.
    let by_url = lockdog_at("", &["--url", NOWHERE, "ls"]).env("LOCKDOG_CONFIG", "/no/such/file");
    by_url.end().await.code(125).complains("127.0.0.1:1");
    let unread = lockdog_at("", &["--config", "/no/such/file", "ls"])
        .end()
        .await;
    unread.code(2).complains("/no/such/file");
}

#[tokio::test]
async fn config_check_shows_what_becomes_of_each_key() {
    let files = Files::new();
    let text = format!(
        "lockWatchdogTimeout: 20000\nthreads: 16\nsingleServerConfig:\n  address: redis://:{SECRET}@a:1\n  \
         password: {SECRET}\n  retryAttempts: 3\n"
    );
    let good = written(&files, "good.yaml", &text);
    let check = async |file: &str, more: &[&str]| {
        let args = [&["-vvv", "config", "check", file], more].concat();
        let ended = lockdog_at(NOWHERE, &args).end().await;
        assert_silent(&ended);
        ended
    };
    let table = check(&good, &["--strict"]).await.code(0);
    let lines: Vec<&str> = table.stdout.lines().collect();
    assert!(lines[0].starts_with("LINE  STATE"), "{}", table.stdout);
    assert_eq!(lines.len(), 6, "{}", table.stdout);
    assert!(
        table.stderr.contains("a configuration of Redisson"),
        "{table:#?}"
    );
    let notes = check(&good, &["--json"]).await.code(0).json_lines();
    let found = |key: &str| {
        let note = notes.iter().find(|note| note["key"] == key);
        note.unwrap_or_else(|| panic!("{key}: {notes:?}"))
    };
    let lease = found("lockWatchdogTimeout");
    assert_eq!(
        (&lease["state"], &lease["line"]),
        (&"mapped".into(), &1.into())
    );
    assert_eq!(lease["schema"], 1);
    assert_eq!(found("threads")["state"], "irrelevant");
    assert_eq!(
        found("singleServerConfig.retryAttempts")["state"],
        "ignored"
    );

    let differs = text.replace("threads: 16", "lockWatchdogBatchSize: 7");
    let differs = written(&files, "differs.yaml", &differs);
    check(&differs, &[]).await.code(0);
    check(&differs, &["--strict"]).await.code(1);

    for (name, text, state, word) in [
        (
            "refused",
            text.replace("threads: 16", "nameMapper: !<com.example.Names> {}"),
            "refused",
            "nameMapper",
        ),
        (
            "unknown",
            text.replace("threads", "lockWatchdogTimout"),
            "unknown",
            "did you mean lockWatchdogTimeout",
        ),
        (
            "value",
            text.replace("20000", "soon"),
            "invalid",
            "whole number",
        ),
        (
            "variable",
            text.replace("20000", "${NOT_SET}"),
            "variable",
            "NOT_SET",
        ),
        (
            "syntax",
            text.replace("threads", "\tthreads"),
            "syntax",
            "not valid YAML",
        ),
        // Only the client's builder knows its bounds.
        (
            "bounds",
            "url: redis://a:1\nwatchdog_lease: 1ms\n".to_owned(),
            "invalid",
            "watchdog_lease",
        ),
        (
            "other",
            format!("url: redis://:{SECRET}@a:1\ncluster: ['redis://b:2']\n"),
            "invalid",
            "exactly one",
        ),
    ] {
        let file = written(&files, name, &text);
        let ended = check(&file, &[]).await.code(1);
        assert!(
            ended.stdout.contains(state) && ended.stdout.contains(word),
            "{name}: {ended:#?}"
        );
        let last = check(&file, &["--json"])
            .await
            .code(1)
            .json_lines()
            .pop()
            .unwrap();
        assert_eq!(last["state"], state, "{name}: {last}");
        for field in ["line", "column", "key"] {
            assert!(last.get(field).is_some(), "{name}: {last}");
        }
    }
    let unread = lockdog_at(NOWHERE, &["config", "check", "/no/such/file"])
        .end()
        .await;
    unread.code(125).complains("/no/such/file");
    lockdog_at(NOWHERE, &["config"]).end().await.code(2);
}
