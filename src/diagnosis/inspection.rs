//! One inspection: the connection that is checked, and the client that it is checked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::finding::{Finding, FindingKind};
use crate::key::Kind;
use crate::server::{Connection, Server};

/// The parts of a client's configuration that its servers have to support.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientProfile {
    /// The ACL user on the server; `None` for the default user.
    pub(crate) user: Option<String>,
    /// Only the caller's pool knows the user.
    pub(crate) by_pool: bool,
    /// Waiters subscribe to messages.
    pub(crate) listens: bool,
    pub(crate) client_name: Option<String>,
    /// The client's time and its servers' time are tokio's clock.
    pub(crate) has_tokio_time: bool,
    pub(crate) quarantine_on_server: bool,
    /// The findings that the user expects, because the servers cannot be changed.
    pub(crate) expected_findings: Arc<[FindingKind]>,
    /// The client waits until replicas acknowledge grants.
    pub(crate) waits: bool,
    /// The client waits until grants are on disk. `Some(true)` includes the master's own disk.
    pub(crate) on_disk: Option<bool>,
    /// A quorum of this client issues fencing tokens. It is shared because it is known only once such a
    /// lock is made.
    pub(crate) fenced: Arc<AtomicBool>,
    /// The kinds of the objects that were made from this client, if they need more than a plain lock. Shared for
    /// the same reason.
    pub(crate) kinds: Arc<Mutex<Vec<&'static Kind>>>,
}

impl ClientProfile {
    /// The kinds of the objects that were made from this client, if they need more than a plain lock.
    pub(super) fn kinds(&self) -> Vec<&'static Kind> {
        self.kinds.lock().clone()
    }

    /// Records that an object of this kind was made from this client.
    pub(crate) fn expect(&self, kind: &'static Kind) {
        if kind.commands.is_empty() {
            return;
        }
        let mut kinds = self.kinds.lock();
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }

    /// Marks the findings that the user expects.
    pub(super) fn mark(&self, mut findings: Vec<Finding>) -> Vec<Finding> {
        for finding in &mut findings {
            finding.is_expected = self.expected_findings.contains(&finding.kind);
        }
        findings
    }

    pub(super) fn is_fenced(&self) -> bool {
        self.fenced.load(Ordering::Relaxed)
    }

    /// Records that a quorum with fencing tokens was made from this client.
    pub(crate) fn expect_fencing(&self) {
        self.fenced.store(true, Ordering::Relaxed);
    }
}

/// The parameters of one inspection.
pub(super) struct Inspection<'a> {
    pub(super) connection: &'a Connection,
    /// Host and port, a unix socket's path, a master's name, or "pool".
    pub(super) place: &'a str,
    pub(super) expected: &'a ClientProfile,
    /// The client is configured for a cluster.
    pub(super) is_cluster: bool,
    /// Messages stay within one shard of the cluster.
    pub(super) is_sharded: bool,
    pub(super) limit: Duration,
}

impl<'a> Inspection<'a> {
    pub(super) fn new(
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
}
