//! Two processes contend for one lock on a real server; `make demo` runs it.
//!
//! It starts a server of its own: `redis-server`, or the server of `lockdog-test` if that is not installed. It
//! starts itself a second time as the other process. It checks each line before it prints it, and fails at the
//! first result that is not as expected.

#![allow(
    clippy::disallowed_methods,
    reason = "the demo measures for people; the ban is for the library"
)]

mod first;
mod second;
#[path = "../support/server.rs"]
mod server;
#[path = "../support/stage.rs"]
mod stage;

use std::process::ExitCode;
use std::time::Duration;

use stage::{BLUE, GREY, Stage, Voice, YELLOW};

/// Why the demo stopped.
type Failure = Box<dyn std::error::Error>;

#[tokio::main]
async fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    if let Some(url) = args.next() {
        return second::main(&url).await;
    }
    let stage = Stage::new();
    let played = tokio::time::timeout(CURFEW, first::play(&stage)).await;
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

impl Stage {
    /// What this process does.
    fn first(&self, text: &str) {
        self.voice(&FIRST, text);
    }

    /// What the second process says that it does.
    fn second(&self, text: &str) {
        self.voice(&SECOND, text);
    }

    /// What the server says, asked on a connection that has nothing to do with lockdog.
    fn redis(&self, text: &str) {
        self.voice(&REDIS, text);
    }
}

const FIRST: Voice = Voice {
    name: "first",
    colour: BLUE,
};
const SECOND: Voice = Voice {
    name: "second",
    colour: YELLOW,
};
const REDIS: Voice = Voice {
    name: "redis",
    colour: GREY,
};

/// No caller waits for a demo that hangs.
const CURFEW: Duration = Duration::from_secs(60);
