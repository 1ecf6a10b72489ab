//! Holders that freeze past their leases and check their guards before they write still exclude each
//! other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lockdog::{Guard, Lock};

use super::connect;
use crate::support::{Cell, RedisServer};
use crate::turn::answered;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_holders_that_check_before_they_write_never_overlap() {
    let server = RedisServer::start().await;
    let cell = Cell::new();
    let overslept = Arc::new(AtomicU32::new(0));
    let written = Arc::new(AtomicU32::new(0));
    let mut holders = Vec::new();
    for _ in 0..2 {
        let client = connect(&server.url()).await;
        let (cell, overslept, written) = (cell.clone(), overslept.clone(), written.clone());
        // Each holder blocks its own thread, so that its sleep does not delay the other.
        holders.push(std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                for round in 0..8 {
                    let lock = client.lock("a");
                    let guard = acquired(&lock).await;
                    if round % 3 == 1 {
                        std::thread::sleep(LEASE + LEASE / 4);
                        assert!(!guard.is_valid(), "the lease is over");
                        overslept.fetch_add(1, Ordering::Relaxed);
                    }
                    // A busy machine may outlast the lease between the check and the write.
                    let pause = Duration::from_millis(1);
                    if guard.is_valid() && cell.bump_while(pause, || guard.is_valid()).await {
                        written.fetch_add(1, Ordering::Relaxed);
                    }
                    let _ = guard.unlock().await;
                }
            });
        }));
    }
    for holder in holders {
        tokio::task::spawn_blocking(move || holder.join().unwrap())
            .await
            .unwrap();
    }
    assert_eq!(overslept.load(Ordering::Relaxed), 6);
    let written = written.load(Ordering::Relaxed);
    assert!(written >= 4, "too few owners wrote: {written}");
    assert_eq!(cell.value(), i64::from(written), "an update was lost");
    server.redis().await.assert_clean().await;
}

async fn acquired(lock: &Lock) -> Guard {
    answered(async || lock.lock().lease(LEASE).await).await
}

const LEASE: Duration = Duration::from_millis(1_000);
