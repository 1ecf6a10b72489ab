//! Many locks (W5) or permits of one semaphore (W12) held under the watchdog, right after a crowd of short
//! ones. lockdog only.

use std::time::{Duration, Instant};

use futures_util::stream::{StreamExt, iter};
use lockdog::{Client, Guard, LeasedPermit};
use serde_json::{Map, Value, json};

use crate::Result;
use crate::drive::object;
use crate::drive::stage::{Stage, Stopwatch};
use crate::protocol::{Event, Request};

/// What is held for the length of a cell.
trait Holding: Sized {
    async fn acquire(client: &Client, prefix: &str, count: usize) -> Result<Self>;

    /// How many are lost.
    fn lost(&self) -> usize;
}

pub(crate) async fn locks(request: &Request, stage: &mut Stage) -> Result<Map<String, Value>> {
    measure::<Vec<Guard>>(request, stage).await
}

pub(crate) async fn permits(request: &Request, stage: &mut Stage) -> Result<Map<String, Value>> {
    measure::<Vec<LeasedPermit>>(request, stage).await
}

async fn measure<H: Holding>(request: &Request, stage: &mut Stage) -> Result<Map<String, Value>> {
    let url = request.urls.first().ok_or("a URL is missing")?;
    let lease = Duration::from_secs_f64(request.lease_s);
    let client = Client::builder()
        .url(url)
        .watchdog_lease(lease)
        .build()
        .await?;
    // What the first locks need once is not charged to each.
    drop(H::acquire(&client, &format!("{}-warm", request.name), 200).await?);
    tokio::time::sleep(Duration::from_secs(1)).await;

    let before = resident()?;
    for turn in 0..SHORT {
        let lock = client.lock(format!("{}-short:{}", request.name, turn % 50));
        lock.lock().await?.unlock().await?;
    }
    let held = H::acquire(&client, &request.name, request.locks).await?;
    // A first period in which crowds form.
    tokio::time::sleep(lease / 3).await;
    let after = resident()?;
    stage.pause(request.cell, Event::Ready).await?;

    let watch = Stopwatch::start();
    tokio::time::sleep(Duration::from_secs_f64(request.seconds)).await;
    let (seconds, cpu) = (watch.seconds(), watch.cpu_seconds());
    let invalid = held.lost();
    stage.pause(request.cell, Event::Held).await?;

    let began = Instant::now();
    let report = client.shutdown().await;
    let shutdown = began.elapsed().as_secs_f64();
    drop(held);
    Ok(object(json!({
        "seconds": seconds,
        "cpu_s": cpu,
        "lost_guards": invalid,
        "bytes_per_lock": after.saturating_sub(before) / request.locks,
        "shutdown_s": shutdown,
        "unconfirmed": report.unconfirmed,
    })))
}

impl Holding for Vec<Guard> {
    /// Held by one owner, some hundred acquires under way at a time.
    async fn acquire(client: &Client, prefix: &str, count: usize) -> Result<Self> {
        let mut guards = Self::with_capacity(count);
        let mut granted = iter(0..count)
            .map(|i| client.lock(format!("{prefix}:{i}")).lock().into_future())
            .buffer_unordered(200);
        while let Some(guard) = granted.next().await {
            guards.push(guard?);
        }
        Ok(guards)
    }

    fn lost(&self) -> usize {
        self.iter().filter(|guard| !guard.is_valid()).count()
    }
}

impl Holding for Vec<LeasedPermit> {
    async fn acquire(client: &Client, prefix: &str, count: usize) -> Result<Self> {
        let semaphore = client.permit_semaphore(prefix);
        semaphore.set_permits(u32::try_from(count)?).await?;
        let mut held = Self::new();
        for first in (0..count).step_by(MOST) {
            let permits = MOST.min(count - first);
            held.push(semaphore.acquire_many(u32::try_from(permits)?).await?);
        }
        Ok(held)
    }

    /// One lost permit makes all of one command count.
    fn lost(&self) -> usize {
        let lost = self.iter().filter(|permits| !permits.is_valid());
        lost.map(|permits| permits.count() as usize).sum()
    }
}

/// This process' memory in bytes, as the kernel counts it.
fn resident() -> Result<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kilobytes: usize = kilobytes.ok_or("the kernel reports no VmRSS")?.parse()?;
    Ok(kilobytes * 1024)
}

/// Lock/unlock pairs before: the timers that they leave behind in Redisson cost it most of what it
/// holds afterwards.
const SHORT: usize = 1_000;

/// Permits of one command.
const MOST: usize = 1_000;
