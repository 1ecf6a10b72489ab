//! Properties of names, tested on a real server.

use lockdog::{Client, Error};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tokio::runtime::Runtime;

use super::SOON;
use crate::support::cluster::slot;
use crate::support::{Deployment, Redis, eventually};

#[test]
fn key_and_channel_of_a_name_without_braces_have_the_same_slot() {
    // The checksum in the specification.
    assert_eq!(slot("123456789"), 0x31c3);
    for_every("[^{}]{1,40}", |key, channel| {
        assert!(key.len() <= 512);
        assert_eq!(slot(key), slot(channel), "{key:?} {channel:?}");
    });
}

#[test]
fn every_name_is_the_key_without_a_change() {
    for_every(
        "[ \"'\\\\{}*?a-zA-Z0-9:\\r\\n\\t\u{0}üñ雪🦀]{1,40}|\\PC{1,60}",
        |_, _| {},
    );
}

/// Locks and unlocks many names of this form, and checks that the key is exactly the name. The check gets
/// the key as stored in Redis, and the channel on which the unlock was published.
fn for_every(names: &str, check: impl Fn(&str, &str)) {
    let runtime = Runtime::new().expect("threads can be started");
    let _inside = runtime.enter();
    let (server, redis, client) = runtime.block_on(async {
        let server = Deployment::start().await;
        let redis = server.redis().await;
        let client = Client::connect(server.url()).await.unwrap();
        (server, redis, client)
    });
    let messages = runtime.block_on(redis.messages("*"));
    let config = Config {
        cases: 150,
        failure_persistence: None,
        ..Config::default()
    };
    let strategy = proptest::string::string_regex(names).expect("it is an expression");
    let checked = TestRunner::new(config).run(&strategy, |name| {
        if !server.takes(&name) {
            let refused = runtime.block_on(client.lock(&*name).lock().into_future());
            let is_name = matches!(
                refused,
                Err(Error::Invalid {
                    what: "lock name",
                    ..
                })
            );
            prop_assert!(is_name, "{:?}", refused);
            return Ok(());
        }
        let key = runtime.block_on(round_trip(&client, &redis, &name));
        prop_assert_eq!(&key, &name);
        let before = messages.seen().len();
        let published =
            async || messages.seen().len() > before || is_about(&messages.seen(), &name);
        runtime.block_on(eventually(SOON, "the unlock was published", published));
        let seen = messages.seen();
        let (channel, _) = seen.last().expect("there is one");
        prop_assert!(channel.starts_with("redisson_lock__channel:"));
        prop_assert!(channel.contains(&*name));
        check(&key, channel);
        Ok(())
    });
    checked.unwrap_or_else(|failure| panic!("{failure}"));
}

fn is_about(seen: &[(String, String)], name: &str) -> bool {
    seen.last().is_some_and(|(channel, _)| {
        channel == &format!("redisson_lock__channel:{{{name}}}")
            || channel == &format!("redisson_lock__channel:{name}")
    })
}

async fn round_trip(client: &Client, redis: &Redis, name: &str) -> String {
    let guard = client.lock(name).lock().await.unwrap();
    let mut keys = redis.keys().await;
    assert_eq!(guard.name(), name);
    assert_eq!(redis.hash(name).await.len(), 1);
    guard.unlock().await.unwrap();
    assert_eq!(keys.len(), 1, "{keys:?}");
    keys.remove(0)
}
