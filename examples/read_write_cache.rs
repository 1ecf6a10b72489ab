//! A value that many processes read and few refresh, under a read/write lock.
//!
//! ```text
//! cargo run --example read_write_cache -- redis://127.0.0.1:6379
//! ```
//!
//! Readers share the lock, so they do not wait for each other. A reader that finds the value too old upgrades:
//! it keeps its read hold, so what it read is still true when it writes. If two readers upgrade at
//! the same time, one gets `Error::WouldDeadlock`. It releases its read hold and reads again.

#![allow(
    clippy::disallowed_methods,
    reason = "an example may spawn; the ban is for the library"
)]

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use lockdog::{Client, Error, Owner, ReadWriteLock};
use tokio::time::sleep;

/// What the lock protects. In a service this is a table, a file or another process.
#[derive(Default)]
struct Prices {
    version: Mutex<u32>,
    renewals: Mutex<u32>,
}

impl Prices {
    fn version(&self) -> u32 {
        *self.version.lock().expect("no task panics")
    }

    /// Slow, and wrong if two do it at the same time.
    async fn renew(&self) {
        let next = self.version() + 1;
        sleep(Duration::from_millis(20)).await;
        *self.version.lock().expect("no task panics") = next;
        *self.renewals.lock().expect("no task panics") += 1;
    }
}

/// Reads a version that is at least `wanted`, and renews the prices if no other task has.
async fn read_at_least(lock: &ReadWriteLock, prices: &Prices, wanted: u32) -> lockdog::Result<u32> {
    loop {
        let reader = lock.read().lock().await?;
        if prices.version() >= wanted {
            let version = prices.version();
            reader.unlock().await?;
            return Ok(version);
        }
        match reader.upgrade().await {
            // The read hold was never released, so the version is as old as before.
            Ok(writer) => {
                prices.renew().await;
                // Goes on as a reader, together with those who waited.
                let reader = writer.downgrade().await?;
                let version = prices.version();
                reader.unlock().await?;
                return Ok(version);
            }
            Err(error) => match error.error() {
                // Another reader is about to renew it. Without this drop the two would wait for each other.
                Some(Error::WouldDeadlock { .. }) => drop(error.into_guard()),
                Some(failed) => return Err(failed.clone()),
                None => drop(error.into_guard()),
            },
        }
    }
}

#[tokio::main]
async fn main() -> lockdog::Result<()> {
    let url = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());
    let client = Client::connect(&url).await?;
    let lock = client.read_write_lock("example:prices");
    let prices = Arc::new(Prices::default());
    for wanted in 1..=3 {
        let readers: Vec<_> = (0..8)
            .map(|_| {
                let (lock, prices) = (lock.clone(), prices.clone());
                let reading = async move { read_at_least(&lock, &prices, wanted).await };
                tokio::spawn(Owner::new().scope(reading))
            })
            .collect();
        for reader in readers {
            let version = reader.await.expect("no task panics")?;
            assert!(version >= wanted);
        }
    }
    let renewals = *prices.renewals.lock().expect("no task panics");
    println!("8 readers saw 3 versions, renewed {renewals} times");
    client.shutdown().await;
    Ok(())
}
