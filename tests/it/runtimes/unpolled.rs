//! A future that is polled for a while and then abandoned.

use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use lockdog::{Client, Guard};

use super::{SOON, ms, poll_until};
use crate::support::sentinels::MASTER;
use crate::support::{Direction, Proxy, RedisServer, Sentinels, eventually, timed};

#[tokio::test]
async fn an_unpolled_branch_that_connects_does_not_delay_other_calls() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let client = Client::connect(proxy.url()).await.unwrap();
    proxy.delay(Direction::ToClient, ms(100));
    assert!(proxy.cut_all() >= 1);
    eventually(SOON, "all are gone", async || proxy.connections() == 0).await;
    let (one, other) = (client.lock("a"), client.lock("b"));
    let mut unpolled = pin!(one.lock().into_future());
    poll_until(unpolled.as_mut(), || proxy.connections() > 0).await;
    let guard = other.lock().await.expect("the other call connects");
    guard.unlock().await.unwrap();
    // And it continues when it is polled again.
    unpolled.await.unwrap().unlock().await.unwrap();
    client.shutdown().await;
}

/// A client of sentinels that answer late, with a lock that its watchdog renews.
struct Kept {
    all: Sentinels,
    proxies: Vec<Proxy>,
    client: Client,
    guard: Guard,
}

impl Kept {
    async fn new() -> Self {
        let all = Sentinels::start().await;
        let mut proxies = Vec::new();
        for sentinel in &all.sentinels {
            proxies.push(Proxy::to_port(sentinel.port()).await);
        }
        let hosts = proxies.iter().map(|it| format!("127.0.0.1:{}", it.port()));
        let hosts: Vec<_> = hosts.collect();
        let url = format!("redis+sentinel://{}/{MASTER}", hosts.join(","));
        let client = Client::builder().url(url).watchdog_lease(LEASE);
        let client = client.build().await.unwrap();
        let guard = client.lock("kept").lock().await.unwrap();
        for proxy in &proxies {
            proxy.delay(Direction::ToClient, ms(200));
        }
        Self {
            all,
            proxies,
            client,
            guard,
        }
    }

    /// Breaks the connections to the master.
    async fn break_all(&self) {
        let redis = self.all.servers[0].redis().await;
        let killed: i64 = redis.ask(&["CLIENT", "KILL", "TYPE", "normal"]).await;
        assert!(killed >= 2, "{killed} connections were broken");
    }

    /// How many connections the sentinels have seen so far, by their first command.
    fn greetings(&self) -> usize {
        let greets = |command: &[String]| command[0].eq_ignore_ascii_case("client");
        self.proxies.iter().map(|proxy| proxy.count(greets)).sum()
    }

    async fn outlives_two_leases(self) {
        tokio::time::sleep(LEASE * 2).await;
        assert!(self.guard.is_valid(), "{:?}", self.guard.verdict());
        let unlocked = self.guard.unlock().await;
        unlocked.expect("it is held");
        self.client.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_abandoned_during_a_sentinel_query_loses_no_lock() {
    let kept = Kept::new().await;
    kept.break_all().await;
    let before = kept.greetings();
    let other = kept.client.lock("other");
    let mut left = pin!(other.lock().into_future());
    poll_until(left.as_mut(), || kept.greetings() > before).await;
    kept.outlives_two_leases().await;
    // The client is shut down.
    assert!(left.await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_runtime_that_blocks_during_a_sentinel_query_loses_no_lock() {
    let kept = Kept::new().await;
    kept.break_all().await;
    let client = kept.client.clone();
    let (unblock, blocked) = std::sync::mpsc::channel::<()>();
    let blocks = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let other = client.lock("other");
            let mut left = pin!(other.lock().into_future());
            // Long enough to ask, and shorter than an answer takes.
            let asked = tokio::time::timeout(ms(100), left.as_mut()).await;
            assert!(asked.is_err(), "it ended before");
            let _sender_gone = blocked.recv();
        });
    });
    kept.outlives_two_leases().await;
    drop(unblock);
    blocks.join().unwrap();
}

#[tokio::test]
async fn a_wait_shorter_than_a_connect_does_not_abort_it() {
    let server = RedisServer::start().await;
    let proxy = Proxy::start(&server).await;
    let client = Client::connect(proxy.url()).await.unwrap();
    for direction in [Direction::ToClient, Direction::ToServer] {
        proxy.delay(direction, ms(30));
    }
    let lock = client.lock("l");
    let ((), round_trip) = timed(async {
        lock.is_locked().await.unwrap();
    })
    .await;
    assert!(round_trip >= ms(60), "{round_trip:?}");
    assert!(proxy.cut_all() >= 1);
    eventually(SOON, "all are gone", async || proxy.connections() == 0).await;
    let mut failed = 0;
    loop {
        // Longer than one round trip and shorter than the two of a connect. Each attempt uses another
        // lock, because an earlier call without an answer is being released.
        let lock = client.lock(format!("l{failed}"));
        match lock.try_lock().wait(ms(100)).await {
            Ok(Some(guard)) => break guard.unlock().await.map(drop).unwrap(),
            Ok(None) => failed += 1,
            Err(error) if failed < 100 => {
                assert!(error.is_retriable(), "{error}");
                failed += 1;
            }
            Err(error) => panic!("it never connects again: {error}"),
        }
    }
    client.shutdown().await;
}

/// What a connection queues has a bound, and redis-rs gives each free place in the queue to the call
/// that has waited longest, polled or not.
#[tokio::test]
async fn many_calls_polled_once_do_not_block_the_connection_for_others() {
    let server = RedisServer::start().await;
    let client = Client::connect(server.url()).await.unwrap();
    let held = client.lock("held").lock().await.unwrap();
    let locks: Vec<_> = (0..400).map(|it| client.lock(format!("{it}"))).collect();
    let crowd = locks.iter().map(|lock| lock.try_lock().into_future());
    let mut crowd: Vec<_> = crowd.map(Box::pin).collect();
    // All in one poll of this task, so that the connection's task does not run between them.
    let all = |context: &mut Context<'_>| {
        let pending = |call: &mut _| poll(call, context).is_pending();
        Poll::Ready(crowd.iter_mut().map(pending).filter(|it| *it).count())
    };
    assert_eq!(std::future::poll_fn(all).await, 400);
    let other = client.lock("other").lock().await;
    let other = other.expect("the other call is answered");
    other.unlock().await.unwrap();
    held.unlock().await.expect("the unlock is answered");
    drop(crowd);
    client.shutdown().await;
}

fn poll<F: Future>(call: &mut Pin<Box<F>>, context: &mut Context<'_>) -> Poll<F::Output> {
    call.as_mut().poll(context)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_abandoned_while_it_connects_for_messages_does_not_block_other_waiters() {
    let server = RedisServer::start().await;
    let holder = Client::connect(server.url()).await.unwrap();
    let held = |name| holder.lock(name).lock().lease(SOON * 20).into_future();
    let (_first, second) = (held("a").await.unwrap(), held("b").await.unwrap());
    let proxy = Proxy::start(&server).await;
    // Only a message wakes a waiter in time.
    let client = Client::builder().url(proxy.url()).poll_cap(SOON * 20);
    let client = client.command_timeout(SOON * 4).build().await.unwrap();
    client
        .lock("warm")
        .lock()
        .await
        .unwrap()
        .unlock()
        .await
        .unwrap();
    let before = proxy.connections();
    proxy.delay(Direction::ToClient, ms(100));
    let waits = client.lock("a");
    let mut left = Box::pin(waits.lock().into_future());
    poll_until(left.as_mut(), || proxy.connections() > before).await;
    let other = client.lock("b");
    let waiting = tokio::spawn(async move { other.lock().await });
    let channels = async || server.redis().await.channels().await.len();
    eventually(SOON, "both locks' channels are subscribed", async || {
        channels().await == 2
    })
    .await;
    second.unlock().await.unwrap();
    let guard = tokio::time::timeout(SOON, waiting).await;
    let guard = guard.expect("a message wakes it").unwrap().unwrap();
    guard.unlock().await.unwrap();
    // The shutdown of a client waits two command timeouts for an abandoned call.
    drop(left);
    client.shutdown().await;
    holder.shutdown().await;
}

/// Far longer than it takes to ask the sentinels late and to connect.
const LEASE: Duration = Duration::from_secs(8);
