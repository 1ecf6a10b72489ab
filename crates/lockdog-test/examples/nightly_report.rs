//! A service's code that takes a lock, and its tests on the test server: a lock that is lost, one that
//! is busy, a server that is frozen, a lease that is too short.
//!
//! `cargo test --workspace --example nightly_report` runs them.
//! `cargo run -p lockdog-test --example nightly_report -- redis://127.0.0.1:6379` makes the report under
//! the lock of a real server.

use std::time::Duration;

use lockdog::{Client, Result};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1);
    let client = Client::connect(url.as_deref().unwrap_or("redis://127.0.0.1:6379")).await?;
    if made_unless_busy(&client).await? {
        return Ok(());
    }
    println!("another process makes the report; this one waits and makes the next");
    nightly_report(client).await
}

/// Makes the report once it is this one's turn; given up when the lock is lost.
async fn nightly_report(client: Client) -> Result<()> {
    client.lock("nightly").with(|_held| make_report()).await
}

/// False: another process makes it.
async fn made_unless_busy(client: &Client) -> Result<bool> {
    let Some(guard) = client.lock("nightly").try_lock().await? else {
        return Ok(false);
    };
    make_report().await;
    guard.unlock().await?;
    Ok(true)
}

/// In place of two hours of work.
async fn make_report() {
    tokio::time::sleep(Duration::from_secs(7200)).await;
}

#[cfg(test)]
mod tests {
    use lockdog_test::Server;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_report_stops_when_its_lock_is_lost() {
        let server = Server::new();
        let job = tokio::spawn(nightly_report(server.client().await));
        tokio::time::sleep(Duration::from_secs(3600)).await; // renewed 360 times
        server.lose("nightly");
        assert!(job.await.unwrap().unwrap_err().is_lost());
        server.assert_clean().await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_report_does_not_run_twice() {
        let server = Server::new();
        let client = server.client().await;
        let other = server.steal("nightly");
        assert!(!made_unless_busy(&client).await.unwrap());
        drop(other); // releases it
        assert!(made_unless_busy(&client).await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn the_report_stops_when_the_server_freezes() {
        let server = Server::new();
        let job = tokio::spawn(nightly_report(server.client().await));
        tokio::time::sleep(Duration::from_secs(60)).await;
        server.freeze();
        assert!(job.await.unwrap().unwrap_err().is_lost());
        server.thaw();
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_too_short_is_detected() {
        let lock = Server::new().client().await.lock("nightly");
        let guard = lock.lock().lease(Duration::from_secs(5)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(6)).await; // the work
        assert!(!guard.is_valid());
    }
}
