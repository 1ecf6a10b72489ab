//! The findings of a diagnosis.

use std::fmt;

/// The findings about the servers' configuration, from
/// [`Client::diagnose`](crate::Client::diagnose).
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
    /// All findings: what is wrong, and what could not be checked. Empty if everything was checked
    /// and is correct.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The findings that are known to be wrong, without those that the client expects
    /// ([`ClientBuilder::expect_finding`](crate::ClientBuilder::expect_finding)).
    pub fn problems(&self) -> impl Iterator<Item = &Finding> {
        let is_problem = |finding: &&Finding| finding.is_known && !finding.is_expected;
        self.findings.iter().filter(is_problem)
    }
}

/// One finding per line.
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

/// One part of a server's configuration that may cost locks, or that could not be checked.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// The subject of the finding.
    pub kind: FindingKind,
    /// The server: `host:port`, the path of a socket, or the sentinels' name of the master. It
    /// never contains a password.
    pub server: String,
    /// True: the problem exists. False: it could not be checked and may or may not exist.
    pub is_known: bool,
    /// [`ClientBuilder::expect_finding`](crate::ClientBuilder::expect_finding) named its kind.
    pub is_expected: bool,
    /// The consequence for locks.
    pub meaning: String,
    /// How to fix it, with the command to run on the server if there is one.
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

/// The subject of a [`Finding`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum FindingKind {
    /// The server's clock and this machine's differ.
    ClockDifference,
    /// The server is a node of a cluster, but the client is configured for a single server.
    ClusterMode,
    /// The server may evict locks when its memory is full.
    Eviction,
    /// The master grants locks even if no replica is connected.
    NoMinReplicas,
    /// The server forgets all locks when it restarts.
    NoPersistence,
    /// The server is older than the versions that lockdog is tested with.
    OldVersion,
    /// The client's user may not run some commands that locks need.
    Permissions,
    /// The server is a replica.
    Replica,
    /// A master of a cluster cannot be reached. The findings about the other servers are still
    /// complete.
    Unreachable,
}

impl FindingKind {
    /// Every kind, in the order of the names. Later versions may find more.
    pub const ALL: &[Self] = &[
        Self::ClockDifference,
        Self::ClusterMode,
        Self::Eviction,
        Self::NoMinReplicas,
        Self::NoPersistence,
        Self::OldVersion,
        Self::Permissions,
        Self::Replica,
        Self::Unreachable,
    ];

    /// The name in logs: `clock_difference`, `cluster_mode`, `eviction`, `no_min_replicas`,
    /// `no_persistence`, `old_version`, `permissions`, `replica` or `unreachable`. It does not change.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClockDifference => "clock_difference",
            Self::ClusterMode => "cluster_mode",
            Self::Eviction => "eviction",
            Self::NoMinReplicas => "no_min_replicas",
            Self::NoPersistence => "no_persistence",
            Self::OldVersion => "old_version",
            Self::Permissions => "permissions",
            Self::Replica => "replica",
            Self::Unreachable => "unreachable",
        }
    }
}
