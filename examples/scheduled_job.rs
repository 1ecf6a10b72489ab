//! A job that each node starts at the same time, and that one of them runs.
//!
//! ```text
//! cargo run --example scheduled_job -- redis://127.0.0.1:6379
//! ```
//!
//! The job is short, and the clock of a node may be late. So the node that ran the job does not release the
//! lock: it stays taken until its lease ends. A late node finds it taken, even if the first node has exited.

use std::time::Duration;

use lockdog::{Client, Result};
use tokio::time::sleep;

/// What a node does when its clock says so. True if it ran the job.
async fn tick(node: &Client) -> Result<bool> {
    let lock = node.lock("example:scheduled_job");
    let Some(guard) = lock.try_lock().lease(AT_LEAST).await? else {
        return Ok(false);
    };
    tokio::select! {
        // Another node may run the job now, so this one stops.
        lost = guard.lost() => return Err(lost.into()),
        () = job() => {}
    }
    // A job that may take longer than the lease calls `guard.extend(..)` while it runs. Or it acquires
    // without a lease and calls `guard.extend(..)` here. A job that fails drops the guard, which releases the
    // lock: another node can run the job.
    guard.leave_to_lease();
    Ok(true)
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1);
    let url = url.as_deref().unwrap_or("redis://127.0.0.1:6379");
    let (first, second) = (Client::connect(url).await?, Client::connect(url).await?);
    println!("node 1 ran the job: {}", tick(&first).await?);
    // The shutdown of the node does not release the lock that was left to its lease.
    first.shutdown().await;
    println!("node 2 ran the job: {}", tick(&second).await?);
    second.shutdown().await;
    Ok(())
}

async fn job() {
    sleep(Duration::from_millis(100)).await;
}

/// No other run starts within this time from the start of one run. It must be longer than the difference
/// of the nodes' clocks, and shorter than the time between two runs.
const AT_LEAST: Duration = Duration::from_secs(20);
