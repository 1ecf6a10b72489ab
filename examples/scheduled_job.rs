//! A job that each node starts at the same time, and that one of them runs.
//!
//! ```text
//! cargo run --example scheduled_job -- redis://127.0.0.1:6379
//! ```
//!
//! The job is short, and the clock of a node may be late. So the node that ran the job leaves its lock to
//! the lease: the late node finds it taken, also when the first node has ended by then.

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
        // The next node may run it: this one stops.
        lost = guard.lost() => return Err(lost.into()),
        () = job() => {}
    }
    // A job that may take longer calls `guard.extend(..)` on its way, or is taken without a lease and
    // extends to the rest of its time here. A job that fails before drops the guard: another node tries.
    guard.leave_to_lease();
    Ok(true)
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1);
    let url = url.as_deref().unwrap_or("redis://127.0.0.1:6379");
    let (first, second) = (Client::connect(url).await?, Client::connect(url).await?);
    println!("node 1 ran the job: {}", tick(&first).await?);
    // A deployment in this moment does not release what was left.
    first.shutdown().await;
    println!("node 2 ran the job: {}", tick(&second).await?);
    second.shutdown().await;
    Ok(())
}

async fn job() {
    sleep(Duration::from_millis(100)).await;
}

/// From the start of one run, no other run starts for so long: longer than clocks differ, and shorter
/// than the time between two runs.
const AT_LEAST: Duration = Duration::from_secs(20);
