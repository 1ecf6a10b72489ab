//! Several locks as one, on a network that is slow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lockdog::MultiLock;
use lockdog_test::Server;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// What a failed attempt took blocks others for as long as an answer takes. Without pauses by chance
/// they meet again and again, and this has no end.
#[tokio::test(start_paused = true)]
async fn contenders_on_a_slow_network_stop_colliding() {
    let servers = [Server::new(), Server::new(), Server::new()];
    for server in &servers {
        server.delay(Duration::from_millis(10));
    }
    let cell = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for number in 0..4 {
        let mut members = Vec::new();
        for (server, name) in servers.iter().zip(["a", "b", "c"]) {
            members.push(server.client().await.lock(name));
        }
        members.rotate_left(number % 3);
        let (lock, cell) = (MultiLock::new(members), cell.clone());
        tasks.spawn(async move {
            for _ in 0..10 {
                let guard = lock.lock().await.expect("every server answers");
                // The read and the write are two steps on purpose.
                let read = cell.load(Ordering::SeqCst);
                sleep(Duration::from_millis(1)).await;
                cell.store(read + 1, Ordering::SeqCst);
                guard.unlock().await.expect("it is held");
            }
        });
    }
    let began = Instant::now();
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let took = began.elapsed();
    println!("40 rounds in {took:?}");
    assert_eq!(cell.load(Ordering::SeqCst), 40, "an update was lost");
    assert!(took < Duration::from_secs(10), "{took:?}");
}
