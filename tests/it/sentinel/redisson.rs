//! Real Redisson clients at the same sentinels.

use std::future::IntoFuture;
use std::time::Instant;

use lockdog::{Client, Unlocked};

use super::{SOON, ms};
use crate::support::redisson::Redisson;
use crate::support::{Sentinels, eventually};

/// Each side wakes the other by messages, and sees the other's locks after a failover.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_pass_between_redisson_and_lockdog_before_and_after_a_failover() {
    let all = Sentinels::start().await;
    let java = Redisson::start(&all.url()).await;
    // Only a message wakes its waiters in time.
    let client = Client::builder().url(all.url()).poll_cap(SOON * 4);
    let client = client.build().await.unwrap();
    let thread = java.thread("t1");
    let lock = client.lock("orders");

    for failed_over in [false, true] {
        println!("failed over: {failed_over}");
        let guard = lock.lock().await.unwrap();
        assert!(thread.is_locked("orders").await && !thread.try_lock("orders").await);
        let waiting = thread.start_lock("orders");
        if failed_over {
            all.failover().await;
            listens(&all).await;
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
        listens(&all).await;
        // Redisson's second attempt, which follows the subscription, is over.
        tokio::time::sleep(ms(200)).await;
        assert!(!waiting.is_finished(), "two have it");
        let began = Instant::now();
        thread.unlock("orders").await.expect("Java holds it");
        let guard = tokio::time::timeout(SOON, waiting).await;
        let guard = guard.expect("we get it").unwrap().unwrap();
        println!("we were woken after {:?}", began.elapsed());
        guard.unlock().await.unwrap();
    }
    client.shutdown().await;
    java.shutdown().await;
}

/// A waiter subscribes at the master.
async fn listens(all: &Sentinels) {
    let redis = all.master().await.redis().await;
    eventually(SOON * 2, "the waiter listens", async || {
        redis.channels().await == ["redisson_lock__channel:{orders}"]
    })
    .await;
}
