//! The steps that the library takes: connect, lock, unlock, and the check of the servers' set-up.

use std::time::Instant;

use lockdog::error::Error;
use lockdog::report::{Finding, FindingKind};
use lockdog::{ClientBuilder, Uuid};

use super::found::{Found, State};
use crate::args::Doctor;
use crate::failed::Failed;
use crate::output::Output;

pub(super) async fn check(args: &Doctor, builder: ClientBuilder, output: Output) -> Vec<Found> {
    let mut all = Vec::new();
    let mut tell = |found: Found| {
        found.show(output);
        all.push(found);
    };
    let began = Instant::now();
    let client = match builder.lazy(false).build().await {
        Ok(client) => client,
        Err(error) => {
            tell(failed("client", error).since(began));
            return all;
        }
    };
    tell(Found::new("client", "", State::Ok, "a client is connected").since(began));
    lock(args, &client, &mut tell).await;
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
    client.shutdown().await;
    all
}

/// Acquires and releases a lock that no other program uses.
async fn lock(args: &Doctor, client: &lockdog::Client, tell: &mut impl FnMut(Found)) {
    let name = format!("{}{}", args.lock_prefix, Uuid::new_v4());
    let began = Instant::now();
    let guard = match client.lock(&name).lock().await {
        Ok(guard) => guard,
        Err(error) => {
            tell(failed("lock", error).since(began));
            return;
        }
    };
    tell(Found::new("lock", "", State::Ok, format_args!("{name} was acquired")).since(began));
    let began = Instant::now();
    match guard.unlock().await {
        Ok(_) => tell(Found::new("unlock", "", State::Ok, "it was released").since(began)),
        Err(error) => tell(failed("unlock", error).since(began)),
    }
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
