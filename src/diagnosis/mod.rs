//! What of a server's set-up may cost locks, found by asking the server.
//!
//! One server and one connection at a time: `ask` asks, `judge` says what the answers mean.

mod ask;
mod judge;
mod needs;
mod permissions;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::server::{Connection, Failure, Node, Server};
use ask::{Depth, ServerFacts};
use permissions::ProbeSubscriber;

/// What was found of the servers' set-up: [`Client::diagnose`](crate::Client::diagnose).
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: lockdog::Client) -> lockdog::Result<()> {
/// let diagnosis = client.diagnose().await?;
/// for finding in diagnosis.findings() {
///     println!("{finding}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Diagnosis {
    findings: Vec<Finding>,
}

impl Diagnosis {
    /// What is wrong, and what could not be looked at; empty if all was looked at and is well.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// What is known to be wrong.
    pub fn problems(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.is_known)
    }
}

/// One finding a line.
impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.findings.is_empty() {
            return f.write_str("nothing is wrong with the set-up");
        }
        for (index, finding) in self.findings.iter().enumerate() {
            let end = if index == 0 { "" } else { "\n" };
            write!(f, "{end}{finding}")?;
        }
        Ok(())
    }
}

/// One thing of a server's set-up that may cost locks, or that could not be looked at.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// What it is about.
    pub kind: FindingKind,
    /// Where the server is: `host:port`, the path of a socket, or the name of sentinels' master.
    /// Never a password.
    pub server: String,
    /// True: it is so. False: it could not be looked at, and may be well or not.
    pub is_known: bool,
    /// What it means for locks.
    pub meaning: String,
    /// What to do about it; the line to run at the server, where there is one.
    pub fix: String,
}

/// `host:port: meaning; fix: what to do`.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            server,
            meaning,
            fix,
            ..
        } = self;
        write!(f, "{server}: {meaning}; fix: {fix}")
    }
}

/// What a [`Finding`] is about.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum FindingKind {
    /// The server's clock and this machine's differ.
    ClockDifference,
    /// The server is a node of a cluster, and the client takes it for a server of its own.
    ClusterMode,
    /// The server may evict locks when its memory is full.
    Eviction,
    /// A master grants locks that none of its replicas has to hear of.
    NoMinReplicas,
    /// A restart of the server forgets all locks.
    NoPersistence,
    /// The server is older than those that lockdog is tested with.
    OldVersion,
    /// The client's user may not run commands that locks need.
    Permissions,
    /// The server is a replica.
    Replica,
    /// A master of a cluster cannot be reached: the others' findings are there all the same.
    Unreachable,
}

/// What a client is set up for, as far as a server has to be fit for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientProfile {
    /// The user that the server knows; `None` for its default one.
    pub(crate) user: Option<String>,
    /// Only a pool knows the user.
    pub(crate) by_pool: bool,
    /// Waiters hear messages.
    pub(crate) listens: bool,
    pub(crate) client_name: Option<String>,
    pub(crate) quarantine_on_server: bool,
    /// Grants are waited for until replicas have them.
    pub(crate) waits: bool,
    /// Grants are waited for until they are on disk; on the master's own disk, too, if so.
    pub(crate) on_disk: Option<bool>,
    /// Locks of this client bring fencing tokens: shared, because it is known once they are made.
    pub(crate) fenced: Arc<AtomicBool>,
}

impl ClientProfile {
    pub(crate) fn is_fenced(&self) -> bool {
        self.fenced.load(Ordering::Relaxed)
    }

    /// A lock that brings fencing tokens was made of this client's.
    pub(crate) fn expect_fencing(&self) {
        self.fenced.store(true, Ordering::Relaxed);
    }
}

/// What is looked at.
struct Inspection<'a> {
    connection: &'a Connection,
    /// Host and port, a unix socket's path, a master's name, or "pool".
    place: &'a str,
    expected: &'a ClientProfile,
    /// The client knows that it talks to a cluster.
    is_cluster: bool,
    /// Messages stay within one shard of the cluster.
    is_sharded: bool,
    limit: Duration,
}

impl<'a> Inspection<'a> {
    fn new(
        server: &Server,
        connection: &'a Connection,
        place: &'a str,
        expected: &'a ClientProfile,
        limit: Duration,
    ) -> Self {
        Self {
            connection,
            place,
            expected,
            is_cluster: server.is_cluster(),
            is_sharded: server.publishes() == "spublish",
            limit,
        }
    }

    fn judge(&self, answers: &ServerFacts) -> Vec<Finding> {
        judge::judge(answers, self.place, self.is_cluster, self.expected)
    }
}

/// Looks at all servers, one after the other, and asks them all there is to know.
pub(crate) async fn diagnose(server: &Server, expected: &ClientProfile) -> Result<Diagnosis> {
    let limit = server.command_timeout();
    let of = |place: String| move |failure| Error::from(failure).of_server(&place);
    // The servers of a cluster are known then.
    server.connect().await.map_err(of(server.address()))?;
    let nodes = server.nodes();
    let mut findings = Vec::new();
    let mut failed = None;
    for node in &nodes {
        match look(server, node, expected, limit).await {
            Ok(found) => findings.extend(found),
            Err(failure) => {
                let error = of(node.address())(failure);
                findings.push(Finding {
                    kind: FindingKind::Unreachable,
                    server: node.address(),
                    is_known: true,
                    meaning: format!("locks in its slots cannot be had: {error}"),
                    fix: "start it, or have a replica take over (CLUSTER FAILOVER)".to_owned(),
                });
                failed = Some((failed.map_or(1, |(count, _)| count + 1), error));
            }
        }
    }
    match failed {
        Some((count, error)) if count == nodes.len() => Err(error),
        _ => Ok(Diagnosis { findings }),
    }
}

/// Looks at one of them.
async fn look(
    server: &Server,
    node: &Node,
    expected: &ClientProfile,
    limit: Duration,
) -> std::result::Result<Vec<Finding>, Failure> {
    let place = node.address();
    let connection = match server.is_cluster() {
        // Of its own, since ASKING changes what is done with the command that follows.
        true => node.endpoint().open_own(limit).await?,
        false => node.connection(limit).await?,
    };
    let inspection = Inspection::new(server, &connection, &place, expected, limit);
    let subscriber = match expected.listens {
        true => ProbeSubscriber::open(server, node, inspection.is_sharded, limit).await,
        false => None,
    };
    let answers = ServerFacts::ask(&inspection, Depth::Whole(subscriber)).await?;
    Ok(inspection.judge(&answers))
}

/// Looks at the servers that the client has met since the last look, on the connections that there
/// are, and says in the log what is wrong.
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
                log_findings(inspection.judge(&answers));
            }
            Err(failure) => {
                let server = place.as_str();
                tracing::debug!(
                    target: "lockdog::diagnosis",
                    server, ?failure, "the server's set-up was not looked at"
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
            meaning,
            fix,
        } = finding;
        if is_known {
            tracing::warn!(
                target: "lockdog::diagnosis",
                server,
                ?kind,
                meaning,
                fix,
                "the server's set-up may cost locks"
            );
        } else {
            tracing::debug!(
                target: "lockdog::diagnosis",
                server,
                ?kind,
                meaning,
                "a part of the server's set-up is not known"
            );
        }
    }
}
