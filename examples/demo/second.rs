//! The other process. It says one line for each thing that it does, and the first reads them.

use std::process::ExitCode;
use std::time::Duration;

use lockdog::{Client, Result};

use crate::first::{LEASE, LOCK};

pub(crate) async fn main(url: &str) -> ExitCode {
    match play(url).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn play(url: &str) -> Result<()> {
    let client = Client::builder()
        .url(url)
        .watchdog_lease(LEASE)
        // So that no timer, only a message, can end the wait within the demo.
        .poll_cap(Duration::from_secs(60))
        .build()
        .await?;
    let lock = client.lock(LOCK);

    match lock.try_lock().await? {
        None => println!("busy"),
        Some(_guard) => println!("free"),
    }
    let guard = lock.lock().await?;
    println!("acquired {}", client.id());

    let lost = guard.lost().await;
    println!("lost {}", lost.reason());
    println!("valid {}", guard.is_valid());
    drop(guard);

    client.shutdown().await;
    println!("ended");
    Ok(())
}
