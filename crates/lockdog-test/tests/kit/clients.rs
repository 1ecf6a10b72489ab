//! Real clients at the test server: lockdog and redis-cli.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lockdog::{Client, Owner};
use lockdog_test::Server;

use crate::support::{LONG, eventually};

/// A server that listens, and a client of it.
async fn server_and_client() -> (Server, Client) {
    let (server, address) = listening().await;
    let client = connect(&address).await;
    (server, client)
}

async fn listening() -> (Server, String) {
    let server = Server::new();
    let address = server.listen("127.0.0.1:0").await.unwrap();
    (server, address.to_string())
}

async fn connect(address: &str) -> Client {
    Client::connect(format!("redis://{address}")).await.unwrap()
}

#[tokio::test]
async fn a_lock_is_acquired_reentered_and_released() {
    let (server, client) = server_and_client().await;
    let lock = client.lock("orders");
    let outer = lock.lock().await.unwrap();
    let inner = lock.lock().await.unwrap();
    let holder = server.holder("orders").unwrap();
    assert!(holder.field.starts_with(&client.id().to_string()));
    assert_eq!(holder.count, 2);
    assert!(holder.ttl.unwrap() > Duration::from_secs(20));
    assert!(
        lock.try_lock()
            .owner(&Owner::new())
            .await
            .unwrap()
            .is_none()
    );
    inner.unlock().await.unwrap();
    outer.unlock().await.unwrap();
    assert_eq!(server.holder("orders"), None);
    server.assert_clean().await;
    client.shutdown().await;
}

#[tokio::test]
async fn a_message_wakes_a_waiter_of_another_client() {
    let (server, address) = listening().await;
    let (holds, waits) = (connect(&address).await, connect(&address).await);
    let guard = holds.lock("orders").lock().await.unwrap();
    let waiter = {
        let lock = waits.lock("orders");
        tokio::spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() })
    };
    eventually("the waiter listens", || {
        let sent = server.commands();
        sent.iter()
            .any(|command| command[0].eq_ignore_ascii_case("subscribe"))
    })
    .await;
    guard.unlock().await.unwrap();
    tokio::time::timeout(LONG, waiter).await.unwrap().unwrap();
    server.assert_clean().await;
}

#[tokio::test]
async fn a_lock_is_handed_over_between_owners_of_one_client() {
    let (server, client) = server_and_client().await;
    let transfer = sha1_smol::Sha1::from(include_str!("../../../../lua/lock/transfer.lua"));
    let transfer = transfer.digest().to_string();
    let was_handed_on = || {
        let sent = server.commands();
        sent.iter().any(|command| command.get(1) == Some(&transfer))
    };
    // The machine's load decides whether the other tasks already wait at the unlock.
    for round in 0.. {
        let guard = client.lock("orders").lock().await.unwrap();
        let waiters: Vec<_> = (0..5)
            .map(|_| {
                let lock = client.lock("orders");
                tokio::spawn(async move { lock.lock().await.unwrap().unlock().await.unwrap() })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(20)).await;
        guard.unlock().await.unwrap();
        for waiter in waiters {
            tokio::time::timeout(LONG, waiter).await.unwrap().unwrap();
        }
        if was_handed_on() {
            break;
        }
        assert!(round < 100, "the lock was never handed on");
    }
    server.assert_clean().await;
}

#[tokio::test]
async fn the_watchdog_renews_a_lease() {
    let (server, address) = listening().await;
    let client = Client::builder()
        .url(format!("redis://{address}"))
        .watchdog_lease(Duration::from_secs(6))
        .build()
        .await
        .unwrap();
    let guard = client.lock("orders").lock().await.unwrap();
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(7) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(guard.is_valid());
    }
    assert!(server.holder("orders").is_some());
    guard.unlock().await.unwrap();
    server.assert_clean().await;
}

#[tokio::test]
async fn many_tasks_of_two_clients_exclude_each_other() {
    let (server, address) = listening().await;
    let clients = [connect(&address).await, connect(&address).await];
    let cell = std::sync::Arc::new(std::sync::Mutex::new(0));
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let (lock, cell) = (clients[task % 2].lock("cell"), cell.clone());
            tokio::spawn(async move {
                for _ in 0..5 {
                    let guard = lock.lock().await.unwrap();
                    let seen = *cell.lock().unwrap();
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    *cell.lock().unwrap() = seen + 1;
                    guard.unlock().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        tokio::time::timeout(LONG, task).await.unwrap().unwrap();
    }
    assert_eq!(*cell.lock().unwrap(), 40);
    server.assert_clean().await;
}

#[tokio::test]
async fn both_protocols_work() {
    let (server, address) = listening().await;
    for protocol in ["resp2", "resp3"] {
        let url = format!("redis://{address}/?protocol={protocol}");
        let client = Client::connect(url).await.unwrap();
        let guard = client.lock("orders").lock().await.unwrap();
        guard.unlock().await.unwrap();
        client.shutdown().await;
    }
    server.assert_clean().await;
}

#[tokio::test]
async fn a_quorum_of_test_servers_is_a_red_lock() {
    let mut servers = Vec::new();
    let mut clients = Vec::new();
    for _ in 0..3 {
        let (server, client) = server_and_client().await;
        servers.push(server);
        clients.push(client);
    }
    let locks = clients.iter().map(|client| client.lock("orders"));
    let lock = lockdog::RedLock::new(locks).fenced();
    let guard = lock.lock().await.unwrap();
    assert!(guard.token().is_some());
    guard.unlock().await.unwrap();
    for server in &servers {
        server.assert_clean().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_cli_sees_locks_and_gets_errors_for_unknown_commands() {
    let (server, client) = server_and_client().await;
    let port = server.listen("127.0.0.1:0").await.unwrap().port();
    let guard = client.lock("orders").lock().await.unwrap();
    let cli = |args: &'static [&'static str]| async move {
        let run = move || {
            Command::new("redis-cli")
                .args(["-p", &port.to_string()])
                .args(args)
                .stdin(Stdio::null())
                .output()
                .expect("redis-cli is installed with redis-server")
        };
        let output = tokio::task::spawn_blocking(run).await.unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(cli(&["PING"]).await, "PONG");
    assert_eq!(cli(&["-3", "HGETALL", "nothing"]).await, "");
    assert_eq!(cli(&["KEYS", "*"]).await, "orders");
    assert!(cli(&["HGETALL", "orders"]).await.ends_with('1'));
    let unknown = cli(&["BITCOUNT", "orders"]).await;
    let expected = "ERR unknown command 'BITCOUNT', the test server knows only what locks need";
    assert_eq!(unknown, expected);
    assert_eq!(
        cli(&["EVAL", "return redis.call('del', KEYS[1])", "1", "orders"]).await,
        "1"
    );
    assert!(guard.unlock().await.is_err());
}
