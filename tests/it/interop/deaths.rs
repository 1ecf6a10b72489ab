//! A process is killed with a lock in hand: the other side gets the lock when the lease is over.

use std::process::{Command, Stdio};
use std::time::Duration;

use lockdog::Client;

use super::{SAFETY, a_waiter_listens, holder, waiter, without_timers};
use crate::support::redisson::Redisson;
use crate::support::{RedisServer, eventually};

#[tokio::test]
async fn lockdog_gets_the_lock_of_a_killed_java_process_when_its_lease_ends() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let lease = Duration::from_millis(2_500);
    let java = Redisson::builder(&server.url())
        .watchdog_timeout(lease)
        .own_jvm()
        .start()
        .await;
    let client = without_timers(&server).build().await.unwrap();
    let t1 = java.thread("t1");
    t1.lock("orders").await;
    let field = t1.field().await;
    let messages = redis.messages("*").await;

    let waiting = waiter(&client.lock("orders"));
    a_waiter_listens(&redis, "orders").await;
    // Longer than a lease: Java's watchdog holds us off.
    tokio::time::sleep(lease + lease / 2).await;
    assert!(!waiting.is_finished());
    java.kill();
    assert_eq!(
        holder(&redis, "orders").await,
        Some((field, "1".to_owned()))
    );
    let (guard, _) = tokio::time::timeout(SAFETY, waiting)
        .await
        .unwrap()
        .unwrap();

    // No message came: the waiter waited for the end of the lease.
    assert_eq!(messages.seen(), []);
    let (field, _) = holder(&redis, "orders").await.unwrap();
    assert!(field.starts_with(&client.id().to_string()));
    guard.unlock().await.unwrap();
    redis.assert_clean().await;
}

/// Runs twice: as the test, and started by it in a process of its own as the holder that is killed.
#[tokio::test]
async fn java_gets_the_lock_of_a_killed_lockdog_process_when_its_lease_ends() {
    let lease = Duration::from_millis(2_500);
    if let Ok(url) = std::env::var(HOLDER) {
        let client = Client::builder()
            .url(url)
            .watchdog_lease(lease)
            .build()
            .await
            .unwrap();
        let _guard = client.lock("orders").lock().await.unwrap();
        return tokio::time::sleep(2 * SAFETY).await;
    }

    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let java = Redisson::start(&server.url()).await;
    let t1 = java.thread("t1");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "interop::deaths::java_gets_the_lock_of_a_killed_lockdog_process_when_its_lease_ends",
        ])
        .env(HOLDER, server.url())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    eventually(SAFETY, "the child holds the lock", async || {
        redis.exists("orders").await
    })
    .await;
    let held = holder(&redis, "orders").await;
    let messages = redis.messages("*").await;

    let waiting = t1.start_lock("orders");
    a_waiter_listens(&redis, "orders").await;
    // Longer than a lease: our watchdog holds Java off.
    tokio::time::sleep(lease + lease / 2).await;
    assert!(!waiting.is_finished());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(holder(&redis, "orders").await, held);
    let locked = tokio::time::timeout(SAFETY, waiting.answer())
        .await
        .unwrap();

    locked.result.unwrap();
    assert_eq!(messages.seen(), []);
    let field = t1.field().await;
    assert_eq!(
        holder(&redis, "orders").await,
        Some((field, "1".to_owned()))
    );
    t1.unlock("orders").await.unwrap();
    redis.assert_clean().await;
}

/// Tells the holder where the server is.
const HOLDER: &str = "LOCKDOG_TEST_HOLDER";
