//! Many callers and one server that cannot be reached.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockdog::{Client, Error};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::{SOON, ms};
use crate::support::{Data, Proxy, RedisServer, Sentinels, eventually, timed};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_callers_share_one_connect_and_each_gets_the_cause() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let client = Client::connect(proxy.url()).await.unwrap();
    client
        .lock("l")
        .lock()
        .await
        .unwrap()
        .unlock()
        .await
        .unwrap();
    proxy.refuse();
    assert!(proxy.cut_all() >= 1);
    let mut calls = JoinSet::new();
    for number in 0..1000 {
        let lock = client.lock(format!("l{number}"));
        calls.spawn(async move { lock.lock().await.map(drop) });
    }
    let mut failed = 0;
    let (texts, took) = timed(async {
        let mut texts = Vec::new();
        while let Some(call) = calls.join_next().await {
            let error = call.unwrap().unwrap_err();
            failed += 1;
            texts.push(error.to_string());
        }
        texts
    })
    .await;
    assert_eq!(failed, 1000);
    let hides = |text: &&String| text.contains("a moment ago") || text.contains("in time");
    let hidden: Vec<_> = texts.iter().filter(hides).collect();
    assert!(hidden.is_empty(), "{} hide it: {}", hidden.len(), hidden[0]);
    // Callers, watchdog and probe each have their own backoff, which grows to a fifth of a second. The
    // first attempts follow each other quickly.
    let refused = proxy.counts().refused as f64;
    let most = 60.0 + 60.0 * took.as_secs_f64();
    assert!(refused >= 1.0 && refused < most, "{refused} in {took:?}");
    proxy.heal();
    client
        .lock("l")
        .lock()
        .await
        .unwrap()
        .unlock()
        .await
        .unwrap();
    client.shutdown().await;
}

/// The proxy accepts a connection and closes its own direction at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_that_half_closes_every_connection_gets_few_reconnects() {
    let server = RedisServer::start().await;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let client = Client::builder().url(server.url_at(port)).lazy(true);
    let client = client.build().await.unwrap();
    let accepted = Arc::new(AtomicUsize::new(0));
    let counted = accepted.clone();
    let half_closes = tokio::spawn(async move {
        let mut open = JoinSet::new();
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, Ordering::Relaxed);
            open.spawn(async move {
                let _ = socket.shutdown().await;
                let mut buffer = [0; 1024];
                while matches!(socket.read(&mut buffer).await, Ok(1..)) {}
            });
        }
    });
    let mut calls = JoinSet::new();
    for number in 0..20 {
        let lock = client.lock(format!("l{number}"));
        calls.spawn(async move {
            let until = tokio::time::Instant::now() + OUTAGE;
            while tokio::time::Instant::now() < until {
                let error = lock.try_lock().wait(ms(500)).await.unwrap_err();
                assert!(error.is_retriable(), "{error}");
            }
        });
    }
    while let Some(call) = calls.join_next().await {
        call.unwrap();
    }
    let accepted = accepted.load(Ordering::Relaxed);
    assert!((2..200).contains(&accepted), "{accepted} connections");
    half_closes.abort();
    client.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lazy_client_starts_while_the_sentinels_master_is_dead() {
    let all = Sentinels::start().await;
    for replica in &all.servers[1..] {
        // No replica may become the master.
        let redis = replica.redis().await;
        redis.cmd(&["CONFIG", "SET", "replica-priority", "0"]).await;
    }
    all.servers[0].kill();
    let client = Client::builder().url(all.url()).lazy(true);
    let client = client.build().await.expect("nothing is connected yet");
    let error = client
        .lock("l")
        .try_lock()
        .wait(ms(2_000))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    all.servers[0].restart(Data::Lost).await;
    eventually(SOON, "the client finds the master", async || {
        let got = client.lock("l").try_lock().wait(ms(2_000)).await;
        matches!(got, Ok(Some(_)))
    })
    .await;
    client.shutdown().await;
}

const OUTAGE: Duration = Duration::from_secs(4);

/// The server does not answer in time. The lock, the guard and the client stay usable.
#[tokio::test]
async fn a_shutdown_that_reaches_its_limit_leaves_no_connection() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let builder = Client::builder()
        .url(server.url())
        .watchdog_lease(ms(6_000));
    let client = builder.build().await.unwrap();
    let name = format!("lockdog/{}", client.id());
    let connections = async || {
        let clients = redis.clients().await;
        let ours = clients.iter().filter(|it| it.name == name);
        ours.count()
    };
    let lock = client.lock("l");
    let guard = lock.lock().await.unwrap();
    eventually(SOON, "the watchdog has connected", async || {
        connections().await == 2
    })
    .await;
    server.pause();
    let report = client.shutdown_within(ms(100)).await;
    assert_eq!((report.released, report.unconfirmed), (0, 1));
    server.resume();
    eventually(SOON, "no connection stays", async || {
        connections().await == 0
    })
    .await;
    assert!(matches!(lock.is_locked().await, Err(Error::Closed)));
    assert!(!guard.is_valid());
    // The background may have released it first.
    assert!(!redis.exists("l").await);
    drop((client, lock, guard));
}
