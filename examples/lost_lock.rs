//! Four ways to stop when a lock is lost.
//!
//! ```text
//! cargo run --example lost_lock -- redis://127.0.0.1:6379
//! ```
//!
//! A lock on a server can be lost while its holder still works: the server could not be reached for longer
//! than the lease, another client deleted the key, or the process was stopped. Here another client frees
//! the lock by force; the guard reports the loss at its next renewal, and no later than its deadline.

#![allow(
    clippy::disallowed_methods,
    reason = "an example may spawn; the ban is for the library"
)]

use std::time::Duration;

use lockdog::{Client, Error, Guard, Lock};
use tokio::time::sleep;

/// For work that is one future: wait for the work and for the loss.
async fn until_lost(guard: Guard) -> String {
    tokio::select! {
        lost = guard.lost() => format!("lost() says: {}", lost.reason()),
        () = endless_work() => "not stopped".to_owned(),
    }
}

/// For work that is spread over tasks: each gets a token.
async fn tokens_for_tasks(guard: Guard) -> String {
    let workers: Vec<_> = (1..=3)
        .map(|_| tokio::spawn(guard.lost_token().run_until_cancelled_owned(endless_work())))
        .collect();
    let mut stopped = 0;
    for worker in workers {
        if matches!(worker.await, Ok(None)) {
            stopped += 1;
        }
    }
    format!("lost_token() stopped {stopped} of 3 tasks")
}

/// For work that writes step by step: check the guard before each write.
///
/// The check is no proof: between it and the write the process may be stopped for any time.
/// If one late write does harm, the store itself must refuse it.
async fn look_before_each_write(guard: Guard) -> String {
    let mut writes = 0;
    while guard.is_valid() {
        writes += 1;
        sleep(Duration::from_millis(20)).await;
    }
    // The unlock reports the loss too.
    match guard.unlock().await {
        Err(Error::Lost(_)) => format!("is_valid() stopped the writing after {writes} writes"),
        other => format!("not stopped: {other:?}"),
    }
}

/// The shortest way: `with` locks, unlocks, and drops the work when the lock is lost. Its error means that
/// the work was not finished, or that the lock was lost before its end.
async fn with_does_it_all(lock: &Lock) -> String {
    match lock.with(|_held| endless_work()).await {
        Err(Error::Lost(lost)) => format!("with() says: {}", lost.reason()),
        other => format!("not stopped: {other:?}"),
    }
}

#[tokio::main]
async fn main() -> lockdog::Result<()> {
    let url = std::env::args().nth(1);
    let url = url.as_deref().unwrap_or("redis://127.0.0.1:6379");
    // A short lease, so that the client detects a loss soon: the watchdog renews every third of it.
    let client = Client::builder()
        .url(url)
        .watchdog_lease(Duration::from_secs(3))
        .build()
        .await?;

    steal(url, "example:lost_lock:select");
    println!(
        "{}",
        until_lost(client.lock("example:lost_lock:select").lock().await?).await
    );

    steal(url, "example:lost_lock:tasks");
    println!(
        "{}",
        tokens_for_tasks(client.lock("example:lost_lock:tasks").lock().await?).await
    );

    steal(url, "example:lost_lock:writes");
    println!(
        "{}",
        look_before_each_write(client.lock("example:lost_lock:writes").lock().await?).await
    );

    steal(url, "example:lost_lock:with");
    println!(
        "{}",
        with_does_it_all(&client.lock("example:lost_lock:with")).await
    );

    client.shutdown().await;
    Ok(())
}

/// Another client waits until the lock is held, and frees it by force.
fn steal(url: &str, name: &'static str) {
    let url = url.to_owned();
    tokio::spawn(async move {
        let thief = Client::connect(url).await?;
        while !thief.lock(name).force_unlock().await? {
            sleep(Duration::from_millis(100)).await;
        }
        Ok::<_, Error>(())
    });
}

async fn endless_work() {
    std::future::pending().await
}
