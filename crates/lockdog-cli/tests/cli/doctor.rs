//! `lockdog doctor`.

use rustix::process::Signal;
use serde_json::Value;

use crate::program::{Files, lockdog, lockdog_at};
use crate::support::prelude::{SOON, ms};
use crate::support::security::documented;
use crate::support::{
    Action, Certificates, Gate, Proxy, RedisServer, Replicated, dead_port, eventually, named,
};

fn step<'a>(lines: &'a [Value], step: &str) -> &'a Value {
    let found = lines.iter().find(|line| line["step"] == step);
    found.unwrap_or_else(|| panic!("{step} is not in {lines:#?}"))
}

#[tokio::test]
async fn each_step_to_a_good_server_is_timed_and_nothing_is_left() {
    let server = RedisServer::builder().password("geheim").start().await;
    let url = server.url().replace("127.0.0.1", "localhost");
    let ended = lockdog_at(&url, &["doctor", "--json"]).end().await;
    let lines = ended.json_lines();
    for name in [
        "name", "connect", "login", "ping", "scripts", "messages", "client", "lock", "unlock",
    ] {
        let found = step(&lines, name);
        assert_eq!(found["state"], "ok", "{found}");
        assert!(found["took_us"].as_u64().is_some(), "{found}");
    }
    assert_eq!(step(&lines, "clock")["state"], "ok");
    let replicas = step(&lines, "replicas");
    assert_eq!(replicas["state"], "unknown", "{replicas}");
    assert_eq!(replicas["text"], "no replica follows the master");
    // A test's server has no persistence, and the doctor reports that.
    ended.code(1);
    let redis = server.redis().await;
    assert!(redis.keys().await.is_empty() && redis.channels().await.is_empty());
    let ended = lockdog_at(&url, &["doctor"]).end().await.code(1);
    assert!(
        ended.stdout.contains("fix:") && ended.stdout.contains("warn"),
        "{}",
        ended.stdout
    );
}

#[tokio::test]
async fn the_acknowledgement_of_the_replicas_is_timed() {
    let servers = Replicated::start(2).await;
    // On a busy machine no replica may answer within the limit of a second.
    let replicas = async || {
        let mut found = Value::Null;
        eventually(SOON, "a replica acknowledges in time", async || {
            let ended = lockdog(&servers.master, &["doctor", "--json"]).end();
            found = step(&ended.await.code(1).json_lines(), "replicas").clone();
            found["state"] != "unknown"
        })
        .await;
        found
    };
    let found = replicas().await;
    assert_eq!(found["state"], "ok", "{found}");
    assert!(found["took_us"].as_u64().is_some(), "{found}");
    servers.replicas[1].pause();
    let found = replicas().await;
    assert_eq!(found["state"], "warn", "{found}");
    assert!(
        found["text"].as_str().unwrap().starts_with("1 of 2 "),
        "{found}"
    );
    servers.replicas[1].resume();
    let keys = servers.redis.keys().await;
    assert!(keys.is_empty(), "{keys:?}");
}

/// The replicas have a second at most, and the time limit of the file's commands is shorter.
#[tokio::test]
async fn a_file_with_a_short_time_limit_is_no_problem_of_the_replicas() {
    let server = RedisServer::start().await;
    let files = Files::new();
    let file = files.path("lockdog.yaml");
    let text = format!("url: {}\ncommand_timeout: 900ms\n", server.url());
    std::fs::write(&file, text).unwrap();
    let args = ["--config", file.to_str().unwrap(), "doctor", "--json"];
    // On a busy machine an earlier step may have no answer within the limit.
    let mut lines = Vec::new();
    eventually(SOON, "it acquires a lock", async || {
        lines = lockdog_at("", &args).end().await.json_lines();
        lines.iter().any(|line| line["step"] == "replicas")
    })
    .await;
    let replicas = step(&lines, "replicas");
    assert_eq!(replicas["state"], "unknown", "{replicas}");
    assert_eq!(replicas["text"], "no replica follows the master");
}

/// The limit of each step is 3 s by default, and the file gives the server more time.
#[tokio::test]
async fn a_file_with_a_long_time_limit_has_it_for_the_replicas_too() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let files = Files::new();
    let file = files.path("lockdog.yaml");
    let text = format!("url: {}\ncommand_timeout: 10m\n", proxy.url());
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let args = [
        "--config",
        file,
        "doctor",
        "--json",
        "--lock-prefix",
        "ours:",
    ];
    // After this the server knows all scripts, so each of them is one command.
    lockdog_at("", &args).end().await.code(1);
    let of_lock = |words: &[String]| {
        named("EVALSHA")(words) && words.iter().any(|word| word.starts_with("ours:"))
    };
    // The client without replicas acquires a lock and releases it.
    let (first, acquire) = (Gate::new(), Gate::new());
    first.open();
    proxy.on(of_lock, Action::HoldRequest(first)).times(2);
    proxy.on(of_lock, Action::HoldRequest(acquire.clone()));
    let running = lockdog_at("", &args).start();
    acquire.wait_reached().await;
    tokio::time::sleep(ms(4_000)).await;
    acquire.open();
    let lines = running.end().await.code(1).json_lines();
    assert_eq!(step(&lines, "unlock")["state"], "ok", "{lines:#?}");
    let replicas = step(&lines, "replicas");
    assert_eq!(replicas["state"], "unknown", "{replicas}");
}

#[tokio::test]
async fn ctrl_c_leaves_no_lock() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let proxy = Proxy::start(&server).await;
    let args = ["doctor", "--lock-prefix", "ours:"];
    // After this the server knows both scripts, so each of them is one command.
    lockdog_at(proxy.url(), &args).end().await.code(1);
    let of_lock = |words: &[String]| {
        named("EVALSHA")(words) && words.iter().any(|word| word.starts_with("ours:"))
    };
    let (acquire, unlock) = (Gate::new(), Gate::new());
    acquire.open();
    proxy.on(of_lock, Action::HoldRequest(acquire));
    proxy.on(of_lock, Action::HoldRequest(unlock.clone()));
    let running = lockdog_at(proxy.url(), &args).start();
    unlock.wait_reached().await;
    assert_eq!(redis.keys().await.len(), 1);
    running.signal(Signal::INT);
    unlock.open();
    running.end().await.code(130);
    assert_eq!(redis.keys().await, [""; 0]);
}

#[tokio::test]
async fn a_failure_is_reported_by_the_step_where_it_is() {
    let server = RedisServer::builder().password("geheim").start().await;
    let wrong = server.url().replace("geheim", "falsch");
    let ended = lockdog_at(&wrong, &["doctor", "--json"])
        .end()
        .await
        .code(1);
    let lines = ended.json_lines();
    assert_eq!(step(&lines, "connect")["state"], "ok");
    let login = step(&lines, "login");
    assert_eq!(login["state"], "fail");
    assert_eq!(login["text"], "authentication failed", "{login}");
    assert!(
        login["fix"].as_str().unwrap().contains("LOCKDOG_PASSWORD"),
        "{login}"
    );
    assert!(!ended.stdout.contains("falsch"));

    let nowhere = format!("redis://127.0.0.1:{}", dead_port());
    let ended = lockdog_at(&nowhere, &["doctor", "--json"])
        .end()
        .await
        .code(125);
    assert_eq!(step(&ended.json_lines(), "connect")["state"], "fail");
    let ended = lockdog_at("redis://no-such-host.invalid", &["doctor", "--json"])
        .end()
        .await;
    assert_eq!(step(&ended.json_lines(), "name")["state"], "fail");
    assert_eq!(ended.status.code(), Some(125));
    lockdog_at("http://x", &["doctor"]).end().await.code(125);
}

#[tokio::test]
async fn a_server_that_falls_silent_is_not_said_to_refuse_anything() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    // The login asks once.
    let login = Gate::new();
    login.open();
    proxy.on(named("PING"), Action::HoldRequest(login));
    let silence = proxy.on(named("PING"), Action::DropReply);
    let ended = lockdog_at(proxy.url(), &["doctor", "--json"]).end().await;
    silence.wait_hits(1).await;
    let lines = ended.code(1).json_lines();
    assert_eq!(step(&lines, "login")["state"], "ok", "{lines:#?}");
    let ping = step(&lines, "ping");
    assert_eq!(ping["state"], "fail", "{ping}");
    assert_eq!(ping["text"], "the server does not answer in time");
    assert_eq!(lines.last(), Some(ping));
}

#[tokio::test]
async fn a_user_who_may_not_ping_is_logged_in() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let rules = ["on", ">pw", "~*", "&*", "+@all", "-ping"];
    redis
        .cmd(&[&["ACL", "SETUSER", "mute"], &rules[..]].concat())
        .await;
    let args = ["--user", "mute", "doctor", "--json"];
    let ended = lockdog(&server, &args).env("LOCKDOG_PASSWORD", "pw");
    let lines = ended.end().await.code(1).json_lines();
    assert_eq!(step(&lines, "login")["state"], "ok", "{lines:#?}");
    let ping = step(&lines, "ping");
    assert_eq!(ping["state"], "warn", "{ping}");
    assert_eq!(ping["fix"], "grant +ping to the user");
    assert_eq!(step(&lines, "scripts")["state"], "ok", "{lines:#?}");
}

#[tokio::test]
async fn a_user_without_a_password_is_said_not_to_be_used() {
    let server = RedisServer::start().await;
    let args = ["--user", "ann", "doctor", "--json"];
    let ended = lockdog(&server, &args).end().await.code(1);
    let lines = ended.json_lines();
    let login = step(&lines, "login");
    assert_eq!(login["state"], "warn", "{login}");
    let text = login["text"].as_str().unwrap();
    assert!(
        text.contains("default user") && text.contains("ann"),
        "{login}"
    );
    assert!(
        login["fix"].as_str().unwrap().contains("LOCKDOG_PASSWORD"),
        "{login}"
    );
    // The other steps follow, because it is a login that works.
    assert_eq!(step(&lines, "unlock")["state"], "ok");
}

#[tokio::test]
async fn a_user_without_messages_gets_the_line_that_grants_them() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    redis
        .cmd(&[
            "ACL",
            "SETUSER",
            "mute",
            "on",
            ">pw",
            "~*",
            "resetchannels",
            "+@all",
            "-time",
        ])
        .await;
    let args = ["--user", "mute", "doctor", "--json"];
    let ended = lockdog(&server, &args)
        .env("LOCKDOG_PASSWORD", "pw")
        .end()
        .await
        .code(1);
    let lines = ended.json_lines();
    let found = step(&lines, "messages");
    assert_eq!(found["state"], "warn", "{found}");
    assert!(
        found["fix"].as_str().unwrap().contains("+subscribe"),
        "{found}"
    );
    assert_eq!(step(&lines, "clock")["state"], "unknown");
    assert!(
        lines
            .iter()
            .any(|it| it["step"] == "set-up" && it["state"] == "warn"),
        "{lines:#?}"
    );
}

/// The line of docs/security.md for plain locks.
#[tokio::test]
async fn a_user_of_some_names_is_checked_with_a_name_of_its_own() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let rules = documented();
    let mut words = vec!["ACL", "SETUSER", "lockdog", "on", ">secret"];
    words.extend(rules.iter().map(String::as_str));
    redis.cmd(&words).await;
    let doctor = async |args: &[&str], code| {
        let args = [&["--user", "lockdog", "doctor", "--json"], args].concat();
        let program = lockdog(&server, &args).env("LOCKDOG_PASSWORD", "secret");
        program.end().await.code(code).json_lines()
    };
    let lines = doctor(&["--lock-prefix", "orders:doctor:"], 0).await;
    for name in ["login", "scripts", "messages", "lock", "unlock"] {
        assert_eq!(step(&lines, name)["state"], "ok", "{lines:#?}");
    }
    // The name that it has by default is none of this user's.
    let lines = doctor(&[], 1).await;
    for (name, state) in [("messages", "warn"), ("lock", "fail")] {
        let found = step(&lines, name);
        assert_eq!(found["state"], state, "{found}");
        let fix = found["fix"].as_str().unwrap();
        assert!(fix.contains("--lock-prefix"), "{found}");
    }
}

#[tokio::test]
async fn tls_is_a_step_of_its_own() {
    let certificates = Certificates::new();
    let (_server, port) = certificates.start_server().await;
    let url = format!("rediss://localhost:{port}");
    let issuer = certificates.issuer().display().to_string();
    let ended = lockdog_at(&url, &["--cacert", &issuer, "doctor", "--json"])
        .end()
        .await
        .code(1);
    let lines = ended.json_lines();
    for name in ["tls", "login", "messages", "lock"] {
        assert_eq!(step(&lines, name)["state"], "ok", "{lines:#?}");
    }
    // The system does not know the issuer.
    let ended = lockdog_at(&url, &["doctor", "--json"]).end().await;
    let tls = step(&ended.json_lines(), "tls").clone();
    assert_eq!(tls["state"], "fail");
    assert!(tls["fix"].as_str().unwrap().contains("--cacert"), "{tls}");
}
