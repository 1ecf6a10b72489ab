//! One lock on five servers, of which two are killed and one is frozen while it is held.
//!
//! ```text
//! cargo run --example redlock
//! ```
//!
//! It starts five redis-servers of its own. It checks each line before it prints it, and fails at the first
//! result that is not as expected.

#![allow(
    clippy::disallowed_methods,
    reason = "the example measures for people; the ban is for the library"
)]

mod five;
#[path = "../support/server.rs"]
mod server;
mod service;
#[path = "../support/stage.rs"]
mod stage;
mod story;

use std::process::ExitCode;
use std::time::Duration;

use stage::Stage;

/// Why the story stopped.
type Failure = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> ExitCode {
    let stage = Stage::new();
    let played = tokio::time::timeout(CURFEW, story::play(&stage)).await;
    match played.unwrap_or_else(|_| Err("it took too long".into())) {
        Ok(()) => {
            stage.title("All steps behaved as expected.");
            ExitCode::SUCCESS
        }
        Err(failure) => {
            stage.wrong(&failure.to_string());
            ExitCode::FAILURE
        }
    }
}

/// No caller waits for a story that hangs.
const CURFEW: Duration = Duration::from_secs(180);
