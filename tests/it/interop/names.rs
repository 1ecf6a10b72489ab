//! A name of any form is the same key and the same channel on both sides.

use std::time::SystemTime;

use lockdog::ClientBuilder;

use super::{
    NEVER, SAFETY, a_waiter_listens, assert_woken, channel, is_empty, java_at, waiter,
    without_timers,
};
use crate::support::redisson::Builder;
use crate::support::{RedisServer, eventually};

#[tokio::test]
async fn locks_with_any_name_exclude_and_wake_the_other_side() {
    let names = [
        "orders",
        "my lock",
        " ",
        "zámek:鍵",
        "{a}:b",
        "a}b",
        "a{b",
        "{}",
        "{}a",
        "}{",
        "a:{b}:{c}",
        "with \"quotes\" and 'more'",
        "back\\slash\nnewline\ttab",
        "*?[a]",
    ];
    share(&names, "", |java| java, |ours| ours).await;
}

#[tokio::test]
async fn locks_with_a_name_mapper_exclude_and_wake_the_other_side() {
    let names = ["orders", "my lock", "{a}:b"];
    let mapper = |ours: ClientBuilder| ours.name_mapper(|name| format!("app:{name}"));
    share(&names, "app:", |java| java.name_prefix("app:"), mapper).await;
}

#[tokio::test]
async fn a_mapper_may_add_the_braces() {
    let mapper = |ours: ClientBuilder| ours.name_mapper(|name| format!("{{app}}:{name}"));
    share(
        &["orders"],
        "{app}:",
        |java| java.name_prefix("{app}:"),
        mapper,
    )
    .await;
}

/// Passes each lock from Java to us and back, each time by a message.
async fn share(
    names: &[&str],
    prefix: &str,
    java: impl FnOnce(Builder) -> Builder,
    ours: impl FnOnce(ClientBuilder) -> ClientBuilder,
) {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let java = java(java_at(&server)).start().await;
    let client = ours(without_timers(&server)).build().await.unwrap();
    let t1 = java.thread("t1");
    for name in names {
        let key = format!("{prefix}{name}");
        let lock = client.lock(name);
        let messages = redis.messages("*").await;
        let expected = (channel(&key), "0".to_owned());

        t1.lock_for(name, NEVER).await;
        assert!(redis.exists(&key).await, "{name:?}");
        assert!(lock.try_lock().await.unwrap().is_none(), "{name:?}");
        let waiting = waiter(&lock);
        a_waiter_listens(&redis, &key).await;
        let released = SystemTime::now();
        t1.unlock(name).await.unwrap();
        let (guard, at) = tokio::time::timeout(SAFETY, waiting)
            .await
            .unwrap()
            .unwrap();
        assert_woken(&format!("our waiter for {name:?}"), released, at);

        assert!(redis.exists(&key).await, "{name:?}");
        assert!(!t1.try_lock(name).await, "{name:?}");
        let waiting = t1.start_lock_for(name, NEVER);
        a_waiter_listens(&redis, &key).await;
        let released = SystemTime::now();
        guard.unlock().await.unwrap();
        let locked = tokio::time::timeout(SAFETY, waiting.answer())
            .await
            .unwrap();
        assert_woken(&format!("Java for {name:?}"), released, locked.at);
        t1.unlock(name).await.unwrap();

        // The recorder receives the messages a moment later, and Redisson deletes its latch after the
        // answer to its unlock.
        eventually(SAFETY, "three messages, and no key left", async || {
            messages.seen().len() == 3 && is_empty(&redis).await
        })
        .await;
        assert!(
            messages.seen().iter().all(|seen| *seen == expected),
            "{name:?}"
        );
    }
    redis.assert_clean().await;
}
