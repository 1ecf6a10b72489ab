//! Real Redisson clients at the same sentinels.

use std::future::IntoFuture;

use lockdog::{Client, Unlocked};

use super::{SOON, ms};
use crate::support::redisson::Redisson;
use crate::support::{Sentinels, eventually};

/// Issue 6: "message wake-ups both ways, locks seen both ways after failover".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_go_to_and_from_redisson_before_and_after_a_failover() {
    let all = Sentinels::start().await;
    let java = Redisson::start(&all.url()).await;
    let client = Client::connect(all.url()).await.unwrap();
    let thread = java.thread("t1");
    let lock = client.lock("orders");

    for failed_over in [false, true] {
        println!("failed over: {failed_over}");
        let guard = lock.lock().await.unwrap();
        assert!(thread.is_locked("orders").await && !thread.try_lock("orders").await);
        let waiting = thread.start_lock("orders");
        if failed_over {
            let master = all.failover().await;
            let redis = master.redis().await;
            eventually(SOON, "the waiter listens there", async || {
                !redis.channels().await.is_empty()
            })
            .await;
            assert!(guard.is_valid());
        }
        tokio::time::sleep(ms(100)).await;
        assert!(!waiting.is_finished(), "two have it");
        assert_eq!(guard.unlock().await.unwrap(), Unlocked::Released);
        tokio::time::timeout(SOON, waiting.value())
            .await
            .expect("Java gets it");

        assert!(lock.is_locked().await.unwrap());
        assert!(lock.try_lock().await.unwrap().is_none());
        let waiting = tokio::spawn(lock.lock().into_future());
        tokio::time::sleep(ms(100)).await;
        assert!(!waiting.is_finished(), "two have it");
        thread.unlock("orders").await.expect("Java holds it");
        let guard = tokio::time::timeout(SOON, waiting)
            .await
            .expect("we get it")
            .unwrap();
        guard.unwrap().unlock().await.unwrap();
    }
    client.shutdown().await;
    java.shutdown().await;
}
