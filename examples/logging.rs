//! The set-up of `tracing`: a service that shows the warnings of lockdog, and more events for debugging.
//!
//! ```text
//! cargo run --example logging -- redis://127.0.0.1:6379
//! ```
//!
//! `docs/logs.md` lists every event. Its targets are stable: with the `env-filter` of tracing-subscriber,
//! `lockdog::wait=debug` shows waits only.

use lockdog::{Client, Result};
use tracing::Level;

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1);
    let url = url.as_deref().unwrap_or("redis://127.0.0.1:6379");
    // For the whole process: the client's own thread logs too.
    tracing_subscriber::fmt()
        .with_max_level(Level::WARN)
        .with_writer(std::io::stdout)
        .with_ansi(false)
        .init();
    let client = Client::connect(url).await?;
    let lock = client.lock("example:logging");
    let guard = lock.lock().await?;
    // `lock lost` is the line to alert on. It has a hash in place of the lock's name: the same key has the
    // same hash in each process.
    lock.force_unlock().await?;
    guard.lost().await;
    client.shutdown().await;
    println!("ended");
    Ok(())
}
