//! A server that became silent gets one probe at a time, and only while it is silent.

use std::time::{Duration, Instant};

use super::{SOON, TestMember, ms};
use crate::client::Client;
use crate::server::Failure;
use crate::support::{Action, Data, RedisServer, eventually, named};

#[tokio::test]
async fn without_suspicion_the_client_sends_no_probe() {
    let member = TestMember::start().await;
    let before = member.proxy.commands().len();
    assert!(member.core.server.suspected("").is_none());
    tokio::time::sleep(ms(700)).await;
    assert_eq!(member.proxy.commands().len(), before);
}

#[tokio::test]
async fn a_frozen_server_gets_one_probe() {
    let member = TestMember::with(|client| client.command_timeout(SOON)).await;
    member.clear_one().await;
    member.redis.reset_stats().await;
    let before = member.proxy.commands().len();
    member.server.pause();
    member.suspect();
    // Much longer than several pauses, and far shorter than the timeout of one probe.
    tokio::time::sleep(ms(1500)).await;
    assert!(member.suspected());
    member.server.resume();
    eventually(SOON, "it is cleared at once", async || !member.suspected()).await;
    tokio::time::sleep(ms(700)).await;
    let sent = member.sent_since(before);
    assert_eq!(count(&sent, "PING"), 1, "{sent:?}");
    // The connection might have been the cause.
    assert_eq!(count(&sent, GREETING), 1, "{sent:?}");
    assert_eq!(member.redis.commandstats().await["ping"], 1);
}

#[tokio::test]
async fn a_frozen_server_without_a_connection_gets_one_greeting() {
    let member = TestMember::with(|client| client.command_timeout(SOON)).await;
    let before = member.proxy.commands().len();
    member.server.pause();
    member.suspect();
    tokio::time::sleep(ms(1500)).await;
    assert!(member.suspected());
    // redis-rs's greeting, two commands in one.
    let waiting = member.sent_since(before);
    assert_eq!(count(&waiting, GREETING), 1, "{waiting:?}");
    assert_eq!(waiting.len(), 2, "{waiting:?}");
    member.server.resume();
    eventually(SOON, "it is cleared", async || !member.suspected()).await;
    assert_eq!(count(&member.sent_since(before), "PING"), 1);
}

#[tokio::test]
async fn probes_to_a_silent_server_are_sequential() {
    let timeout = ms(300);
    let member = TestMember::with(|client| client.command_timeout(timeout)).await;
    member.clear_one().await;
    let before = member.proxy.commands().len();
    member.server.pause();
    member.suspect();
    let began = Instant::now();
    tokio::time::sleep(ms(2000)).await;
    // Each probe uses a new connection, because the previous one was abandoned.
    let probes = |sent: &[String]| count(sent, "PING") + count(sent, GREETING);
    eventually(SOON, "a second probe is sent", async || {
        probes(&member.sent_since(before)) >= 2
    })
    .await;
    let sent = member.sent_since(before);
    let frozen = began.elapsed();
    let asked = probes(&sent);
    let most = frozen.div_duration_f64(timeout).ceil() as usize;
    assert!(asked <= most, "{asked} of {most}: {sent:?}");
    assert_eq!(count(&sent, "PING"), 1, "only the first had a connection");
    assert!(member.suspected());
    member.server.resume();
    eventually(SOON, "it is cleared", async || !member.suspected()).await;
}

#[tokio::test]
async fn a_killed_server_is_suspect_until_it_is_back_and_identified() {
    let member = TestMember::start().await;
    member.server.kill();
    member.suspect();
    tokio::time::sleep(ms(700)).await;
    assert!(member.suspected());
    member.server.restart(Data::Lost).await;
    eventually(SOON, "it is cleared", async || !member.suspected()).await;
    assert!(
        member.reborn().is_some(),
        "it answers, and it is not known to be another"
    );
}

#[tokio::test]
async fn transient_refusals_keep_the_suspicion_and_slow_the_probes() {
    for line in [
        "-LOADING Redis is loading the dataset in memory",
        "-BUSY Redis is busy running a script",
        "-MASTERDOWN Link with MASTER is down",
        "-ERR max number of clients reached",
    ] {
        // A probe whose answer is late on a busy machine is not repeated.
        let member = TestMember::with(|client| client.command_timeout(SOON)).await;
        let rule = member
            .proxy
            .on(named("PING"), Action::ReplyWith(line.to_owned()));
        let rule = rule.always();
        member.suspect_after(SOON);
        let pings = || -> Vec<_> {
            let commands = member.proxy.commands().into_iter();
            let pings = commands.filter(|seen| seen.args == ["PING"]);
            pings.map(|seen| seen.at).collect()
        };
        eventually(SOON, "its commands are repeated", async || {
            pings().len() > 6
        })
        .await;
        assert!(member.suspected(), "{line}");
        let pings = pings();
        let pauses: Vec<Duration> = pings.windows(2).map(|two| two[1] - two[0]).collect();
        for (number, pause) in pauses.iter().enumerate() {
            let least = ms(20 << number).min(ms(500));
            assert!(*pause >= least, "{line}: {pauses:?}");
        }
        rule.remove();
        eventually(SOON, "it is cleared", async || !member.suspected()).await;
    }
}

#[tokio::test]
async fn a_permission_error_counts_as_an_answer() {
    let member = TestMember::start().await;
    let line = "-NOPERM this user has no permissions to run the 'ping' command";
    let rule = member
        .proxy
        .on(named("PING"), Action::ReplyWith(line.to_owned()));
    member.suspect();
    eventually(SOON, "it is cleared", async || !member.suspected()).await;
    assert_eq!(rule.hits(), 1);
}

#[tokio::test]
async fn a_silent_connection_to_a_live_server_is_closed() {
    let member = TestMember::with(|client| client.command_timeout(ms(1_000))).await;
    member.clear_one().await;
    let rule = member.proxy.on(named("PING"), Action::DropReply);
    member.suspect();
    eventually(SOON, "it is cleared over another", async || {
        !member.suspected()
    })
    .await;
    assert_eq!(rule.hits(), 1);
}

#[cfg(feature = "deadpool")]
#[tokio::test]
async fn a_pool_of_two_has_room_for_the_probe() {
    let server = RedisServer::start().await;
    let config = deadpool_redis::Config::from_url(server.url());
    let pool = config.builder().unwrap().max_size(2).build().unwrap();
    let client = Client::builder().pool(pool).build().await.unwrap();
    let core = client.lock("l").session().core().clone();
    for _ in 0..2 {
        core.server
            .node("")
            .unwrap()
            .suspect(&Failure::silent(ms(20)));
        let cleared = async || core.server.suspected("").is_none();
        eventually(SOON, "it is cleared", cleared).await;
    }
}

#[tokio::test]
async fn the_first_cause_is_kept_until_the_suspicion_is_cleared() {
    let member = TestMember::start().await;
    member.server.pause();
    let server = &member.core.server;
    server.node("").unwrap().suspect(&Failure::silent(ms(20)));
    server
        .node("")
        .unwrap()
        .suspect(&Failure::Unsent("later".into()));
    let why = server.suspected("");
    assert!(
        matches!(why, Some(Failure::Silent { waited: limit, .. }) if limit == ms(20)),
        "{why:?}"
    );
    member.server.resume();
    eventually(SOON, "it is cleared", async || !member.suspected()).await;
    // No probe is answered before the test has seen the cause.
    member.server.pause();
    server
        .node("")
        .unwrap()
        .suspect(&Failure::Unsent("again".into()));
    let why = server.suspected("");
    assert!(
        matches!(&why, Some(Failure::Unsent(cause)) if &**cause == "again"),
        "{why:?}"
    );
    member.server.resume();
    eventually(SOON, "it is cleared again", async || !member.suspected()).await;
}

#[tokio::test]
async fn an_address_has_no_user_and_no_password() {
    let server = RedisServer::builder()
        .password("secret")
        .unix_socket()
        .start()
        .await;
    let address = async |client: Client| client.lock("l").session().core().server.address();
    let client = Client::connect(server.url()).await.unwrap();
    let there = format!("127.0.0.1:{}", server.port());
    assert_eq!(address(client).await, there);
    let socket = server.socket().expect("it was asked for");
    let socket = socket.to_str().expect("it is plain");
    let url = format!("unix://{socket}?pass=secret");
    let client = Client::connect(url).await.unwrap();
    assert_eq!(address(client).await, socket);
    #[cfg(feature = "deadpool")]
    {
        let config = deadpool_redis::Config::from_url(server.url());
        let pool = config.create_pool(None).unwrap();
        let client = Client::builder().pool(pool).build().await.unwrap();
        assert_eq!(address(client).await, "pool");
    }
}

impl TestMember {
    fn suspect(&self) {
        self.suspect_after(ms(20));
    }

    /// As after a command that had no answer for this long. A probe is repeated after twice this time.
    fn suspect_after(&self, waited: Duration) {
        let node = self.core.server.node("").unwrap();
        node.suspect(&Failure::silent(waited));
    }

    fn suspected(&self) -> bool {
        self.core.server.suspected("").is_some()
    }

    /// Makes the background connect, by a suspicion without a cause.
    async fn clear_one(&self) {
        self.suspect();
        eventually(SOON, "it is cleared", async || !self.suspected()).await;
    }

    fn sent_since(&self, before: usize) -> Vec<String> {
        let commands = self.proxy.commands();
        let sent = commands[before..].iter();
        sent.map(|seen| seen.args.join(" ")).collect()
    }
}

fn count(sent: &[String], start: &str) -> usize {
    sent.iter().filter(|text| text.starts_with(start)).count()
}

/// The first command that redis-rs sends on a connection.
const GREETING: &str = "CLIENT SETINFO LIB-NAME";
