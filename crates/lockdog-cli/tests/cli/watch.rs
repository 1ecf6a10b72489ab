//! `lockdog watch`.

use lockdog::Client;

use crate::program::lockdog;
use crate::support::prelude::SOON;
use crate::support::{RedisServer, eventually};

#[tokio::test]
async fn each_change_is_told_until_the_lock_is_free() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let client = Client::connect(server.url()).await.unwrap();
    let lock = client.lock("orders");
    let guard = lock.lock().await.unwrap();
    let args = [
        "watch",
        "orders",
        "--interval",
        "20ms",
        "--until",
        "free",
        "--json",
    ];
    let running = lockdog(&server, &args).start();
    // Each scan of `watch` asks for the number of listeners.
    let asked = async || {
        let stats = redis.commandstats().await;
        stats.get("pubsub|numsub").copied().unwrap_or(0)
    };
    eventually(SOON, "it polls", async || asked().await >= 2).await;
    let again = lock.lock().await.unwrap();
    // A scan that began before the change may end after it, so only the second scan has certainly seen
    // it.
    let before = asked().await;
    eventually(SOON, "it has seen it", async || asked().await >= before + 2).await;
    redis.cmd(&["PERSIST", "orders"]).await;
    let before = asked().await;
    eventually(SOON, "it has seen it", async || asked().await >= before + 2).await;
    again.unlock().await.unwrap();
    guard.unlock().await.unwrap();
    let ended = running.end().await.code(0);
    let lines = ended.json_lines();
    let events: Vec<&str> = lines
        .iter()
        .filter_map(|line| line["event"].as_str())
        .collect();
    for wanted in ["held", "count", "ttl_gone", "free"] {
        assert!(events.contains(&wanted), "{wanted} is not in {events:?}");
    }
    assert_eq!((events[0], events[events.len() - 1]), ("held", "free"));
    assert!(
        lines
            .iter()
            .all(|line| line["schema"] == 1 && line["key"] == "orders")
    );
}

#[tokio::test]
async fn a_time_limit_ends_it_with_1() {
    let server = RedisServer::start().await;
    let args = ["watch", "orders", "--until", "held", "--timeout", "100ms"];
    let ended = lockdog(&server, &args).end().await.code(1);
    assert!(ended.stdout.starts_with("orders  free"), "{}", ended.stdout);
}
