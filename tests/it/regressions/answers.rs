//! A call ends, and its answer is correct.

use std::time::Duration;

use lockdog::Client;
use lockdog::config::{Backoff, Wake};

use super::{SOON, call_for, ms, through};
use crate::support::{Action, Direction, Proxy, RedisServer, eventually, named, until_ok};

#[tokio::test]
async fn a_server_slower_than_the_poll_cap_still_serves_a_queue() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let other = Client::connect(server.url()).await.unwrap();
    let held = other.lock("l").lock().await.unwrap();
    let client = through(&proxy).poll_cap(ms(10)).build().await.unwrap();
    let waiter = || {
        let lock = client.lock("l");
        tokio::spawn(async move { lock.lock().await.map(drop) })
    };
    let waiters = [waiter(), waiter(), waiter()];
    proxy.delay(Direction::ToServer, ms(60));
    proxy.delay(Direction::ToClient, ms(60));
    held.unlock().await.unwrap();
    for waiter in waiters {
        let served = tokio::time::timeout(4 * SOON, waiter).await;
        served.expect("each is served").unwrap().unwrap();
    }
    assert!(proxy.counts().delayed > 0);
}

#[tokio::test]
async fn a_waiter_behind_a_holder_of_its_client_gets_busy_after_a_past_outage() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let other = Client::connect(server.url()).await.unwrap();
    let held = other.lock("l").lock().await.unwrap();
    let client = through(&proxy).command_timeout(ms(200));
    let client = until_ok(SOON, async || client.clone().build().await).await;
    let waiter = |wait: Duration| {
        let lock = client.lock("l");
        tokio::spawn(async move { lock.try_lock().wait(wait).await })
    };
    let first = waiter(4 * SOON);
    proxy.wait_for(call_for("l"), 1).await;
    let second = waiter(ms(8000));

    proxy.refuse();
    proxy.cut_all();
    tokio::time::sleep(ms(500)).await;
    eventually(SOON, "a reconnect was refused", async || {
        proxy.counts().refused > 0
    })
    .await;
    held.unlock().await.unwrap();
    proxy.heal();
    let guard = first.await.unwrap().unwrap().expect("it is free");
    let busy = second.await.unwrap();
    assert!(matches!(busy, Ok(None)), "{busy:?}");
    drop(guard);
}

#[tokio::test]
async fn a_silent_connection_is_abandoned_after_a_query() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let client = through(&proxy).command_timeout(ms(2_000));
    let client = until_ok(SOON, async || client.clone().build().await).await;
    let lock = client.lock("l");
    let rule = proxy.on(named("EXISTS"), Action::DropReply);
    assert!(lock.is_locked().await.unwrap_err().is_timeout());
    assert!(!until_ok(SOON, async || lock.is_locked().await).await);
    let second = proxy.on(named("HGETALL"), Action::DropReply);
    assert!(lock.force_unlock().await.unwrap_err().is_timeout());
    assert!(!until_ok(SOON, async || lock.force_unlock().await).await);
    assert_eq!((rule.hits(), second.hits()), (1, 1));
}

#[tokio::test]
async fn no_backoff_is_longer_than_the_poll_cap() {
    let server = RedisServer::start().await;
    let other = Client::connect(server.url()).await.unwrap();
    let held = other.lock("l").lock().await.unwrap();
    let client = Client::builder()
        .url(server.url())
        .wake(Wake::Poll(Backoff::constant(Duration::MAX)))
        .poll_cap(ms(50))
        .build()
        .await
        .unwrap();
    let lock = client.lock("l");
    assert!(
        until_ok(SOON, async || lock.try_lock().wait(ms(1_000)).await)
            .await
            .is_none()
    );
    let waiter = tokio::spawn(async move { lock.lock().await.map(drop) });
    tokio::time::sleep(ms(100)).await;
    held.unlock().await.unwrap();
    let served = tokio::time::timeout(SOON, waiter).await;
    served.expect("it polls").unwrap().unwrap();
}

#[tokio::test]
async fn a_grant_answered_after_its_lease_is_a_timeout() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let proxy = Proxy::start(&server).await;
    let client = through(&proxy).build().await.unwrap();
    proxy.delay(Direction::ToClient, ms(60));
    let late = client.lock("l").try_lock().lease(ms(20)).await;
    assert!(
        late.as_ref().is_err_and(lockdog::Error::is_timeout),
        "{late:?}"
    );
    assert!(proxy.counts().delayed > 0);
    eventually(SOON, "nothing is left", async || !redis.exists("l").await).await;
}

#[cfg(feature = "deadpool")]
#[tokio::test]
async fn a_user_pool_does_not_shorten_the_command_timeout() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let config = deadpool_redis::Config::from_url(proxy.url());
    let runtime = Some(deadpool_redis::Runtime::Tokio1);
    let client = Client::builder()
        .url(server.url())
        .pool(config.create_pool(runtime).unwrap())
        .command_timeout(2 * SOON)
        .build()
        .await
        .unwrap();
    // Longer than the half second after which the pool's connection fails by itself.
    proxy.delay(Direction::ToClient, ms(800));
    let guard = client.lock("l").try_lock().await.unwrap();
    assert!(guard.is_some());
    assert!(proxy.counts().delayed > 0);
}
