//! A client knows that its server's identity changed before it counts the new server's answers.

use tracing::Level;

use super::{LONG, PLAIN, SOON, TestMember, ms};
use crate::client::Client;
use crate::clock::Moment;
use crate::script::AcquireReply;
use crate::server::Failure;
use crate::support::logs::{self, Line};
use crate::support::{Action, Data, Gate, Logs, RedisServer, eventually, named, until_ok};

#[tokio::test]
async fn reconnecting_to_the_first_server_is_no_identity_change() {
    let member = TestMember::start().await;
    assert_eq!(member.reborn(), None);
    for _ in 0..3 {
        assert!(member.proxy.cut_all() >= 1);
        member.ask().await;
    }
    assert!(member.proxy.count(named("INFO")) >= 8);
    assert_eq!(member.reborn(), None);
}

#[tokio::test]
async fn the_identity_is_queried_before_the_first_command_of_each_connection() {
    let member = TestMember::start().await;
    assert!(member.proxy.cut_all() >= 1);
    let taken = member.acquire("f", PLAIN).await.unwrap();
    assert!(
        matches!(taken.acquired, AcquireReply::Granted(_)),
        "{taken:?}"
    );
    // The background's connection too.
    member
        .core
        .server
        .node("")
        .unwrap()
        .suspect(&Failure::silent(ms(20)));
    let cleared = async || member.core.server.suspected("").is_none();
    eventually(SOON, "it is cleared", cleared).await;
    let commands = member.proxy.commands();
    for connection in 1..=3 {
        let mut sent: Vec<String> = commands
            .iter()
            .filter(|seen| seen.connection == connection)
            .map(|seen| seen.args.join(" "))
            .collect();
        sent.retain(|text| !text.starts_with("CLIENT"));
        assert_eq!(sent[..2], ["INFO server", "INFO replication"], "{sent:?}");
    }
}

#[tokio::test]
async fn a_restart_is_detected_before_an_answer_counts() {
    for data in [Data::Kept, Data::Lost] {
        let member = TestMember::start().await;
        let before = member.now();
        member.server.restart(data).await;
        member.acquire("f", PLAIN).await.unwrap();
        let reborn = member.reborn().expect("it is another");
        assert!((before..=member.now()).contains(&reborn), "{data:?}");
        // Only once.
        assert!(member.proxy.cut_all() >= 1);
        member.ask().await;
        assert_eq!(member.reborn(), Some(reborn));
        // The latest change counts.
        member.server.restart(data).await;
        member.ask().await;
        assert!(member.reborn() > Some(reborn));
    }
}

#[tokio::test]
async fn a_promoted_replica_is_another_server() {
    let master = master().await;
    let member = TestMember::start().await;
    member.follow(&master).await;
    member.ask().await;
    assert!(member.proxy.cut_all() >= 1);
    member.ask().await;
    let following = member.reborn().expect("it took the master's data over");
    member.redis.cmd(&["REPLICAOF", "NO", "ONE"]).await;
    assert!(member.proxy.cut_all() >= 1);
    member.ask().await;
    assert!(member.reborn() > Some(following));
}

#[tokio::test]
async fn without_a_refusal_an_open_connection_detects_no_identity_change() {
    // The server's own epoch covers this: see `on_servers::epoch`.
    let member = TestMember::start().await;
    let other = master().await;
    member.redis.cmd(&["FLUSHALL"]).await;
    member.follow(&other).await;
    member.redis.cmd(&["REPLICAOF", "NO", "ONE"]).await;
    member.acquire("f", PLAIN).await.unwrap();
    assert_eq!(member.reborn(), None);
}

#[tokio::test]
async fn after_readonly_the_identity_is_queried_before_an_answer_counts() {
    let member = TestMember::with(|client| client.command_timeout(SOON)).await;
    let other = master().await;
    // The server's identity must change after the client connects and before the answer, because the
    // first check on a connection resolves no doubts.
    let line = "-READONLY You can't write against a read only replica.".to_owned();
    let evaluates = |args: &[String]| args[0].starts_with("EVAL");
    member.proxy.on(evaluates, Action::ReplyWith(line));
    let gate = Gate::new();
    let held = member
        .proxy
        .on(evaluates, Action::HoldRequest(gate.clone()));
    let change = async {
        gate.wait_reached().await;
        assert_eq!(member.reborn(), None);
        member.follow(&other).await;
        member.redis.cmd(&["REPLICAOF", "NO", "ONE"]).await;
        gate.open();
    };
    let (taken, ()) = tokio::join!(member.acquire("f", PLAIN), change);
    let taken = taken.unwrap();
    assert!(
        matches!(taken.acquired, AcquireReply::Granted(_)),
        "{taken:?}"
    );
    assert!(member.reborn().is_some(), "it counts already");
    assert_eq!(held.hits(), 1);
}

#[tokio::test]
async fn after_loading_the_identity_is_queried_before_an_answer_counts() {
    for line in [
        "-LOADING Redis is loading the dataset in memory",
        "-MOVED 1 127.0.0.1:1",
        "-CLUSTERDOWN The cluster is down",
    ] {
        let member = TestMember::with(|client| client.command_timeout(SOON)).await;
        let other = master().await;
        let connecting = member.proxy.count(named("INFO"));
        let evaluates = |args: &[String]| args[0].starts_with("EVAL");
        member
            .proxy
            .on(evaluates, Action::ReplyWith(line.to_owned()))
            .times(3);
        member.follow(&other).await;
        member.redis.cmd(&["REPLICAOF", "NO", "ONE"]).await;
        member.acquire("f", PLAIN).await.unwrap();
        let reborn = member.reborn();
        assert!(reborn.is_some(), "{line}");
        assert!(
            member.proxy.count(named("INFO")) >= connecting + 2,
            "{line}"
        );
        // Once. A new connection asks, too, and the one for renewals may be opened at any time.
        let what = format!("no identity is queried for an answer: {line}");
        eventually(SOON, &what, async || {
            let asked = member.proxy.count(named("INFO"));
            member.acquire("f", PLAIN).await.unwrap();
            member.proxy.count(named("INFO")) == asked
        })
        .await;
        assert_eq!(member.reborn(), reborn);
    }
}

#[tokio::test]
async fn an_answer_without_a_known_identity_does_not_count() {
    let member = TestMember::with(|client| client.command_timeout(ms(2_000))).await;
    let evaluates = |args: &[String]| args[0].starts_with("EVAL");
    let refuse = |line: &str| Action::ReplyWith(line.to_owned());
    // A first acquire, so that the server knows the script.
    until_ok(SOON, async || member.acquire("f", PLAIN).await).await;
    for (action, is_expected) in [
        (
            Action::DropReply,
            (|failure| matches!(failure, Failure::Silent { .. })) as fn(&Failure) -> bool,
        ),
        (refuse("-BUSY Redis is busy running a script"), |failure| {
            matches!(failure, Failure::Silent { .. } | Failure::Broken(_))
        }),
    ] {
        member.proxy.on(evaluates, refuse("-LOADING loading"));
        let rule = member.proxy.on(named("INFO"), action);
        let rule = rule.always();
        let failure = member.acquire("f", PLAIN).await.unwrap_err();
        // On a slow machine the last attempt has no time to connect: then the refusal before it is the
        // failure.
        let is_refusal = matches!(&failure, Failure::Refused { code, .. } if code == "LOADING");
        assert!(is_expected(&failure) || is_refusal, "{failure:?}");
        rule.remove();
        assert!(rule.hits() >= 1);
        member.proxy.cut_all();
        let taken = until_ok(SOON, async || member.acquire("f", PLAIN).await).await;
        assert!(
            matches!(taken.acquired, AcquireReply::Granted(_)),
            "{taken:?}"
        );
    }
}

#[tokio::test]
async fn a_connection_without_a_known_identity_carries_no_command() {
    let member = TestMember::with(|client| client.command_timeout(ms(2_000))).await;
    let evaluates = |args: &[String]| args[0].starts_with("EVAL");
    let connecting = member.proxy.count(evaluates);
    let rule = member.proxy.on(named("INFO"), Action::DropReply);
    assert!(member.proxy.cut_all() >= 1);
    let failure = member.acquire("f", PLAIN).await.unwrap_err();
    assert!(matches!(failure, Failure::Unsent(_)), "{failure:?}");
    assert_eq!(rule.hits(), 1);
    assert_eq!(member.proxy.count(evaluates), connecting);
    // The next one counts as usual.
    until_ok(SOON, async || member.acquire("f", PLAIN).await).await;
}

#[tokio::test]
async fn a_busy_identity_query_is_retried_before_an_answer_counts() {
    let member = TestMember::start().await;
    let busy = Action::ReplyWith("-BUSY Redis is busy running a script".to_owned());
    let rule = member.proxy.on(named("INFO"), busy).times(2);
    member.server.restart(Data::Lost).await;
    member.acquire("f", PLAIN).await.unwrap();
    assert_eq!(rule.hits(), 2);
    assert!(member.reborn().is_some());
}

/// Any thread may notice it first, so all are recorded.
#[test]
fn without_permission_for_info_everything_else_works_and_one_warning_is_logged() {
    logs::alone(
        "on_servers::identity::without_permission_for_info_everything_else_works_and_one_warning_is_logged",
        without_info(),
    );
}

async fn without_info() {
    let logs = Logs::of_this_process();
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let rules = ["on", ">p", "~*", "&*", "+@all", "-info"];
    redis
        .cmd(&[&["ACL", "SETUSER", "ann"][..], &rules].concat())
        .await;
    let client = Client::connect(format!("redis://ann:p@127.0.0.1:{}", server.port())).await;
    let client = client.unwrap();
    let lock = client.lock("l");
    let reborn = || lock.session().core().server.lost_at("").seen;
    for _ in 0..3 {
        let guard = lock.lock().lease(LONG).await.unwrap();
        guard.unlock().await.unwrap();
        let kill = ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
        redis.cmd(&kill).await;
    }
    assert_eq!(
        lines_with(&logs, "does not report its identity")
            .await
            .len(),
        1
    );
    assert_eq!(reborn(), None);
    // The first identity that it sees.
    redis.cmd(&["ACL", "SETUSER", "ann", "+info"]).await;
    redis
        .cmd(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])
        .await;
    lock.lock()
        .lease(LONG)
        .await
        .unwrap()
        .unlock()
        .await
        .unwrap();
    assert_eq!(reborn(), None);
}

#[test]
fn an_identity_change_logs_one_warning_with_the_server() {
    logs::alone(
        "on_servers::identity::an_identity_change_logs_one_warning_with_the_server",
        changed(),
    );
}

async fn changed() {
    let logs = Logs::of_this_process();
    let member = TestMember::start().await;
    member.server.restart(Data::Lost).await;
    member.ask().await;
    assert!(member.proxy.cut_all() >= 1);
    member.ask().await;
    let warnings = lines_with(&logs, "server identity changed").await;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let Line { level, text, .. } = &warnings[0];
    assert_eq!(*level, Level::WARN);
    let there = format!("127.0.0.1:{}", member.proxy.port());
    assert!(text.contains(&there), "{text}");
}

/// The log lines with these words, at least one. The thread that noticed it may log it slightly later.
async fn lines_with(logs: &Logs, words: &str) -> Vec<Line> {
    let found = || -> Vec<Line> {
        let lines = logs.lines().into_iter();
        lines.filter(|line| line.text.contains(words)).collect()
    };
    eventually(ms(20_000), "the line is logged", async || {
        !found().is_empty()
    })
    .await;
    found()
}

#[tokio::test]
async fn provisioning_ends_the_quarantine() {
    let member = TestMember::start().await;
    member.server.restart(Data::Lost).await;
    member.ask().await;
    assert!(member.reborn().is_some());
    member.client.provision().await.unwrap();
    assert_eq!(member.reborn(), None);
    assert!(member.proxy.cut_all() >= 1);
    member.ask().await;
    assert_eq!(member.reborn(), None, "the confirmed data is what is there");
    member.server.restart(Data::Lost).await;
    member.ask().await;
    assert!(member.reborn() > Some(Moment(0)));
    member.client.shutdown().await;
    let refused = member.client.provision().await.unwrap_err();
    assert!(matches!(refused, crate::Error::Closed), "{refused}");
}

/// A server that sends its data to a replica at once.
pub(super) async fn master() -> RedisServer {
    let server = RedisServer::builder();
    server.arg("--repl-diskless-sync-delay", "0").start().await
}

impl TestMember {
    /// Makes the server take over all data of another one.
    pub(super) async fn follow(&self, other: &RedisServer) {
        let port = other.port().to_string();
        self.redis.cmd(&["REPLICAOF", "127.0.0.1", &port]).await;
        eventually(SOON, "it has the other's data", async || {
            let info: String = self.redis.ask(&["INFO", "replication"]).await;
            info.contains("master_link_status:up")
        })
        .await;
    }
}
