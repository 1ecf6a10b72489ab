//! What a client logs about a new server, and what the check costs.

use std::time::Instant;

use lockdog::Client;
use lockdog::report::FindingKind;
use tracing::Level;

use super::{SOON, ms, well_set_up};
use crate::support::logs::Line;
use crate::support::{Action, Binary, Data, Gate, Logs, Proxy, RedisServer, eventually, logs};

#[test]
fn each_finding_is_logged_once_per_server() {
    logs::alone(
        "diagnose::log::each_finding_is_logged_once_per_server",
        async {
            let logs = Logs::of_this_process();
            let warned = || {
                let mut lines = logs.of_set_up();
                lines.retain(|line| line.level == Level::WARN);
                lines
            };
            let server = RedisServer::builder().password("hunter2");
            let server = server.arg("--maxmemory", "100mb");
            let server = server
                .arg("--maxmemory-policy", "allkeys-lru")
                .start()
                .await;
            let proxy = Proxy::start(&server).await;
            let client = Client::connect(proxy.url()).await.unwrap();
            let place = format!("127.0.0.1:{}", proxy.port());
            eventually(SOON, "both warnings are logged", async || {
                warned().len() >= 2
            })
            .await;
            let first: Vec<_> = warned().into_iter().map(|line| line.text).collect();
            assert_eq!(first.len(), 2, "{first:?}");
            for (line, kind, fix) in [
                (
                    &first[0],
                    "eviction",
                    "CONFIG SET maxmemory-policy noeviction",
                ),
                (&first[1], "no_persistence", "CONFIG SET appendonly yes"),
            ] {
                assert!(
                    line.contains("the server's set-up may cost locks"),
                    "{line}"
                );
                assert!(line.contains(&format!("kind=\"{kind}\"")), "{line}");
                assert!(line.contains(fix) && line.contains(&place), "{line}");
                assert!(!line.contains("hunter2"), "{line}");
            }
            // A new connection to the same server logs nothing, though the client checks which server it
            // is.
            assert!(proxy.cut_all() >= 1);
            eventually(SOON, "it is connected again", async || {
                client.lock("l").is_locked().await.is_ok()
            })
            .await;
            tokio::time::sleep(ms(2_500)).await;
            assert_eq!(warned().len(), 2);
            // Another server behind the same address is checked.
            server.restart(Data::Lost).await;
            eventually(SOON, "the warnings are logged again", async || {
                let _away_at_first = client.lock("l").is_locked().await;
                warned().len() == 4
            })
            .await;
            tokio::time::sleep(ms(2_500)).await;
            assert_eq!(warned().len(), 4);
            client.shutdown().await;
        },
    );
}

#[test]
fn a_lazy_client_checks_its_server_at_the_first_connection() {
    logs::alone(
        "diagnose::log::a_lazy_client_checks_its_server_at_the_first_connection",
        async {
            let logs = Logs::of_this_process();
            let server = RedisServer::start().await;
            let builder = Client::builder().url(server.url()).lazy(true);
            let client = builder.build().await.unwrap();
            tokio::time::sleep(ms(1_500)).await;
            assert!(logs.of_set_up().is_empty());
            client.lock("l").is_locked().await.unwrap();
            let warned = async || logs.of_set_up().len() == 1;
            eventually(SOON, "a warning is logged", warned).await;
            client.shutdown().await;
        },
    );
}

/// Since Redis 7.0 a client finds out the missing permissions of its user without a refused command.
#[tokio::test]
async fn missing_permissions_are_logged_at_connect() {
    for binary in [Binary::Redis7, Binary::Valkey9] {
        let server = well_set_up(binary).start().await;
        let redis = server.redis().await;
        let rules = "ACL SETUSER lockdog on >secret ~* &* +@all -hincrby -publish -select";
        redis.cmd(&rules.split(' ').collect::<Vec<_>>()).await;
        redis.cmd(&["ACL", "LOG", "RESET"]).await;
        let (logs, recording) = Logs::of_this_thread();
        let (client, _proxy) = connect_checked(&server, USER).await;
        drop(recording);
        let mut lines = logs.of_set_up();
        lines.retain(|line| line.level == Level::WARN);
        assert_eq!(lines.len(), 1, "{lines:?}");
        let line = &lines[0];
        let fix = "ACL SETUSER lockdog +hincrby +publish\"";
        assert!(line.text.contains(fix), "{}", line.text);
        let log: Vec<redis::Value> = redis.ask(&["ACL", "LOG"]).await;
        assert!(log.is_empty(), "{log:?}");
        client.shutdown().await;
    }
}

#[tokio::test]
async fn an_unanswered_check_delays_connecting_by_at_most_a_second() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let of_memory = |args: &[String]| args.len() == 2 && args[1] == "memory";
    let gate = Gate::new();
    let rule = proxy.on(of_memory, Action::HoldReply(gate.clone()));
    let began = Instant::now();
    let client = Client::connect(proxy.url()).await.unwrap();
    let took = began.elapsed();
    assert_eq!(rule.hits(), 1);
    assert!(took > ms(900) && took < ms(10_000), "{took:?}");
    gate.open();
    let guard = client.lock("l").lock().await.unwrap();
    guard.unlock().await.unwrap();
    client.shutdown().await;
}

/// The check adds one round trip. Later commands are the caller's own.
#[tokio::test]
async fn a_check_takes_one_round_trip_and_ends_before_connect_returns() {
    let server = RedisServer::start().await;
    let (client, proxy) = connect_checked(&server, "").await;
    let connecting = proxy.commands().len();
    let asked = |name: &str| {
        let commands = proxy.commands();
        commands.iter().filter(|it| it.args[0] == name).count()
    };
    assert_eq!(["INFO", "CONFIG", "EVAL"].map(asked), [6, 1, 1]);
    tokio::time::sleep(ms(1_500)).await;
    assert_eq!(proxy.commands().len(), connecting);
    client.shutdown().await;
}

/// The channels that such a user may use do not include those that the check makes up.
#[test]
fn a_user_with_the_documented_permissions_gets_no_warning() {
    logs::alone(
        "diagnose::log::a_user_with_the_documented_permissions_gets_no_warning",
        async {
            let logs = Logs::of_this_process();
            let page = include_str!("../../../docs/security.md");
            let mut lines = page.lines();
            let line = lines.find(|line| line.starts_with("ACL SETUSER lockdog "));
            let line: Vec<&str> = line.expect("the page has the line").split(' ').collect();
            let server = well_set_up(Binary::Redis7).start().await;
            let redis = server.redis().await;
            redis.cmd(&line).await;
            let (client, _proxy) = connect_checked(&server, USER).await;
            let guard = client.lock("orders:42").lock().await.unwrap();
            guard.unlock().await.unwrap();
            let mut warned = logs.of_set_up();
            warned.retain(|line| line.level == Level::WARN);
            assert!(warned.is_empty(), "{warned:?}");
            // A permission that is certainly missing is logged.
            redis.cmd(&["ACL", "SETUSER", "lockdog", "-evalsha"]).await;
            let _checked = connect_checked(&server, USER).await;
            let is_finding =
                |line: &Line| line.level == Level::WARN && line.text.contains("+evalsha");
            assert!(logs.of_set_up().iter().any(is_finding));
        },
    );
}

/// A client whose check was answered, and the proxy that it asked. A connect awaits the check for at most a
/// second.
async fn connect_checked(server: &RedisServer, user: &str) -> (Client, Proxy) {
    for _ in 0..20 {
        let proxy = Proxy::start(server).await;
        let url = format!("redis://{user}127.0.0.1:{}", proxy.port());
        let began = Instant::now();
        let client = Client::connect(url).await.unwrap();
        if began.elapsed() < ms(1_000) {
            return (client, proxy);
        }
        client.shutdown().await;
    }
    panic!("no check was answered within a second");
}

const USER: &str = "lockdog:secret@";

#[tokio::test]
async fn an_expected_finding_is_neither_a_warning_nor_a_problem() {
    let server = RedisServer::start().await;
    let expected = FindingKind::NoPersistence;
    let builder = Client::builder().url(server.url()).expect_finding(expected);
    let mut attempts = 0;
    let (of_set_up, client) = loop {
        attempts += 1;
        assert!(attempts < 20, "no check was answered within a second");
        let (logs, _recording) = Logs::of_this_thread();
        let began = Instant::now();
        let client = builder.clone().build().await.unwrap();
        // A connect awaits the check for at most a second.
        if began.elapsed() < ms(1_000) {
            break (logs.of_set_up(), client);
        }
        client.shutdown().await;
    };
    let about = |line: &&Line| line.text.contains("kind=\"no_persistence\"");
    let line = of_set_up.iter().find(about).expect("it is logged");
    assert_eq!(line.level, Level::DEBUG, "{}", line.text);
    let diagnosis = client.diagnose().await.unwrap();
    let mut findings = diagnosis.findings().iter();
    let finding = findings
        .find(|it| it.kind == expected)
        .expect("it is still there");
    assert!(finding.is_known && finding.is_expected);
    assert!(diagnosis.problems().all(|it| it.kind != expected));
}
