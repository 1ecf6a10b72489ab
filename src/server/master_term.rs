//! Which master an elected server is: each change of the master begins a term.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

/// The number of changes of the master. Connections and answers of an earlier term do not count.
pub(super) struct MasterTerm {
    term: AtomicU64,
    /// It is updated after the term has ended, so it may lag behind.
    terms: watch::Sender<u64>,
    /// Whether the master can change, because sentinels or other nodes name it.
    is_elected: bool,
}

impl MasterTerm {
    pub(super) fn new(is_elected: bool) -> Self {
        Self {
            term: AtomicU64::new(0),
            terms: watch::Sender::new(0),
            is_elected,
        }
    }

    /// The current master's term. Each connection belongs to one term.
    pub(super) fn current(&self) -> u64 {
        self.term.load(Ordering::Acquire)
    }

    /// Another server is the master from now on. [`MasterTerm::notify`] wakes the waiters for that.
    pub(super) fn end(&self) {
        self.term.fetch_add(1, Ordering::AcqRel);
    }

    /// Wakes the waiters for the end of a term. Wakers are callers' code, so no lock may be held
    /// here.
    pub(super) fn notify(&self) {
        self.terms
            .send_modify(|term| *term = self.current().max(*term));
    }

    /// Waits until `term` is over.
    pub(super) async fn until_over(&self, term: u64) {
        if !self.is_elected {
            return std::future::pending().await;
        }
        // The sender lives in `self`.
        let _ = self.terms.subscribe().wait_for(|now| *now > term).await;
    }

    pub(super) fn is_elected(&self) -> bool {
        self.is_elected
    }

    /// Notifies of each new term.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.terms.subscribe()
    }
}
