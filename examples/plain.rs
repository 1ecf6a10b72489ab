//! The smallest complete program: acquire a lock, work, release it, shut the client down.
//!
//! ```text
//! cargo run --example plain -- redis://127.0.0.1:6379
//! ```

use std::time::Duration;

use lockdog::{Client, Result};

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1);
    let url = url.as_deref().unwrap_or("redis://127.0.0.1:6379");
    // The scope shuts the client down on every path, including `?` and a panic.
    Client::scope(url, |client| async move {
        let lock = client.lock("example:plain");
        let wait = Duration::from_secs(10);
        // Keep the guard in a variable: dropping it releases the lock.
        let Some(guard) = lock.try_lock().wait(wait).await? else {
            println!("another process has the lock");
            return Ok(());
        };
        println!("working, safe for {} s", guard.remaining().as_secs());
        // An error if the lock was lost during the work.
        guard.unlock().await?;
        println!("done");
        Ok(())
    })
    .await
}
