//! One of several processes leads; when it ends, the next one leads.
//!
//! ```text
//! cargo run --example leader -- redis://127.0.0.1:6379 alice
//! cargo run --example leader -- redis://127.0.0.1:6379 bob
//! ```
//!
//! Ctrl-C or TERM: the leader resigns, and the next one leads immediately.
//! If the leader is killed, the next one leads when the lease ends, at most six seconds later.
//! If the leader cannot reach the server, it stops its work before its lease ends, and campaigns again.

#![allow(
    clippy::disallowed_methods,
    reason = "an example may spawn; the ban is for the library"
)]

use std::time::Duration;

use lockdog::{CancellationToken, Client, Election, Error, Leadership, Result};
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
    let election = client.election("example:leader");
    let watching = tokio::spawn(watch(name.clone(), election.clone()));
    let resign = asked_to_end();
    while !resign.is_cancelled() {
        println!("{name} campaigns");
        let elected = tokio::select! {
            () = resign.cancelled() => break,
            elected = election.campaign(&*name) => elected,
        };
        let ended = match elected {
            Ok(lead) => serve(&name, lead, &resign).await,
            Err(error) => Err(error),
        };
        if let Err(error) = ended {
            println!("{name} does not lead: {error}");
            // Without this pause, the loop would send a campaign immediately after each refusal.
            sleep(LEASE / 10).await;
        }
    }
    watching.abort();
    client.shutdown().await;
    println!("{name} ended");
    Ok(())
}

/// What only the leader does, until it is asked to end or the leadership is lost. `Election::run` does this for
/// work that ends by itself.
async fn serve(name: &str, lead: Leadership, resign: &CancellationToken) -> Result<()> {
    println!("{name} leads, term {}", lead.term());
    loop {
        tokio::select! {
            lost = lead.lost() => return Err(lost.into()),
            () = resign.cancelled() => break,
            () = sleep(TICK) => {}
        }
        // The work. A store that compares terms refuses the late writes of an earlier leader. `remaining` is
        // how long no other process can lead, as far as leases can promise it.
        println!("{name} works, safe for {} ms", lead.remaining().as_millis());
    }
    lead.resign().await?;
    println!("{name} resigned");
    Ok(())
}

/// Prints each change of the leader.
async fn watch(name: String, election: Election) {
    let mut leaders = election.observe();
    loop {
        match leaders.next().await {
            Ok(Some(leader)) => {
                let value = leader.value.as_deref().unwrap_or("a client without a name");
                println!("{name} sees that {value} leads");
            }
            Ok(None) => println!("{name} sees no leader"),
            Err(Error::Closed) => return,
            Err(error) => println!("{name} sees nothing: {error}"),
        }
    }
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

/// The longest time without a leader after the leader was killed.
const LEASE: Duration = Duration::from_secs(6);
const TICK: Duration = Duration::from_millis(200);
