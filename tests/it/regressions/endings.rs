//! No key is left, and no owner holds a lock that no client renews.

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use lockdog::{Client, Error, Owner};

use super::{SOON, call_for, ms, through};
use crate::support::{Action, Gate, Proxy, RedisServer, eventually};
use crate::turn::turn;

#[tokio::test]
async fn an_acquire_that_may_have_run_is_undone_when_the_reconnect_is_refused() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let user = [
        "ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all",
    ];
    redis.cmd(&user).await;
    let proxy = Proxy::start(&server).await;
    let url = format!("redis://app:secret@127.0.0.1:{}/", proxy.port());
    let client = Client::connect(url).await.unwrap();
    // A dropped guard makes the client open its background connection, which stays open after the
    // password changes.
    drop(client.lock("warm").lock().await.unwrap());
    eventually(SOON, "the first lock is free", async || {
        !redis.exists("warm").await
    })
    .await;

    let rule = proxy.on(call_for("l"), Action::ExecuteThenCut);
    redis
        .cmd(&["ACL", "SETUSER", "app", "resetpass", ">other"])
        .await;
    let refused = client.lock("l").lock().await.unwrap_err();
    assert!(matches!(refused, Error::Refused { .. }), "{refused}");
    assert_eq!(rule.hits(), 1);
    eventually(SOON, "the unseen grant is undone", async || {
        !redis.exists("l").await
    })
    .await;
}

#[tokio::test]
async fn an_acquire_in_progress_at_the_shutdown_returns_closed_and_leaves_nothing() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let proxy = Proxy::start(&server).await;
    for wait in [true, false] {
        let client = through(&proxy).build().await.unwrap();
        // The server knows the scripts, so each command is sent once.
        turn(&client.lock("warm")).await;
        let gate = Gate::new();
        let rule = proxy.on(call_for("l"), Action::HoldReply(gate.clone()));
        let lock = client.lock("l");
        let acquire = tokio::spawn(async move {
            if wait {
                lock.lock().await.map(Some)
            } else {
                lock.try_lock().await
            }
        });
        gate.wait_reached().await;
        assert!(redis.exists("l").await);
        let shutdown = tokio::spawn({
            let client = client.clone();
            async move { client.shutdown().await }
        });
        tokio::time::sleep(ms(200)).await;
        gate.open();
        let ended = acquire.await.unwrap();
        assert!(matches!(ended, Err(Error::Closed)), "{ended:?}");
        shutdown.await.unwrap();
        assert_eq!(rule.hits(), 1);
        assert!(!redis.exists("l").await);
    }
}

#[tokio::test]
async fn a_lock_freed_by_force_before_its_grant_was_read_is_not_granted() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let client = Client::connect(server.url()).await.unwrap();
    let lock = client.lock("l");
    // The server knows the scripts, so each command is sent once.
    lock.lock().await.unwrap().unlock().await.unwrap();
    let mut acquire = pin!(lock.lock().owner(&Owner::new()).into_future());
    let mut ignored = Context::from_waker(Waker::noop());
    assert!(matches!(acquire.as_mut().poll(&mut ignored), Poll::Pending));
    eventually(SOON, "redis has granted it", async || {
        redis.exists("l").await
    })
    .await;
    assert!(lock.force_unlock().await.unwrap());
    let guard = acquire.await.unwrap();
    assert!(guard.is_valid());
    assert!(redis.exists("l").await, "a guard without a lock");
}

#[tokio::test]
async fn a_refused_reentry_leaves_the_count_unchanged() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let user = [
        "ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-pttl",
    ];
    redis.cmd(&user).await;
    let url = format!("redis://app:secret@127.0.0.1:{}/", server.port());
    let client = Client::connect(url).await.unwrap();
    let lock = client.lock("l");
    let guard = lock.lock().await.unwrap();
    let refused = lock.lock().await.unwrap_err();
    assert!(matches!(refused, Error::Refused { .. }), "{refused}");
    let counts: Vec<String> = redis.hash("l").await.into_values().collect();
    assert_eq!((counts, guard.hold_count()), (vec!["1".to_owned()], 1));
}

#[tokio::test]
async fn failing_settlements_do_not_delay_other_settlements() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let client = Client::connect(server.url()).await.unwrap();
    let mut spoilt = Vec::new();
    for i in 0..300 {
        let name = format!("spoilt{i}");
        let lock = client.lock(&name);
        spoilt.push(lock.lock().lease(4 * SOON).await.unwrap());
        redis.cmd(&["SET", &name, "no hash", "PX", "60000"]).await;
    }
    let guard = client.lock("l").lock().await.unwrap();
    drop(spoilt);
    tokio::time::sleep(ms(300)).await;
    drop(guard);
    eventually(SOON, "the last one dropped is free", async || {
        !redis.exists("l").await
    })
    .await;
    eventually(SOON, "the others were tried", async || {
        redis.errorstats().await.get("WRONGTYPE").copied() >= Some(300)
    })
    .await;
}
