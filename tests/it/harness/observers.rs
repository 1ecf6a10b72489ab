//! The test's own connection reports what the server has and does.

use std::collections::BTreeMap;

use crate::harness::Plain;
use crate::support::prelude::{SOON, ms};
use crate::support::{RedisServer, eventually};

#[tokio::test]
async fn keys_hashes_and_ttls_are_read_back() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    redis.cmd(&["HSET", "b", "f", "v"]).await;
    redis.cmd(&["SET", "a", "1", "PX", "60000"]).await;
    assert_eq!(redis.keys().await, ["a", "b"]);
    assert_eq!(
        redis.hash("b").await,
        BTreeMap::from([("f".to_owned(), "v".to_owned())])
    );
    assert_eq!(redis.pttl("b").await, -1);
    assert_eq!(redis.pttl("c").await, -2);
    assert!((1..=60_000).contains(&redis.pttl("a").await));
    assert!(redis.exists("a").await && !redis.exists("c").await);
}

#[tokio::test]
#[should_panic(expected = r#"["HGET", "k", "f"] failed: "#)]
async fn a_refused_command_fails_the_test_with_its_error() {
    let redis = RedisServer::start().await.redis().await;
    redis.cmd(&["HGET", "k", "f"]).await;
}

#[tokio::test]
async fn statistics_count_commands_and_errors_since_the_reset() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    redis.cmd(&["SET", "k", "v"]).await;
    redis.reset_stats().await;
    redis.cmd(&["SET", "k", "v"]).await;
    redis
        .cmd(&["EVAL", "return redis.call('SET', 'k', 'w')", "0"])
        .await;
    assert!(redis.try_cmd(&["HGET", "k", "f"]).await.is_err());
    let stats = redis.commandstats().await;
    assert_eq!((stats["set"], stats["eval"]), (2, 1));
    assert_eq!(
        redis.errorstats().await,
        BTreeMap::from([("WRONGTYPE".to_owned(), 1)])
    );
}

#[tokio::test]
async fn messages_are_recorded_once_the_recorder_is_returned() {
    let server = RedisServer::builder().password("secret").start().await;
    let redis = server.redis().await;
    let messages = redis.messages("lock:*").await;
    assert_eq!(redis.ask::<u64>(&["PUBLISH", "lock:a", "0"]).await, 1);
    redis.cmd(&["PUBLISH", "other", "1"]).await;
    redis.cmd(&["PUBLISH", "lock:b", "2"]).await;
    eventually(SOON, "two messages were recorded", async || {
        messages.seen().len() == 2
    })
    .await;
    let text = |channel: &str, payload: &str| (channel.to_owned(), payload.to_owned());
    assert_eq!(messages.seen(), [text("lock:a", "0"), text("lock:b", "2")]);
    redis.assert_clean().await;
}

#[tokio::test]
async fn the_monitor_sees_the_commands_of_scripts() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let monitor = redis.monitor().await;
    redis
        .cmd(&["EVAL", "return redis.call('SET', 'k', 'v')", "0"])
        .await;
    let seen = async || {
        let lines = monitor.seen();
        lines
            .iter()
            .any(|line| line.contains(" lua]") && line.contains(r#""k" "v""#))
    };
    eventually(SOON, "the script's SET was recorded", seen).await;
}

#[tokio::test]
async fn clients_are_listed_and_can_be_killed() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let client = Plain::connect(&server.url()).await;
    client
        .send(&["CLIENT", "SETNAME", "victim"])
        .await
        .expect("a name can be set");
    let clients = redis.clients().await;
    let victim = clients
        .iter()
        .find(|info| info.name == "victim")
        .expect("it is connected");
    assert!(victim.cmd.starts_with("client"), "{victim:?}");
    assert_eq!(victim.sub, 0);
    assert_eq!(victim.fields["id"], victim.id.to_string());
    // Servers since 7.2 report the library's name, which redis-rs sends. Older servers do not.
    assert_eq!(victim.lib.is_some(), victim.fields.contains_key("lib-ver"));
    redis.kill_client(victim.id).await;
    assert!(client.incr().await.is_err());
}

#[tokio::test]
#[should_panic(expected = "left behind on the server: key k without expiry")]
async fn a_key_without_ttl_is_not_clean() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    redis.cmd(&["SET", "expires", "v", "PX", "60000"]).await;
    redis.cmd(&["SET", "k", "v"]).await;
    redis.assert_clean_within(ms(100)).await;
}

#[tokio::test]
#[should_panic(expected = "left behind on the server: channel c")]
async fn a_channel_with_a_subscriber_is_not_clean() {
    let server = RedisServer::start().await;
    let client = redis::Client::open(server.url()).expect("the URL is ours");
    let mut subscriber = client.get_async_pubsub().await.expect("it is reachable");
    subscriber
        .subscribe("c")
        .await
        .expect("any client may subscribe");
    server.redis().await.assert_clean_within(ms(100)).await;
}

#[tokio::test]
async fn assert_clean_waits_for_a_late_clean_up() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    redis.cmd(&["SET", "k", "v"]).await;
    let clean_up = async {
        tokio::time::sleep(ms(200)).await;
        redis.cmd(&["DEL", "k"]).await;
    };
    tokio::join!(redis.assert_clean(), clean_up);
}
