//! What was found of the servers.

use std::fmt;

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
    pub(super) findings: Vec<Finding>,
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
