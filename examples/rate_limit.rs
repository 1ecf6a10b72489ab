//! Several processes call a service that takes at most two calls at a time, and two in half a second.
//!
//! ```text
//! cargo run --example rate_limit -- redis://127.0.0.1:6379 alice
//! cargo run --example rate_limit -- redis://127.0.0.1:6379 bob
//! ```
//!
//! A call needs one of two permits that all processes share, and keeps it for at least half a second. A
//! Java service shares the permits with `getSemaphore("example:calls")`.
//!
//! If a process is killed, its permits stay in use, because they have no leases. The next process that starts
//! lists who has permits; `Semaphore::reclaim` releases those of a dead client.

#![allow(
    clippy::disallowed_methods,
    reason = "an example may spawn; the ban is for the library"
)]

use std::time::Duration;

use lockdog::{Client, Result, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let url = args
        .next()
        .unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());
    let name = args
        .next()
        .unwrap_or_else(|| std::process::id().to_string());

    let client = Client::connect(url).await?;
    let calls = client.semaphore("example:calls");
    // The first process makes the semaphore. The others find it.
    if calls.try_set_permits(AT_ONCE).await? {
        println!("{name} allows {AT_ONCE} calls at a time");
    }
    for holder in calls.holders().await? {
        println!("{:?} has {} permits", holder.client_id(), holder.permits);
    }
    let mut running = JoinSet::new();
    for number in 1..=6 {
        running.spawn(call(calls.clone(), format!("{name} {number}")));
    }
    while let Some(called) = running.join_next().await {
        called.expect("no call panics")?;
    }
    // Permits that are still in use are released.
    client.shutdown().await;
    println!("{name} ended");
    Ok(())
}

/// One call of the service, when a permit is free.
async fn call(calls: Semaphore, what: String) -> Result<()> {
    let permit = calls.acquire().await?;
    let until = Instant::now() + PERIOD;
    println!("{what} begins");
    sleep(Duration::from_millis(20)).await;
    println!("{what} ends");
    // A call that ends early keeps its permit until the period is over.
    sleep_until(until).await;
    permit.release().await
}

const AT_ONCE: u32 = 2;
const PERIOD: Duration = Duration::from_millis(500);
