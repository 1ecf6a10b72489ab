//! The state that the tasks of a server share.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::database::Database;

/// The state that the tasks of a server share.
pub(crate) struct ServerState {
    pub(crate) database: Mutex<Database>,
    pub(crate) ending: CancellationToken,
    frozen: watch::Sender<bool>,
    /// The runtime that the server was created on.
    runtime: Handle,
    pipes: AtomicU64,
}

impl ServerState {
    pub(crate) fn new(runtime: Handle) -> Self {
        Self {
            database: Mutex::new(Database::new()),
            ending: CancellationToken::new(),
            frozen: watch::Sender::new(false),
            runtime,
            pipes: AtomicU64::new(0),
        }
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Whether the runtime that the server was created on can run no task any more.
    pub(crate) fn has_runtime_ended(&self) -> bool {
        // A runtime that has ended drops a task immediately.
        let probe = self.runtime.spawn(std::future::pending::<()>());
        let has_ended = probe.is_finished();
        probe.abort();
        has_ended
    }

    /// A number that no other pipe of this server has.
    pub(crate) fn next_pipe(&self) -> u64 {
        self.pipes.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn is_frozen(&self) -> bool {
        *self.frozen.borrow()
    }

    /// Waits until the server is not frozen.
    pub(crate) async fn until_thawed(&self) {
        if self.is_frozen() {
            // `self` keeps the sender alive.
            let _ = self.frozen.subscribe().wait_for(|frozen| !frozen).await;
        }
    }

    pub(crate) fn set_frozen(&self, frozen: bool) {
        // A command that is running on another thread ends first.
        let _between_commands = self.database.lock();
        self.frozen.send_replace(frozen);
    }

    /// The client disconnected, or receives nothing after what is already written.
    pub(crate) fn forget(&self, id: u64) {
        self.database.lock().clients.remove(&id);
    }
}

/// As when several tests, each with a runtime of its own, share a server.
pub(crate) const ENDED: &str = "the runtime on which the test server was created has ended";
