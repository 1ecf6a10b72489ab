//! Both sides under one lock, on a value that shows every lost update.

use std::time::Duration;

use lockdog::Client;

use crate::support::RedisServer;
use crate::support::redisson::Redisson;

#[tokio::test]
async fn four_java_threads_and_four_lockdog_tasks_lose_no_update() {
    let server = RedisServer::start().await;
    let redis = server.redis().await;
    let java = Redisson::start(&server.url()).await;
    let client = Client::connect(server.url()).await.unwrap();
    let pause = Duration::from_millis(1);

    let theirs: Vec<_> = (0..4)
        .map(|n| {
            java.thread(&format!("t{n}"))
                .start_cell("lock", "cell", ROUNDS, pause)
        })
        .collect();
    let ours: Vec<_> = (0..4)
        .map(|_| {
            let (lock, redis) = (client.lock("lock"), redis.clone());
            tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    let guard = lock.lock().await.unwrap();
                    let value: Option<u64> = redis.ask(&["GET", "cell"]).await;
                    tokio::time::sleep(pause).await;
                    let next = value.unwrap_or(0) + 1;
                    redis.cmd(&["SET", "cell", &next.to_string()]).await;
                    guard.unlock().await.unwrap();
                }
            })
        })
        .collect();
    for task in ours {
        task.await.unwrap();
    }
    for call in theirs {
        call.value().await;
    }

    let value: u32 = redis.ask(&["GET", "cell"]).await;
    assert_eq!(value, 8 * ROUNDS);
    redis.cmd(&["DEL", "cell"]).await;
    redis.assert_clean().await;
}

const ROUNDS: u32 = 200;
