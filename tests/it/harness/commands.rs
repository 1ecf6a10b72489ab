//! The proxy's rules for single commands. Each applies to the commands that it names, and to no others.

use redis::Value;
use tokio::net::TcpStream;

use crate::harness::{PATIENCE, Plain};
use crate::support::prelude::SOON;
use crate::support::resp;
use crate::support::wire::Wire;
use crate::support::{Action, Direction, Gate, Proxy, Redis, RedisServer, eventually, named};

#[tokio::test]
async fn a_dropped_reply_is_lost_but_the_command_ran() {
    let (client, proxy, server) = connected().await;
    let rule = proxy.on(named("INCR"), Action::ExecuteThenCut);
    assert!(
        client
            .incr()
            .await
            .expect_err("it is closed")
            .is_unrecoverable_error()
    );
    assert_eq!((rule.hits(), proxy.counts().cut), (1, 1));
    assert_eq!(counter(&server.redis().await).await, 1);
}

#[tokio::test]
async fn after_a_dropped_reply_the_connection_is_silent_but_executes() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let rule = proxy.on(named("INCR"), Action::DropReply);
    // A bare connection, because a client would take a later reply for the missing one.
    let stream = TcpStream::connect(("127.0.0.1", proxy.port())).await;
    let mut wire = Wire::new(stream.unwrap());
    let incr = resp::encode(&["INCR", "n"]);
    wire.write(&[incr.clone(), incr].concat()).await.unwrap();
    rule.wait_hits(1).await;
    let redis = server.redis().await;
    eventually(SOON, "both ran", async || counter(&redis).await == 2).await;
    assert!(tokio::time::timeout(PATIENCE, wire.next()).await.is_err());
    assert_eq!((rule.hits(), proxy.connections()), (1, 1));
    let second = Plain::connect(proxy.url()).await;
    assert_eq!(second.incr().await, Ok(Value::Int(3)));
}

/// A client would take it for the missing reply.
#[tokio::test]
async fn the_reply_of_a_later_command_does_not_come_in_place_of_a_cut_one() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let rule = proxy.on(named("INCR"), Action::ExecuteThenCut);
    let stream = TcpStream::connect(("127.0.0.1", proxy.port())).await;
    let mut wire = Wire::new(stream.unwrap());
    // The replies are due at the same time.
    proxy.delay(Direction::ToClient, PATIENCE / 10);
    let later = resp::encode(&["ECHO", "later"]).repeat(10);
    let all = [resp::encode(&["PING"]), resp::encode(&["INCR", "n"]), later].concat();
    wire.write(&all).await.unwrap();
    assert_eq!(wire.next().await.unwrap().kind, b'+');
    let after = tokio::time::timeout(SOON, wire.next()).await.unwrap();
    assert!(after.is_err(), "{after:?}");
    assert_eq!(rule.hits(), 1);
}

#[tokio::test]
async fn a_duplicated_command_runs_twice_and_is_answered_once() {
    let (client, proxy, server) = connected().await;
    let rule = proxy.on(named("INCR"), Action::Twice);
    assert_eq!(client.incr().await, Ok(Value::Int(1)));
    rule.wait_hits(1).await;
    assert_eq!(counter(&server.redis().await).await, 2);
    // The later replies still belong to their commands.
    assert_eq!(
        client.send(&["GET", "n"]).await,
        Ok(Value::BulkString(b"2".to_vec()))
    );
    assert_eq!(proxy.count(named("INCR")), 1);
}

#[tokio::test]
async fn a_late_duplicate_runs_in_the_same_database_when_its_gate_opens() {
    let server = RedisServer::builder().password("secret").start().await;
    let proxy = Proxy::start(&server).await;
    let client = Plain::connect(&format!("{}5", proxy.url())).await;
    let gate = Gate::new();
    let rule = proxy.on(named("INCR"), Action::TwiceLate(gate.clone()));
    assert_eq!(client.incr().await, Ok(Value::Int(1)));
    gate.wait_reached().await;
    drop(client);
    let redis = server.redis().await;
    redis.cmd(&["SELECT", "5"]).await;
    assert_eq!((counter(&redis).await, rule.hits()), (1, 0));
    gate.open();
    gate.wait_passed().await;
    assert_eq!((counter(&redis).await, rule.hits()), (2, 1));
}

#[tokio::test]
async fn a_held_request_and_later_requests_run_when_its_gate_opens() {
    let (client, proxy, server) = connected().await;
    let redis = server.redis().await;
    let gate = Gate::new();
    let rule = proxy.on(named("INCR"), Action::HoldRequest(gate.clone()));
    let release = async {
        gate.wait_reached().await;
        assert!(!redis.exists("n").await);
        assert_eq!(rule.hits(), 0);
        gate.open();
        gate.wait_passed().await;
    };
    let behind = async {
        gate.wait_reached().await;
        client.send(&["GET", "n"]).await
    };
    let (held, behind, ()) = tokio::join!(client.incr(), behind, release);
    assert_eq!(held, Ok(Value::Int(1)));
    assert_eq!(behind, Ok(Value::BulkString(b"1".to_vec())));
    assert_eq!(rule.hits(), 1);
}

#[tokio::test]
async fn a_held_request_is_delivered_even_after_its_connection_ended() {
    for cut_by_proxy in [false, true] {
        let (client, proxy, server) = connected().await;
        let redis = server.redis().await;
        let gate = Gate::new();
        let rule = proxy.on(named("INCR"), Action::HoldRequest(gate.clone()));
        assert!(client.incr_is_unanswered().await);
        if cut_by_proxy {
            assert_eq!(proxy.cut_all(), 1);
        }
        drop(client);
        eventually(SOON, "the client left", async || proxy.connections() == 0).await;
        assert!(!redis.exists("n").await);
        gate.open();
        gate.wait_passed().await;
        assert_eq!((counter(&redis).await, rule.hits()), (1, 1));
    }
}

#[tokio::test]
async fn a_held_reply_is_delivered_when_its_gate_opens_but_the_command_ran_before() {
    let (client, proxy, server) = connected().await;
    let redis = server.redis().await;
    let gate = Gate::new();
    let rule = proxy.on(named("INCR"), Action::HoldReply(gate.clone()));
    let replied = std::cell::Cell::new(false);
    let held = async {
        let reply = client.incr().await;
        replied.set(true);
        reply
    };
    let release = async {
        gate.wait_reached().await;
        assert_eq!((counter(&redis).await, rule.hits()), (1, 1));
        // Long enough for a reply that no gate holds.
        tokio::time::sleep(PATIENCE / 4).await;
        assert!(!replied.get());
        gate.open();
        gate.wait_passed().await;
    };
    let (held, ()) = tokio::join!(held, release);
    assert_eq!(held, Ok(Value::Int(1)));
}

#[tokio::test]
async fn an_injected_error_replaces_the_reply_and_nothing_runs() {
    let (client, proxy, server) = connected().await;
    let loading = || Action::ReplyWith("-LOADING wait".to_owned());
    let rule = proxy.on(named("INCR"), loading());
    let (before, refused, after) = tokio::join!(
        client.send(&["SET", "a", "1"]),
        client.incr(),
        client.send(&["GET", "a"])
    );
    assert_eq!(before, Ok(Value::Okay));
    assert_eq!(refused.expect_err("it is refused").code(), Some("LOADING"));
    assert_eq!(after, Ok(Value::BulkString(b"1".to_vec())));
    assert_eq!(rule.hits(), 1);
    assert!(!server.redis().await.exists("n").await);
}

#[tokio::test]
async fn a_rule_applies_once_or_a_given_number_of_times_or_until_it_is_removed() {
    let (client, proxy, _server) = connected().await;
    let error = || Action::ReplyWith("-LOADING wait".to_owned());
    let refused = async || client.incr().await.is_err();
    let once = proxy.on(named("INCR"), error());
    assert!(refused().await && !refused().await);
    let twice = proxy.on(named("INCR"), error()).times(2);
    assert!(refused().await && refused().await && !refused().await);
    let always = proxy.on(named("INCR"), error()).always();
    for _ in 0..5 {
        assert!(refused().await);
    }
    always.remove();
    assert!(!refused().await);
    assert_eq!((once.hits(), twice.hits(), always.hits()), (1, 2, 5));
}

#[tokio::test]
async fn the_oldest_rule_that_matches_the_arguments_wins() {
    let (client, proxy, _server) = connected().await;
    let on_b = proxy.on(
        |args| args.len() > 1 && args[1] == "b",
        Action::ReplyWith("-B b".into()),
    );
    let any_get = proxy
        .on(named("get"), Action::ReplyWith("-GET get".into()))
        .always();
    assert_eq!(
        client.send(&["GET", "b"]).await.expect_err("a rule").code(),
        Some("B")
    );
    assert_eq!(
        client.send(&["GET", "b"]).await.expect_err("a rule").code(),
        Some("GET")
    );
    assert_eq!((on_b.hits(), any_get.hits()), (1, 1));
}

#[tokio::test]
async fn messages_do_not_confuse_the_matching_of_replies() {
    for protocol in ["2", "3"] {
        let server = RedisServer::start().await;
        let proxy = Proxy::start(&server).await;
        let redis = server.redis().await;
        let client = TcpStream::connect(("127.0.0.1", proxy.port()))
            .await
            .unwrap();
        let pinged = proxy.on(named("PING"), Action::ReplyWith("-LOADING wait".to_owned()));
        let left = proxy.on(named("UNSUBSCRIBE"), Action::ExecuteThenCut);
        let before = [&["HELLO", protocol][..], &["SUBSCRIBE", "a", "b"]];
        let written = before.map(resp::encode).concat();
        let mut wire = Wire::new(client);
        wire.write(&written).await.unwrap();
        assert_eq!(wire.next().await.unwrap().texts[0], "server");
        for channel in ["a", "b"] {
            assert_eq!(
                wire.next().await.unwrap().texts[..2],
                ["subscribe", channel]
            );
        }
        for _ in 0..3 {
            redis.cmd(&["PUBLISH", "a", "x"]).await;
            assert_eq!(wire.next().await.unwrap().texts, ["message", "a", "x"]);
        }
        wire.write(&resp::encode(&["PING"])).await.unwrap();
        assert_eq!(wire.next().await.unwrap().texts, ["LOADING wait"]);
        // Because of the delay a message overtakes the command. Its two confirmations never arrive.
        proxy.delay(Direction::ToServer, PATIENCE * 2);
        wire.write(&resp::encode(&["UNSUBSCRIBE"])).await.unwrap();
        proxy.wait_for(named("UNSUBSCRIBE"), 1).await;
        redis.cmd(&["PUBLISH", "b", "y"]).await;
        assert_eq!(wire.next().await.unwrap().texts, ["message", "b", "y"]);
        assert!(wire.next().await.is_err());
        assert_eq!((pinged.hits(), left.hits()), (1, 1));
        redis.assert_clean().await;
    }
}

#[tokio::test]
async fn a_list_that_looks_like_a_message_is_still_the_reply() {
    let (client, proxy, _server) = connected().await;
    let rule = proxy.on(named("LRANGE"), Action::ExecuteThenCut);
    client
        .send(&["RPUSH", "l", "message", "a", "x"])
        .await
        .expect("nothing is wrong");
    assert!(client.send(&["LRANGE", "l", "0", "-1"]).await.is_err());
    assert_eq!(rule.hits(), 1);
}

async fn connected() -> (Plain, Proxy, RedisServer) {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    (Plain::connect(proxy.url()).await, proxy, server)
}

async fn counter(redis: &Redis) -> i64 {
    redis.ask(&["GET", "n"]).await
}
