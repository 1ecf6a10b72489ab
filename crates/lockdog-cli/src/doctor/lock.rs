//! The steps that the library takes: connect, lock, unlock, and the check of the servers' set-up.

use std::time::{Duration, Instant};

use lockdog::config::{ReplicaAck, Replicas};
use lockdog::error::Error;
use lockdog::report::{Finding, FindingKind};
use lockdog::{Client, ClientBuilder, Uuid};

use super::found::{Found, State, millis};
use crate::args::Doctor;
use crate::failed::{Failed, is_forbidden};
use crate::output::Output;
use crate::run::{Signals, number};

pub(super) async fn check(
    args: &Doctor,
    builder: ClientBuilder,
    limit: Duration,
    signals: &mut Signals,
    output: Output,
) -> Result<Vec<Found>, Failed> {
    // Only a client as a whole waits for replicas.
    let wait = limit.min(REPLICAS_WAIT);
    let acknowledged = ReplicaAck::require(Replicas::All).timeout(wait);
    let with_replicas = builder.clone().lazy(false).replica_ack(acknowledged);
    let mut all = Vec::new();
    let mut report = |found: Found| {
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
            report(failed("client", error).since(began));
            return Ok(all);
        }
    };
    report(Found::new("client", "", State::Ok, "a client is connected").since(began));
    let mut acknowledging = None;
    let checks = async {
        let is_locked = lock(args, &client, &mut report).await;
        if is_locked {
            match acknowledged_client(with_replicas, limit).await {
                Ok(another) => {
                    replicas(args, acknowledging.insert(another), wait, &mut report).await
                }
                Err(error) => report(failed("replicas", error)),
            }
        }
        set_up(&client, &mut report).await;
    };
    let ended = tokio::select! {
        () = checks => Ok(()),
        signal = signals.ending() => Err(Failed::signalled(number(signal))),
    };
    // A lock that is still held is released here.
    for client in [Some(client), acknowledging].into_iter().flatten() {
        client.shutdown_within(END).await;
    }
    ended.map(|()| all)
}

/// A client whose acquires wait for the replicas. Only the library knows the command timeout of a file: one that is
/// shorter than the wait is replaced, and a longer one stays, because the server may need it.
async fn acknowledged_client(builder: ClientBuilder, limit: Duration) -> lockdog::Result<Client> {
    match builder.clone().build().await {
        // The client without the wait had the other settings.
        Err(Error::Invalid { .. }) => builder.command_timeout(limit).build().await,
        built => built,
    }
}

async fn set_up(client: &Client, report: &mut impl FnMut(Found)) {
    match client.diagnose().await {
        Ok(diagnosis) => {
            if diagnosis.findings().is_empty() {
                report(Found::new(
                    "set-up",
                    "",
                    State::Ok,
                    "nothing is wrong with it",
                ));
            }
            for finding in diagnosis.findings() {
                report(found(finding));
            }
        }
        Err(error) => report(failed("set-up", error)),
    }
}

/// Acquires and releases a lock that no other program uses. Returns whether it was acquired.
async fn lock(args: &Doctor, client: &Client, report: &mut impl FnMut(Found)) -> bool {
    let name = name(args);
    let began = Instant::now();
    let guard = match client.lock(&name).lock().await {
        Ok(guard) => guard,
        Err(error) => {
            report(failed("lock", error).since(began));
            return false;
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
    // No lock is held here, because a write to a closed output ends the process.
    report(acquired);
    report(released);
    true
}

/// How long an acquire takes that waits for all replicas of the master.
async fn replicas(args: &Doctor, client: &Client, wait: Duration, report: &mut impl FnMut(Found)) {
    let began = Instant::now();
    let says = |state, text: &str| Found::new("replicas", "", state, text).answered();
    let acquired = client.lock(name(args)).lock().await;
    let took = began.elapsed();
    let found = match acquired {
        Ok(guard) => {
            let text = "a lock was acquired, and all replicas have it";
            match guard.unlock().await {
                Ok(_) => says(State::Ok, text),
                Err(error) => failed("replicas", error),
            }
        }
        // The number that is required is that of the connected replicas, and at least one.
        Err(Error::NotReplicated(missing)) if missing.acknowledged() == 0 => {
            let text = match took < wait {
                // The client does not wait for replicas that the master does not have.
                true => "no replica follows the master".to_owned(),
                false => format!("no replica acknowledged a lock within {}", millis(wait)),
            };
            says(State::Unknown, &text)
                .fix("if the master has replicas, see whether they follow it")
        }
        Err(Error::NotReplicated(missing)) => {
            let (some, all) = (missing.acknowledged(), missing.required());
            let text = format!(
                "{some} of {all} replicas acknowledged a lock within {}",
                millis(wait)
            );
            says(State::Warn, &text).fix("see which replica does not follow the master")
        }
        Err(Error::Refused { .. }) => says(State::Unknown, "the server refuses WAIT")
            .fix("grant +wait to the user, if the clients use ReplicaAck"),
        Err(error) => failed("replicas", error),
    };
    report(found.took(took));
}

fn name(args: &Doctor) -> String {
    format!("{}{}", args.lock_prefix, Uuid::new_v4())
}

fn failed(step: &'static str, error: Error) -> Found {
    let is_answer = matches!(error, Error::Refused { .. } | Error::NotReplicated(_));
    let fix = match is_forbidden(&error) {
        true => "if the user may use some names only, begin one of them with --lock-prefix",
        false => "",
    };
    let Failed { text, .. } = error.into();
    let found = Found::new(step, "", State::Fail, text).fix(fix);
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

/// How long the replicas have time to acknowledge a lock, if the command timeout is not shorter.
const REPLICAS_WAIT: Duration = Duration::from_secs(1);
/// How long a server that does not answer keeps the command from its end. What it has ends with its lease.
const END: Duration = Duration::from_secs(5);
