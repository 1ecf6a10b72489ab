//! A call that is polled once and kept without further polls does not block other calls.

use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lockdog::{Client, Error, Guard, Lock, Owner, Unlocked};
use tokio::runtime::Builder;

use crate::faults::SOON;
use crate::support::{Redis, RedisServer, eventually};

/// A caller that waits for this long waits for a future that is not polled.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Longer than any test.
const MINUTES: Duration = Duration::from_secs(300);

/// The lease of the grant of an unpolled call.
const LEASE: Duration = Duration::from_secs(60);

/// Design: invariants 3 and 14.
#[tokio::test]
async fn an_unlock_does_not_wait_for_an_unpolled_nested_call() {
    let (_server, redis, client) = start().await;
    let lock = client.lock("l");
    let (_owner, guard, mut nested) = held_with_a_nested_call_left(&redis, &lock).await;
    let began = Instant::now();
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
    assert!(!redis.exists("l").await);
    let others = lock.try_lock().owner(&Owner::new()).await.unwrap();
    let others = others.expect("it is free");
    assert!(began.elapsed() < TIMEOUT, "{:?}", began.elapsed());
    // When it is polled again, the nested call reports that its owner lost the lock.
    assert!(nested.as_mut().now_or_never().is_none());
    others.unlock().await.unwrap();
    assert_eq!(nested.await.unwrap().hold_count(), 1);
}

/// Design: invariants 3 and 14. The hold and its other calls continue.
#[tokio::test]
async fn a_nested_call_and_its_unlock_do_not_wait_for_another_unpolled_call() {
    let (_server, redis, client) = start().await;
    let lock = client.lock("l");
    let (owner, guard, left) = held_with_a_nested_call_left(&redis, &lock).await;
    let began = Instant::now();
    let nested = lock.lock().owner(&owner).await.unwrap();
    assert_eq!(nested.hold_count(), 2);
    counts(&redis, "2").await;
    let unlocked = nested.unlock().await.unwrap();
    assert_eq!(unlocked, Unlocked::StillHeld { count: 1 });
    counts(&redis, "1").await;
    assert!(began.elapsed() < TIMEOUT, "{:?}", began.elapsed());
    let left = left.await.unwrap();
    assert_eq!(left.hold_count(), 2);
    counts(&redis, "2").await;
    left.unlock().await.unwrap();
    guard.unlock().await.unwrap();
    assert!(!redis.exists("l").await);
}

/// Design: invariant 14.
#[tokio::test]
async fn a_dropped_guard_is_released_despite_an_unpolled_nested_call() {
    let (_server, redis, client) = start().await;
    let lock = client.lock("l");
    let (_owner, guard, _nested) = held_with_a_nested_call_left(&redis, &lock).await;
    let began = Instant::now();
    drop(guard);
    free(&redis).await;
    assert!(began.elapsed() < TIMEOUT, "{:?}", began.elapsed());
}

/// Design: invariant 14. The server granted its acquire, and no client has read that.
#[tokio::test]
async fn a_shutdown_undoes_an_unpolled_acquire() {
    let (_server, redis, client) = start().await;
    warm(&client).await;
    let mut left = pin!(client.lock("l").lock().into_future());
    assert!(left.as_mut().now_or_never().is_none());
    counts(&redis, "1").await;
    let began = Instant::now();
    let report = client.shutdown().await;
    assert!(began.elapsed() < TIMEOUT, "{:?}", began.elapsed());
    assert_eq!((report.released, report.unconfirmed), (1, 0));
    assert!(!redis.exists("l").await);
    let error = left.await.unwrap_err();
    assert!(matches!(error, Error::Closed), "{error}");
}

/// Design: invariant 14.
#[tokio::test]
async fn a_shutdown_does_not_wait_for_an_unpolled_unlock_or_nested_call() {
    let (_server, redis, client) = start().await;
    let guard = client.lock("other").lock().await.unwrap();
    let mut unlock = pin!(guard.unlock());
    assert!(unlock.as_mut().now_or_never().is_none());
    let lock = client.lock("l");
    let (_owner, guard, nested) = held_with_a_nested_call_left(&redis, &lock).await;
    let began = Instant::now();
    let report = client.shutdown().await;
    assert!(began.elapsed() < TIMEOUT, "{:?}", began.elapsed());
    assert_eq!(report.unconfirmed, 0, "{report:?}");
    assert!(!redis.exists("l").await && !redis.exists("other").await);
    assert_eq!(unlock.await.unwrap(), Unlocked::Released);
    assert!(nested.await.is_err());
    assert!(!guard.is_valid());
}

/// Design: invariant 14. A waiter of another client, which this client does not know.
#[tokio::test]
async fn an_unlock_abandoned_while_connecting_is_completed_in_the_background() {
    let (server, redis, _client) = start().await;
    let client = Client::builder().url(server.url()).client_name("left");
    let client = client.build().await.unwrap();
    let lock = client.lock("l");
    let guard = lock.lock().lease(MINUTES).await.unwrap();
    assert!(redis.kill_named("left").await > 0);
    // Its end is visible here, too.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut unlock = pin!(guard.unlock());
    assert!(unlock.as_mut().now_or_never().is_none());
    free(&redis).await;
    assert_eq!(unlock.await.unwrap(), Unlocked::Released);
}

/// Design: invariant 14. A command on the connection of a frozen runtime is never sent.
#[test]
fn a_shutdown_does_not_wait_for_an_idle_runtime_and_nothing_is_sent_after_it() {
    let [idle, other] = [(); 2].map(|()| {
        let runtime = Builder::new_current_thread().enable_all().build();
        runtime.unwrap()
    });
    let (_server, redis, client) = other.block_on(start());
    let lock = client.lock("l");
    idle.block_on(warm(&client));
    let mut left = Box::pin(lock.lock().lease(MINUTES).into_future());
    idle.block_on(async { assert!(left.as_mut().now_or_never().is_none()) });
    other.block_on(async {
        let began = Instant::now();
        let report = client.shutdown().await;
        assert!(began.elapsed() < TIMEOUT, "{:?}", began.elapsed());
        assert_eq!(report.unconfirmed, 0, "{report:?}");
        redis.reset_stats().await;
    });
    let error = idle.block_on(async {
        // The runtime sends its pending commands before that.
        tokio::time::sleep(Duration::from_millis(200)).await;
        left.await.unwrap_err()
    });
    assert!(matches!(error, Error::Closed), "{error}");
    let ran = other.block_on(redis.commandstats());
    assert!(!ran.keys().any(|it| it.starts_with("eval")), "{ran:?}");
}

/// The contender was answered, and is not polled. The server is healthy.
#[tokio::test]
async fn a_waiter_behind_an_unpolled_contender_reports_no_server_error() {
    let server = RedisServer::start().await;
    let client = Client::builder().url(server.url()).command_timeout(TIMEOUT);
    // The contender keeps its role until the other waiter ends.
    let client = client.poll_cap(TIMEOUT).build().await.unwrap();
    let others = Client::connect(server.url()).await.unwrap();
    let _others = others.lock("l").lock().await.unwrap();
    let lock = client.lock("l");
    let mut contender = pin!(lock.lock().owner(&Owner::new()).into_future());
    assert!(contender.as_mut().now_or_never().is_none());
    let wait = Duration::from_secs(4);
    let busy = lock.try_lock().owner(&Owner::new()).wait(wait).await;
    assert!(matches!(busy, Ok(None)), "{busy:?}");
}

/// Design: invariant 14. No caller reads the grant, and no other owner of its client waits for the lock.
#[tokio::test]
async fn an_unpolled_try_lock_with_a_grant_does_not_keep_the_lock() {
    let (server, redis) = server().await;
    let client = connected(&server).await;
    let call = client.lock("l").try_lock().lease(LEASE).into_future();
    let (left, others) = others_get_what_it_left(&server, &redis, call).await;
    let outcome = left.await;
    let is_none = matches!(outcome, Ok(None) | Err(Error::Timeout { .. }));
    assert!(is_none, "{outcome:?}");
    assert_eq!(others.unlock().await.unwrap(), Unlocked::Released);
}

/// Design: invariant 14. The first attempt of a waiting call.
#[tokio::test]
async fn an_unpolled_lock_with_a_grant_does_not_keep_the_lock() {
    let (server, redis) = server().await;
    let client = connected(&server).await;
    let call = client.lock("l").lock().lease(LEASE).into_future();
    let (mut left, others) = others_get_what_it_left(&server, &redis, call).await;
    // When it is polled again, it waits behind the current holder.
    let early = tokio::time::timeout(Duration::from_millis(500), &mut left).await;
    assert!(early.is_err(), "{early:?}");
    assert_eq!(others.unlock().await.unwrap(), Unlocked::Released);
    let guard = left.await.unwrap();
    assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
}

/// A call on a free lock keeps an unread grant. Another client gets the lock long before the end of that
/// grant's lease.
async fn others_get_what_it_left<T>(
    server: &RedisServer,
    redis: &Redis,
    mut call: BoxFuture<'static, T>,
) -> (BoxFuture<'static, T>, Guard) {
    assert!(call.as_mut().now_or_never().is_none());
    counts(redis, "1").await;
    let others = Client::connect(server.url()).await.unwrap();
    let began = Instant::now();
    let guard = others.lock("l").try_lock().wait(LEASE).await.unwrap();
    let guard = guard.expect("it is given back");
    assert!(began.elapsed() < LEASE / 2, "{:?}", began.elapsed());
    (call, guard)
}

/// A client whose next call sends its command at the first poll.
async fn connected(server: &RedisServer) -> Client {
    let client = Client::connect(server.url()).await.unwrap();
    warm(&client).await;
    client
}

/// Opens the connection of this runtime, so that one poll sends a command.
async fn warm(client: &Client) {
    let guard = client.lock("other").lock().await.unwrap();
    guard.unlock().await.unwrap();
}

/// The lock is held, and a nested call of its owner was sent and is no longer polled.
async fn held_with_a_nested_call_left(
    redis: &Redis,
    lock: &Lock,
) -> (Owner, Guard, BoxFuture<'static, Result<Guard, Error>>) {
    let owner = Owner::new();
    let guard = lock.lock().owner(&owner).await.unwrap();
    let mut nested = lock.lock().owner(&owner).into_future();
    assert!(nested.as_mut().now_or_never().is_none());
    counts(redis, "2").await;
    (owner, guard, nested)
}

async fn server() -> (RedisServer, Redis) {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    (server, redis)
}

async fn start() -> (RedisServer, Redis, Client) {
    let (server, redis) = server().await;
    let client = Client::builder().url(server.url()).command_timeout(TIMEOUT);
    (server, redis, client.build().await.unwrap())
}

/// Waits until the count of the lock's holder is this.
async fn counts(redis: &Redis, count: &str) {
    eventually(SOON, "it is counted", async || {
        let counts: Vec<String> = redis.ask(&["HVALS", "l"]).await;
        counts == [count]
    })
    .await;
}

async fn free(redis: &Redis) {
    eventually(TIMEOUT, "the lock is free", async || {
        !redis.exists("l").await
    })
    .await;
}
