//! The steps that the library takes: connect, lock, unlock, and the check of the servers' set-up.

use std::time::{Duration, Instant};

use lockdog::error::Error;
use lockdog::report::{Finding, FindingKind};
use lockdog::{Client, ClientBuilder, Uuid};

use super::found::{Found, State};
use crate::args::Doctor;
use crate::failed::Failed;
use crate::output::Output;
use crate::run::{Signals, number};

pub(super) async fn check(
    args: &Doctor,
    builder: ClientBuilder,
    signals: &mut Signals,
    output: Output,
) -> Result<Vec<Found>, Failed> {
    let mut all = Vec::new();
    let mut tell = |found: Found| {
        found.show(output);
        all.push(found);
    };
    let began = Instant::now();
    let built = tokio::select! {
        built = builder.lazy(false).build() => built,
        signal = signals.ending() => return Err(Failed::signalled(number(signal))),
    };
    let client = match built {
        Ok(client) => client,
        Err(error) => {
            tell(failed("client", error).since(began));
            return Ok(all);
        }
    };
    tell(Found::new("client", "", State::Ok, "a client is connected").since(began));
    let ended = tokio::select! {
        () = steps(args, &client, &mut tell) => Ok(()),
        signal = signals.ending() => Err(Failed::signalled(number(signal))),
    };
    // A lock that is still held is released here.
    client.shutdown_within(END).await;
    ended.map(|()| all)
}

async fn steps(args: &Doctor, client: &Client, tell: &mut impl FnMut(Found)) {
    lock(args, client, tell).await;
    match client.diagnose().await {
        Ok(diagnosis) => {
            if diagnosis.findings().is_empty() {
                tell(Found::new(
                    "set-up",
                    "",
                    State::Ok,
                    "nothing is wrong with it",
                ));
            }
            for finding in diagnosis.findings() {
                tell(found(finding));
            }
        }
        Err(error) => tell(failed("set-up", error)),
    }
}

/// Acquires and releases a lock that no other program uses.
async fn lock(args: &Doctor, client: &Client, tell: &mut impl FnMut(Found)) {
    let name = format!("{}{}", args.lock_prefix, Uuid::new_v4());
    let began = Instant::now();
    let guard = match client.lock(&name).lock().await {
        Ok(guard) => guard,
        Err(error) => {
            tell(failed("lock", error).since(began));
            return;
        }
    };
    let text = format!("{name} was acquired");
    let acquired = Found::new("lock", "", State::Ok, text).since(began);
    let began = Instant::now();
    let released = match guard.unlock().await {
        Ok(_) => Found::new("unlock", "", State::Ok, "it was released"),
        Err(error) => failed("unlock", error),
    };
    let released = released.since(began);
    // No lock is held here, because the output ends the process if nobody reads it.
    tell(acquired);
    tell(released);
}

fn failed(step: &'static str, error: Error) -> Found {
    let is_answer = matches!(error, Error::Refused { .. } | Error::NotReplicated(_));
    let Failed { text, .. } = error.into();
    let found = Found::new(step, "", State::Fail, text);
    Found { is_answer, ..found }
}

fn found(finding: &Finding) -> Found {
    let state = match (finding.is_known, finding.kind) {
        (false, _) => State::Unknown,
        (true, FindingKind::Unreachable) => State::Fail,
        (true, _) => State::Warn,
    };
    Found::new("set-up", &finding.server, state, &finding.meaning)
        .answered()
        .fix(&finding.fix)
}

/// How long a server that does not answer keeps the command from its end. What it has ends with its lease.
const END: Duration = Duration::from_secs(5);
