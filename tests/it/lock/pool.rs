//! A connection pool of the user.

use deadpool_redis::{Config, Pool, Runtime};
use lockdog::{Client, Error};
use tracing::Level;

use super::{LONG, SOON, ms, renewed, waiter};
use crate::support::{Logs, RedisServer, eventually};
use crate::turn::turn;

#[tokio::test]
async fn a_pool_with_sentinels_or_a_cluster_is_refused_at_build() {
    let server = RedisServer::start().await;
    let builder = || Client::builder().pool(pool(&server, 4)).lazy(true);
    let node = server.url();
    for refused in [
        builder().url("redis+sentinel://127.0.0.1:1/orders"),
        builder().url("rediss+sentinel://127.0.0.1:1/orders"),
        builder().sentinel("orders", [&node]),
        builder().url("redis+cluster://127.0.0.1:1"),
        builder().url("rediss+cluster://127.0.0.1:1"),
        builder().cluster([&node]),
    ] {
        let shown = format!("{refused:?}");
        let error = refused.build().await.expect_err(&shown);
        let is_pool = matches!(&error, Error::Invalid { what: "pool", .. });
        assert!(is_pool, "{shown}: {error:?}");
    }
    builder().url(&node).build().await.expect("one server");
}

#[tokio::test]
async fn a_client_with_only_a_pool_polls_and_logs_it() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let (logs, _recording) = Logs::of_this_thread();
    let pool = pool(&server, 4);
    let client = Client::builder()
        .pool(pool.clone())
        .watchdog_lease(ms(6_000))
        .build()
        .await
        .unwrap();
    let warnings = logs.at_least(Level::WARN);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].text.contains("pool without a url"),
        "{warnings:?}"
    );

    let held = Client::connect(server.url()).await.unwrap();
    let held = held.lock("l").lock().lease(LONG).await.unwrap();
    redis.reset_stats().await;
    let waiting = waiter(&client.lock("l"));
    let stats = async || redis.commandstats().await;
    let polls = async || {
        stats()
            .await
            .get("evalsha")
            .is_some_and(|calls| *calls >= 5)
    };
    eventually(SOON, "it asks again and again", polls).await;
    held.unlock().await.unwrap();
    let guard = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
    assert!(!stats().await.contains_key("subscribe"));
    // The watchdog renews through the pool.
    renewed(&[&guard]).await;
    assert_eq!(
        pool.status().size,
        2,
        "callers share one connection, the watchdog has one"
    );
    guard.unlock().await.unwrap();
    client.shutdown().await;
    drop(client);
    // The borrowed connections are returned.
    let back = async || pool.status().available == pool.status().size;
    eventually(SOON, "the pool has its connections back", back).await;
    redis.assert_clean().await;
}

#[tokio::test]
async fn a_pool_with_a_url_serves_callers_and_waits_by_messages() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let (logs, _recording) = Logs::of_this_thread();
    let pool = pool(&server, 1);
    let client = Client::builder()
        .pool(pool.clone())
        .url(server.url())
        .poll_cap(ms(60_000))
        .watchdog_lease(ms(6_000))
        .build()
        .await
        .unwrap();
    assert!(logs.loud().is_empty());
    let held = Client::connect(server.url()).await.unwrap();
    let held = held.lock("l").lock().lease(LONG).await.unwrap();
    let waiting = waiter(&client.lock("l"));
    let listens = async || redis.channels().await.len() == 1;
    eventually(SOON, "the waiter listens", listens).await;
    held.unlock().await.unwrap();
    let guard = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
    // The watchdog has a connection of its own.
    renewed(&[&guard]).await;
    assert_eq!((pool.status().size, pool.status().available), (1, 0));
    guard.unlock().await.unwrap();
    redis.assert_clean().await;
}

/// The call that finds its connection broken gets another one, although the pool may have only one at a time.
#[tokio::test]
async fn a_pool_of_one_connection_is_enough_after_that_one_broke() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let pool = pool(&server, 1);
    let client = Client::builder()
        .pool(pool.clone())
        .url(server.url())
        .command_timeout(SOON)
        .build()
        .await
        .unwrap();
    turn(&client.lock("l")).await;
    let killed: u32 = redis.ask(&["CLIENT", "KILL", "TYPE", "normal"]).await;
    assert!(killed >= 1, "{killed}");
    turn(&client.lock("l")).await;
    assert_eq!((pool.status().size, pool.status().available), (1, 0));
    redis.assert_clean().await;
}

fn pool(server: &RedisServer, size: usize) -> Pool {
    Config::from_url(server.url())
        .builder()
        .unwrap()
        .max_size(size)
        .runtime(Runtime::Tokio1)
        .build()
        .unwrap()
}
