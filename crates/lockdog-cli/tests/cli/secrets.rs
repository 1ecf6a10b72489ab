//! No output, argument list or environment of a command has a password.

use std::fs;

use crate::program::{Ended, Files, LOCKDOG, lockdog, lockdog_at, parent};
use crate::support::RedisServer;

const SECRET: &str = "geheimnis-4711";

#[track_caller]
fn assert_silent(ended: &Ended) {
    assert!(!ended.stdout.contains(SECRET), "{ended:#?}");
    assert!(!ended.stderr.contains(SECRET), "{ended:#?}");
}

#[tokio::test]
async fn no_command_shows_the_password() {
    let server = RedisServer::builder().password(SECRET).start().await;
    let bare = format!("redis://127.0.0.1:{}", server.port());
    let files = Files::new();
    fs::write(files.path("password"), format!("{SECRET}\nmore\n")).unwrap();
    let file = files.path("password").display().to_string();
    for args in [
        &["run", "orders", "true"][..],
        &["run", "orders", "env"],
        &["ls"],
        &["inspect", "orders", "--json"],
        &["release", "orders", "--force", "--yes", "--holder", "x"],
        &["watch", "orders", "--until", "free"],
        &["top", "--once"],
        &["doctor"],
        &["doctor", "--json"],
        &["bench", "--duration", "100ms"],
    ] {
        let loud = [&["-vvv"], args].concat();
        let by_url = lockdog(&server, &loud).end().await;
        let by_variable = lockdog_at(&bare, &loud)
            .env("LOCKDOG_PASSWORD", SECRET)
            .end()
            .await;
        let by_file = [&["--password-file", &file], &loud[..]].concat();
        let by_file = lockdog_at(&bare, &by_file).end().await;
        for ended in [by_url, by_variable, by_file] {
            assert!(
                [Some(0), Some(1)].contains(&ended.status.code()),
                "{args:?}: {ended:#?}"
            );
            assert_silent(&ended);
        }
    }
    // The log is written, so the checks above prove something.
    let ended = lockdog(&server, &["-vvv", "run", "orders", "true"])
        .end()
        .await;
    assert!(
        ended.stderr.contains("WARN lockdog::diagnosis"),
        "{ended:#?}"
    );
}

#[tokio::test]
async fn a_refused_password_is_not_repeated() {
    let server = RedisServer::builder().password("another").start().await;
    let bare = format!("redis://127.0.0.1:{}", server.port());
    let in_url = format!("redis://:{SECRET}@127.0.0.1:{}", server.port());
    for args in [
        &["-vvv", "ls"][..],
        &["-vvv", "doctor"],
        &["-vvv", "bench"],
        &["run", "orders", "true"],
    ] {
        let by_variable = lockdog_at(&bare, args)
            .env("LOCKDOG_PASSWORD", SECRET)
            .end()
            .await;
        let by_url = lockdog_at(&in_url, args).end().await;
        for ended in [by_variable, by_url] {
            assert!(
                [Some(1), Some(125)].contains(&ended.status.code()),
                "{ended:#?}"
            );
            assert_silent(&ended);
        }
    }
    // Nor a URL that cannot be read.
    for url in [
        format!("http://:{SECRET}@h"),
        format!(":{SECRET}@h"),
        format!("redis://:{SECRET}@h:x"),
    ] {
        for args in [&["ls"][..], &["doctor"], &["bench"]] {
            let ended = lockdog_at(&url, args).end().await.code(125);
            assert_silent(&ended);
        }
    }
}

#[tokio::test]
async fn a_url_where_none_belongs_is_shown_without_its_password() {
    let url = format!("redis://ann:{SECRET}@h");
    let [wrong, number] = ["--ulr", "--limit"].map(|flag| format!("{flag}={url}"));
    let [url, wrong, number] = [&url, &wrong, &number].map(String::as_str);
    for (args, code) in [
        (&["doctor", url][..], 2),
        (&[url, "ls"], 2),
        (&[wrong, "ls"], 2),
        (&["ls", number], 2),
        (&["run", "--lease", url, "orders", "true"], 125),
    ] {
        let ended = lockdog_at("", args).end().await.code(code);
        assert_silent(&ended);
        ended.complains("see --help");
    }
    // The rest of the URL is shown, so the checks above prove something.
    let ended = lockdog_at("", &["doctor", url]).end().await.code(2);
    ended.complains("'redis://ann@h'");
}

#[tokio::test]
async fn a_url_in_place_of_a_file_is_shown_without_its_password() {
    let url = format!("redis://ann:{SECRET}@h");
    let config = format!("--config={url}");
    let [url, config] = [&url, &config].map(String::as_str);
    for (args, code) in [
        (&["--config", url, "ls"][..], 2),
        (&[config, "run", "orders", "true"], 125),
        (&["--password-file", url, "ls"], 2),
        (&["config", "check", url], 125),
    ] {
        let ended = lockdog_at("", args).end().await.code(code);
        assert_silent(&ended);
        ended.complains("redis://ann@h");
    }
    let ended = lockdog_at("", &["ls"]).env("LOCKDOG_CONFIG", url);
    let ended = ended.end().await.code(2);
    assert_silent(&ended);
    ended.complains("redis://ann@h");
}

#[tokio::test]
async fn no_process_has_the_password_in_its_arguments_and_no_command_in_its_environment() {
    let server = RedisServer::builder().password(SECRET).start().await;
    let bare = format!("redis://127.0.0.1:{}", server.port());
    let files = Files::new();
    for (number, with_url) in [(0, false), (1, true)] {
        let name = format!("ready{number}");
        let ready = files.path(&name).display().to_string();
        let (reader, writer) = std::io::pipe().unwrap();
        let args = [
            "run",
            "orders",
            "sh",
            "-c",
            "echo $$ > \"$0\"; read line",
            &ready,
        ];
        let running = match with_url {
            true => lockdog(&server, &args),
            false => lockdog_at(&bare, &args).env("LOCKDOG_PASSWORD", SECRET),
        };
        let running = running.stdin(reader).start();
        let command = files.number(&name).await;
        // Lockdog, its launcher and the command.
        let launcher = parent(command).expect("the command runs");
        assert_eq!(parent(launcher), Some(running.pid()));
        let has = |pid: u32, what: &str| {
            let bytes = fs::read(format!("/proc/{pid}/{what}")).unwrap();
            String::from_utf8_lossy(&bytes).contains(SECRET)
        };
        for pid in [command, launcher, running.pid()] {
            assert!(!has(pid, "cmdline"));
        }
        assert!(!has(command, "environ") && !has(launcher, "environ"));
        // The check finds a password that is in the environment.
        assert!(has(running.pid(), "environ"));
        drop(writer);
        running.end().await.code(1);
    }
    let kept = ["run", "--pass-credentials", "orders", "env"];
    let ended = lockdog(&server, &kept).end().await.code(0);
    assert!(ended.stdout.contains(SECRET), "the user asked for it");
}

#[tokio::test]
async fn a_password_file_that_cannot_be_used_is_named_without_its_text() {
    let server = RedisServer::start().await;
    let files = Files::new();
    fs::write(files.path("binary"), [0xff, b'g', b'e', b'h']).unwrap();
    fs::write(files.path("empty"), "\n").unwrap();
    for (name, text) in [
        ("binary", "UTF-8"),
        ("empty", "empty"),
        ("missing", "No such file"),
    ] {
        let file = files.path(name).display().to_string();
        let ended = lockdog(&server, &["--password-file", &file, "ls"])
            .end()
            .await;
        ended.code(2).complains(text);
    }
}

#[tokio::test]
async fn a_nested_command_gets_the_url_without_its_password() {
    let server = RedisServer::builder().password(SECRET).start().await;
    let bare = format!("redis://127.0.0.1:{}", server.port());
    let files = Files::new();
    fs::write(files.path("password"), SECRET).unwrap();
    let file = files.path("password").display().to_string();
    let ended = lockdog(&server, &["run", "a", "printenv", "LOCKDOG_URL"]);
    let ended = ended.end().await.code(0);
    assert_eq!(ended.stdout.trim().trim_end_matches('/'), bare);
    // Without a URL it would lock on the default server, which may need no password.
    let nested = ["run", "a", LOCKDOG, "run", "b", "true"];
    let ended = lockdog(&server, &nested).end().await.code(125);
    assert!(ended.stderr.contains("NOAUTH"), "{ended:#?}");
    assert_silent(&ended);
    ended.complains("LOCKDOG_URL has none here; use --password-file");
    // Under the hold of the outer run, too.
    let same = [
        "run",
        "a",
        LOCKDOG,
        "--password-file",
        &file,
        "run",
        "--reenter",
    ];
    let same = [&same[..], &["a", "printenv", "LOCKDOG_URL"]].concat();
    let ended = lockdog(&server, &same).end().await.code(0);
    assert_eq!(ended.stdout.trim().trim_end_matches('/'), bare);
}

#[tokio::test]
async fn a_nested_command_has_the_servers_that_a_flag_names_without_a_password() {
    let server = RedisServer::builder().password(SECRET).start().await;
    let bare = format!("redis://127.0.0.1:{}", server.port());
    let in_url = format!("redis://:{SECRET}@127.0.0.1:{}", server.port());
    let files = Files::new();
    let file = files.path("lockdog.yaml").display().to_string();
    fs::write(&file, format!("url: {bare}\npassword: {SECRET}\n")).unwrap();
    let (by_url, by_file) = (["--url", &*in_url], ["--config", &*file]);
    let run = async |url: &str, flag: &[&str], more: &[&str]| {
        let args = [flag, &["run", "a"], more].concat();
        lockdog_at(url, &args)
            .env("LOCKDOG_CONFIG", "/no/such/file")
            .end()
            .await
    };
    // The environment names other servers, or none.
    for other in ["", "redis://127.0.0.1:1"] {
        for (flag, named) in [
            (&by_url, format!("LOCKDOG_URL={bare}")),
            (&by_file, format!("LOCKDOG_CONFIG={file}")),
        ] {
            let ended = run(other, flag, &["env"]).await.code(0);
            assert_silent(&ended);
            let names = ["LOCKDOG_URL=", "LOCKDOG_CONFIG="];
            let is_name = |line: &&str| names.iter().any(|name| line.starts_with(name));
            let lines: Vec<&str> = ended.stdout.lines().filter(is_name).collect();
            assert_eq!(lines, [named]);
        }
    }
    // On the same server, the outer run has this lock.
    let nested = [LOCKDOG, "run", "a", "true"];
    let ended = run("", &by_file, &nested).await.code(125);
    ended.complains("--reenter");
    let open = RedisServer::start().await;
    let ended = run("", &["--url", &open.url()], &nested).await.code(125);
    ended.complains("--reenter");
    let ended = run("", &by_url, &nested).await.code(125);
    ended.complains("NOAUTH");
    let kept = ["--pass-credentials", "printenv", "LOCKDOG_URL"];
    let args = [&by_url[..], &["run", "a"], &kept].concat();
    let ended = lockdog_at("", &args).end().await;
    assert_eq!(ended.code(0).stdout.trim(), in_url);
}
