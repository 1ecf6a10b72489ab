//! A server can be paused, killed and restarted, and each server version starts.

use std::process::Command;
use std::time::Duration;

use redis::Value;

use crate::harness::{PATIENCE, Plain};
use crate::support::binary::root;
use crate::support::port::is_free;
use crate::support::{Binary, Data, RedisServer, timed};

#[tokio::test]
async fn every_server_program_starts_and_reports_its_version() {
    for (name, field, version) in [
        ("redis62", "redis_version", "6.2.14"),
        ("redis7", "redis_version", "7."),
        ("redis82", "redis_version", "8.2.3"),
        ("valkey9", "valkey_version", "9.1.2"),
    ] {
        let binary = Binary::named(name).expect("it is one of them");
        let server = RedisServer::builder().binary(binary).start().await;
        let redis = server.redis().await;
        let info: String = redis.ask(&["INFO", "server"]).await;
        assert!(
            info.contains(&format!("{field}:{version}")),
            "{name}: {info}"
        );
        redis.cmd(&["DEBUG", "SLEEP", "0"]).await;
    }
}

#[tokio::test]
async fn a_paused_server_stalls_and_a_resumed_one_answers_late() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let waiting = Plain::connect(&server.url()).await;
    server.pause();
    assert!(waiting.incr_is_unanswered().await);
    let pause = Duration::from_millis(300);
    let (_, took) = timed(async {
        let resume = async {
            tokio::time::sleep(pause).await;
            server.resume();
        };
        tokio::join!(redis.cmd(&["PING"]), resume)
    })
    .await;
    assert!(took >= pause);
    // The command that the client abandoned was in the socket, and is executed later.
    assert_eq!(redis.ask::<i64>(&["GET", "n"]).await, 1);
}

#[tokio::test]
async fn a_paused_server_that_is_killed_executes_nothing_more() {
    let server = RedisServer::builder().persistent().start().await;
    let client = Plain::connect(&server.url()).await;
    server.pause();
    assert!(client.incr_is_unanswered().await);
    server.kill();
    assert!(!server.is_running());
    server.restart(Data::Kept).await;
    assert!(server.is_running());
    assert!(!server.redis().await.exists("n").await);
}

#[tokio::test]
async fn restart_keeps_or_loses_the_data_as_requested_on_the_same_port() {
    let server = RedisServer::start().await;
    let url = server.url();
    server.redis().await.cmd(&["SET", "k", "v"]).await;
    let before = server.pid();
    server.restart(Data::Kept).await;
    assert_ne!(server.pid(), before);
    assert_eq!(server.url(), url);
    assert_eq!(server.redis().await.keys().await, ["k"]);
    server.restart(Data::Lost).await;
    assert!(server.redis().await.keys().await.is_empty());
}

/// Another process that looked for a free port would take it.
#[tokio::test]
async fn the_port_of_a_killed_server_is_not_free() {
    let server = RedisServer::start().await;
    server.kill();
    assert!(!is_free(server.port()));
    assert!(Plain::try_connect(&server.url()).await.is_err());
    server.restart(Data::Lost).await;
    server.redis().await.cmd(&["PING"]).await;
    assert!(!is_free(server.port()));
}

#[tokio::test]
async fn a_persistent_server_has_its_data_after_a_kill() {
    let server = RedisServer::builder().persistent().start().await;
    server.redis().await.cmd(&["SET", "k", "v"]).await;
    server.kill();
    assert!(Plain::try_connect(&server.url()).await.is_err());
    server.restart(Data::Kept).await;
    assert_eq!(server.redis().await.keys().await, ["k"]);
}

#[tokio::test]
async fn arguments_reach_the_server() {
    let server = RedisServer::builder().arg("--maxmemory", "1").start().await;
    let refused = server.redis().await.try_cmd(&["SET", "k", "v"]).await;
    assert_eq!(refused.expect_err("it has no memory").code(), Some("OOM"));
}

#[tokio::test]
async fn a_password_is_required_and_is_in_the_url() {
    let server = RedisServer::builder().password("secret").start().await;
    assert_eq!(
        server.redis().await.cmd(&["PING"]).await,
        Value::SimpleString("PONG".into())
    );
    let without = server.url().replace(":secret@", "");
    let refused = Plain::connect(&without).await.incr().await;
    assert_eq!(
        refused.expect_err("it asks for a password").code(),
        Some("NOAUTH")
    );
}

#[tokio::test]
async fn a_server_can_be_returned_while_it_is_loading() {
    let server = RedisServer::builder()
        .while_loading()
        .arg("--key-load-delay", "1500")
        .arg("--rdbcompression", "no")
        .start()
        .await;
    // A loading server processes commands once every two megabytes, so the values are large.
    let fill = "for i = 1, 12000 do redis.call('SET', i, string.rep('x', 4096)) end";
    server.redis().await.cmd(&["EVAL", fill, "0"]).await;
    server.restart(Data::Kept).await;
    let refused = server.redis().await.try_cmd(&["GET", "1"]).await;
    assert_eq!(refused.expect_err("it is loading").code(), Some("LOADING"));
}

#[tokio::test]
async fn the_unix_socket_exists() {
    use std::os::unix::fs::FileTypeExt;

    let server = RedisServer::builder().unix_socket().start().await;
    let socket = server.socket().expect("it was asked for");
    let kind = std::fs::metadata(socket).expect("it is there").file_type();
    assert!(kind.is_socket());
}

#[tokio::test]
async fn a_dropped_server_leaves_no_process_and_no_folder() {
    let server = RedisServer::start().await;
    let (pid, folder) = (server.pid(), server.data_dir());
    server.pause();
    drop(server);
    assert!(!folder.exists());
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}

#[tokio::test]
async fn many_servers_started_at_once_get_distinct_ports() {
    let starts: Vec<_> = (0..12)
        .map(|_| tokio::spawn(RedisServer::start()))
        .collect();
    let mut servers = Vec::new();
    for start in starts {
        servers.push(start.await.expect("it starts"));
    }
    for server in &servers {
        let info: String = server.redis().await.ask(&["INFO", "server"]).await;
        assert!(info.contains(&format!("process_id:{}\r", server.pid())));
    }
}

#[test]
fn the_installer_is_quick_when_everything_is_installed() {
    // The first call may download. The second must not.
    let install = root().join("tests/servers/install");
    assert!(
        Command::new(&install)
            .status()
            .expect("it is executable")
            .success()
    );
    let start = std::time::Instant::now();
    assert!(
        Command::new(&install)
            .status()
            .expect("it is executable")
            .success()
    );
    assert!(start.elapsed() < 10 * PATIENCE);
}
