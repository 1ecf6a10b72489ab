//! Finds parts of a server's configuration that may cost locks, by asking the server.
//!
//! It handles one server and one connection at a time. `ask` asks, `judge` interprets the answers.

mod ask;
mod finding;
mod inspection;
mod judge;
mod needs;
mod permissions;

use std::time::Duration;

use crate::error::{Error, Result};
use crate::server::{Failure, Node, Server};
use ask::{Depth, ServerFacts};
pub use finding::{Diagnosis, Finding, FindingKind};
pub(crate) use inspection::ClientProfile;
use inspection::Inspection;
use judge::judge;
use permissions::ProbeSubscriber;

/// Checks all servers completely, one after the other.
pub(crate) async fn diagnose(server: &Server, expected: &ClientProfile) -> Result<Diagnosis> {
    let limit = server.command_timeout();
    let of = |place: String| move |failure| Error::from(failure).of_server(&place);
    // After this the servers of a cluster are known.
    server.connect().await.map_err(of(server.address()))?;
    let nodes = server.nodes();
    let mut findings = Vec::new();
    let mut failed = None;
    for node in &nodes {
        match inspect(server, node, expected, limit).await {
            Ok(found) => findings.extend(found),
            Err(failure) => {
                let error = of(node.address())(failure);
                findings.push(Finding {
                    kind: FindingKind::Unreachable,
                    server: node.address(),
                    is_known: true,
                    is_expected: false,
                    meaning: format!("locks in its slots cannot be acquired: {error}"),
                    fix: "start it, or have a replica take over (CLUSTER FAILOVER)".to_owned(),
                });
                failed = Some((failed.map_or(1, |(count, _)| count + 1), error));
            }
        }
    }
    match failed {
        Some((count, error)) if count == nodes.len() => Err(error),
        _ => Ok(Diagnosis {
            findings: expected.mark(findings),
        }),
    }
}

/// Checks one server completely.
async fn inspect(
    server: &Server,
    node: &Node,
    expected: &ClientProfile,
    limit: Duration,
) -> std::result::Result<Vec<Finding>, Failure> {
    let place = node.address();
    let connection = match server.is_cluster() {
        // A separate connection, because ASKING changes the effect of the next command.
        true => node.endpoint().open_own(limit).await?,
        false => node.connection(limit).await?,
    };
    let inspection = Inspection::new(server, &connection, &place, expected, limit);
    let subscriber = match expected.listens {
        true => ProbeSubscriber::open(server, node, inspection.is_sharded, limit).await,
        false => None,
    };
    let answers = ServerFacts::ask(&inspection, Depth::Whole(subscriber)).await;
    node.abandon_unanswered(&answers, &connection);
    Ok(judge(
        &answers?,
        inspection.place,
        inspection.is_cluster,
        expected,
    ))
}

/// Checks the servers that are new since the last check, on existing connections, and logs what is
/// wrong.
pub(crate) async fn check_new_servers(server: &Server, expected: &ClientProfile, limit: Duration) {
    for node in server.nodes() {
        let (Some(met), Some(connection)) = (node.unchecked(), node.any_connection()) else {
            continue;
        };
        let place = node.address();
        let inspection = Inspection::new(server, &connection, &place, expected, limit);
        let asked = ServerFacts::ask(&inspection, Depth::InPassing);
        let asked = tokio::time::timeout(limit, asked).await;
        match asked.unwrap_or_else(|_| Err(Failure::silent(limit))) {
            Ok(answers) => {
                node.checked(met);
                let findings = judge(&answers, inspection.place, inspection.is_cluster, expected);
                log_findings(expected.mark(findings));
            }
            Err(failure) => {
                let server = place.as_str();
                tracing::debug!(
                    target: "lockdog::diagnosis",
                    server, %failure, "the server's set-up could not be checked"
                );
            }
        }
    }
}

fn log_findings(findings: Vec<Finding>) {
    for finding in findings {
        let Finding {
            kind,
            server,
            is_known,
            is_expected,
            meaning,
            fix,
        } = finding;
        if is_expected {
            tracing::debug!(
                target: "lockdog::diagnosis",
                server,
                kind = kind.as_str(),
                meaning,
                "an expected part of the server's set-up may cost locks"
            );
        } else if is_known {
            tracing::warn!(
                target: "lockdog::diagnosis",
                server,
                kind = kind.as_str(),
                meaning,
                fix,
                "the server's set-up may cost locks"
            );
        } else {
            tracing::debug!(
                target: "lockdog::diagnosis",
                server,
                kind = kind.as_str(),
                meaning,
                "a part of the server's set-up is not known"
            );
        }
    }
}
