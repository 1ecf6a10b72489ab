//! What a client does with a connector of its user's: with the machine's time, and when it fails.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lockdog::{Client, Connector, Error, RedLock, Time, Transport};
use lockdog_test::Server;

use crate::support::LONG;

/// Connects to a test server until it is told to fail.
#[derive(Clone)]
struct Tunnel {
    server: Server,
    time: Time,
    fails: Arc<AtomicBool>,
    panics: Arc<AtomicBool>,
    attempts: Arc<AtomicUsize>,
}

impl Tunnel {
    fn new(server: &Server, time: Time) -> Self {
        Self {
            server: server.clone(),
            time,
            fails: Arc::default(),
            panics: Arc::default(),
            attempts: Arc::default(),
        }
    }
}

impl Connector for Tunnel {
    fn connect(&self) -> Pin<Box<dyn Future<Output = io::Result<Box<dyn Transport>>> + Send>> {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        assert!(!self.panics.load(Ordering::Relaxed), "the tunnel fell in");
        let tunnel = self.clone();
        Box::pin(async move {
            if tunnel.fails.load(Ordering::Relaxed) {
                return Err(io::Error::other("the tunnel is closed"));
            }
            Ok(Box::new(tunnel.server.connect()) as Box<dyn Transport>)
        })
    }

    fn address(&self) -> String {
        "the tunnel".to_owned()
    }

    fn time(&self) -> Time {
        self.time
    }
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tunnel")
    }
}

#[tokio::test]
async fn with_the_machines_time_locks_are_held_waited_for_and_renewed() {
    let server = Server::new();
    let connect = async || {
        let builder = Client::builder().connector(Tunnel::new(&server, Time::Machine));
        let builder = builder.watchdog_lease(Duration::from_secs(3));
        builder.build().await.unwrap()
    };
    let (holds, waits) = (connect().await, connect().await);
    let guard = holds.lock("orders").lock().await.unwrap();
    let waiter = {
        let lock = waits.lock("orders");
        tokio::spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() })
    };
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(guard.is_valid());
    assert!(!waiter.is_finished());
    guard.unlock().await.unwrap();
    tokio::time::timeout(LONG, waiter).await.unwrap().unwrap();
    server.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn one_that_fails_is_told_in_its_own_words() {
    let server = Server::new();
    let tunnel = Tunnel::new(&server, Time::Tokio);
    tunnel.fails.store(true, Ordering::Relaxed);
    let failed = Client::builder().connector(tunnel.clone()).build().await;
    let Err(error @ Error::Unavailable { .. }) = failed else {
        panic!("{failed:?}");
    };
    assert!(
        error.to_string().contains("the tunnel is closed"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn one_that_panics_for_a_while_costs_no_lock() {
    let server = Server::new();
    let tunnel = Tunnel::new(&server, Time::Tokio);
    let client = Client::builder().connector(tunnel.clone()).build().await;
    let client = client.unwrap();
    let guard = client.lock("orders").lock().await.unwrap();
    // Who waits has a connection for messages, too.
    let waiter = {
        let lock = server.client().await.lock("other");
        let other = lock.lock().await.unwrap();
        let lock = client.lock("other");
        let waiter = tokio::spawn(async move { lock.lock().await.map(drop) });
        tokio::time::sleep(Duration::from_secs(1)).await;
        (waiter, other)
    };
    let before = tunnel.attempts.load(Ordering::Relaxed);
    tunnel.panics.store(true, Ordering::Relaxed);
    server.cut();
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert!(tunnel.attempts.load(Ordering::Relaxed) > before);
    assert!(guard.is_valid());
    tunnel.panics.store(false, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(guard.is_valid());
    guard.unlock().await.unwrap();
    let (waiter, other) = waiter;
    other.unlock().await.unwrap();
    // It may have given up while nothing could be connected.
    let _ = tokio::time::timeout(LONG, waiter).await.unwrap().unwrap();
    server.assert_clean().await;
}

#[tokio::test]
async fn it_takes_the_place_of_a_url_and_of_any_other() {
    let server = Server::new();
    let pipes = || server.builder();
    let another = Tunnel::new(&server, Time::Tokio);
    for both in [
        pipes().url("redis://localhost").build().await,
        pipes().connector(another).build().await,
        pipes().cluster(["redis://localhost"]).build().await,
    ] {
        assert!(
            matches!(&both, Err(Error::Invalid { what, .. }) if *what == "connector"),
            "{both:?}"
        );
    }
}

#[tokio::test]
async fn a_red_lock_needs_one_clock() {
    let servers = [Server::new(), Server::new(), Server::new()];
    let mut locks = Vec::new();
    for (server, time) in servers
        .iter()
        .zip([Time::Tokio, Time::Tokio, Time::Machine])
    {
        let builder = Client::builder().connector(Tunnel::new(server, time));
        locks.push(builder.build().await.unwrap().lock("orders"));
    }
    let refused = RedLock::new(locks).try_lock().await;
    assert!(
        matches!(&refused, Err(Error::Invalid { what, .. }) if *what == "locks"),
        "{refused:?}"
    );
}
