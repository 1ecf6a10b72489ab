//! What is looked at, and for which client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::server::{Connection, Server};

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
pub(super) struct Inspection<'a> {
    pub(super) connection: &'a Connection,
    /// Host and port, a unix socket's path, a master's name, or "pool".
    pub(super) place: &'a str,
    pub(super) expected: &'a ClientProfile,
    /// The client knows that it talks to a cluster.
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
