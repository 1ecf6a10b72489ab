//! One of several processes leads while it holds a lock; when it ends, another takes over.
//!
//! ```text
//! cargo run --example leader -- redis://127.0.0.1:6379 alice
//! cargo run --example leader -- redis://127.0.0.1:6379 bob
//! ```
//!
//! Ctrl-C or TERM: the leader resigns, and the next one leads at once.
//! Killed: the next one leads when the lease is over, three seconds later at most.
//! Cut off from the server: the leader stops by itself before its lease is over, and stands again.

#![allow(
    clippy::disallowed_methods,
    reason = "an example may spawn; the ban is for the library"
)]

use std::time::Duration;

use lockdog::{CancellationToken, Client, Guard, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let url = args
        .next()
        .unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());
    let name = args
        .next()
        .unwrap_or_else(|| std::process::id().to_string());

    let client = Client::builder()
        .url(url)
        .watchdog_lease(LEASE)
        .build()
        .await?;
    let lock = client.lock("example:leader");
    let resign = asked_to_end();
    while !resign.is_cancelled() {
        println!("{name} stands");
        let elected = tokio::select! {
            () = resign.cancelled() => break,
            elected = lock.lock() => elected,
        };
        let ended = match elected {
            Ok(guard) => lead(&name, guard, &resign).await,
            Err(error) => Err(error),
        };
        if let Err(error) = ended {
            println!("{name} does not lead: {error}");
            // A server that refuses would be asked again and again.
            sleep(LEASE / 10).await;
        }
    }
    client.shutdown().await;
    println!("{name} ended");
    Ok(())
}

/// What only the leader does, until it is asked to end or the lock is lost.
async fn lead(name: &str, guard: Guard, resign: &CancellationToken) -> Result<()> {
    println!("{name} leads");
    loop {
        tokio::select! {
            lost = guard.lost() => return Err(lost.into()),
            () = resign.cancelled() => break,
            () = sleep(TICK) => {}
        }
        // The work. `remaining` is how long no other process can lead, as far as leases can promise it.
        println!(
            "{name} works, safe for {} ms",
            guard.remaining().as_millis()
        );
    }
    guard.unlock().await?;
    println!("{name} resigned");
    Ok(())
}

/// A token that is cancelled by Ctrl-C or TERM.
fn asked_to_end() -> CancellationToken {
    let asked = CancellationToken::new();
    let token = asked.clone();
    tokio::spawn(async move {
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            },
            Err(error) => eprintln!("cannot be asked to end: {error}"),
        }
        token.cancel();
    });
    asked
}

/// How long a leader that was killed is missed at most.
const LEASE: Duration = Duration::from_secs(3);
const TICK: Duration = Duration::from_millis(200);
