//! Threads without async: each blocks on the client's calls, and works outside of any runtime.
//!
//! ```text
//! cargo run --example threads -- redis://127.0.0.1:6379
//! ```

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use lockdog::{Client, Lock, Result};
use tokio::runtime::{Handle, Runtime};

/// Reads the counter, works, and writes it. Without the lock, two threads would overwrite each other.
fn count(runtime: &Handle, lock: &Lock, counter: &AtomicU32) -> Result<()> {
    for _ in 0..TURNS {
        // The owner is this thread, as in Java.
        let guard = runtime.block_on(async { lock.lock().await })?;
        let read = counter.load(Ordering::Relaxed);
        thread::sleep(Duration::from_millis(2));
        // The watchdog renews the lock while this thread works. Nothing cancels a thread, so it checks
        // before the write that it still holds the lock.
        if guard.is_valid() {
            counter.store(read + 1, Ordering::Relaxed);
        }
        runtime.block_on(guard.unlock())?;
    }
    Ok(())
}

fn main() -> Result<()> {
    let url = std::env::args().nth(1);
    let url = url.as_deref().unwrap_or("redis://127.0.0.1:6379");
    // One runtime for all threads. It must be multi-threaded: its own threads drive the connections.
    let runtime = Runtime::new().expect("a runtime can be built");
    let client = runtime.block_on(Client::connect(url))?;
    let (lock, counter) = (client.lock("example:threads"), AtomicU32::new(0));
    thread::scope(|scope| {
        let work = || count(runtime.handle(), &lock, &counter);
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        let ended = threads.into_iter().map(|thread| match thread.join() {
            Ok(ended) => ended,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ended.collect::<Result<()>>()
    })?;
    println!("{THREADS} threads counted to {}", counter.into_inner());
    runtime.block_on(client.shutdown());
    Ok(())
}

const THREADS: u32 = 4;
const TURNS: u32 = 10;
