//! Whether the server at an address is still the same one.
//!
//! A server that came back may have lost its data. Its `run_id` changes with each start. Its
//! `master_replid` changes when it takes over another server's data or is promoted. A FLUSHALL
//! changes neither; only the server's own epoch detects it (`lua/red_lock/acquire.lua`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use redis::Value;

use super::data_loss::DataLoss;
use super::failure::Failure;
use super::wire::field;
use crate::clock::{Clock, Moment};
use crate::observe::{ClientEvent, Observers};

/// One client's knowledge of the id of its server's run.
pub(super) struct RunId {
    clock: Clock,
    /// The server's address, for logs.
    address: String,
    pub(super) observers: Observers,
    /// `None` until the server reported it once.
    known: Mutex<Option<String>>,
    /// When the latest change was noticed, as a [`Moment`]; [`Moment::NEVER`] if there was none.
    reborn: AtomicU64,
    /// The same by the server's clock, in milliseconds; 0 if there was none.
    reborn_since: AtomicU64,
    /// Number of answers that show that the server may have been replaced or restarted.
    doubts: AtomicU64,
    /// The number of these doubts that are resolved.
    cleared: AtomicU64,
    /// Number of servers that answered at this address.
    met: AtomicU64,
    /// The value of `met` at the last check of the server's configuration.
    checked: AtomicU64,
    /// Whether the log already says that the server does not report its id.
    has_logged: AtomicBool,
}

impl RunId {
    pub(super) fn new(clock: Clock, address: String) -> Self {
        Self {
            clock,
            address,
            observers: Observers::default(),
            known: Mutex::default(),
            reborn: AtomicU64::new(Moment::NEVER.0),
            reborn_since: AtomicU64::new(0),
            doubts: AtomicU64::new(0),
            cleared: AtomicU64::new(0),
            met: AtomicU64::new(0),
            checked: AtomicU64::new(0),
            has_logged: AtomicBool::new(false),
        }
    }

    /// The server's address, for logs and errors.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// When the latest change was noticed. The first identity is no change.
    pub(super) fn reborn(&self) -> Option<Moment> {
        let reborn = Moment(self.reborn.load(Ordering::Acquire));
        (reborn != Moment::NEVER).then_some(reborn)
    }

    /// Since when its data may be incomplete.
    pub(super) fn loss(&self) -> DataLoss {
        // Written in the opposite order, so that a change that is seen here has its server time.
        let seen = self.reborn();
        let since = self.reborn_since.load(Ordering::Acquire);
        DataLoss { seen, since }
    }

    /// The server took over from another one. The next check detects a new identity, before any
    /// answer of it counts.
    pub(super) fn succeed(&self) {
        self.known.lock().get_or_insert_default().clear();
        self.doubt();
    }

    /// The caller marks this identity and its data as complete.
    pub(super) fn trust(&self, who: String) {
        let mut known = self.known.lock();
        *known = Some(who);
        self.reborn.store(Moment::NEVER.0, Ordering::Release);
        self.reborn_since.store(0, Ordering::Release);
    }

    /// An answer came after which the server's identity may have changed.
    pub(super) fn doubt(&self) {
        self.doubts.fetch_add(1, Ordering::AcqRel);
    }

    /// The number of doubts, if some are unresolved. No answer counts before they are resolved.
    pub(super) fn doubts(&self) -> Option<u64> {
        let doubts = self.doubts.load(Ordering::Acquire);
        (doubts != self.cleared.load(Ordering::Acquire)).then_some(doubts)
    }

    /// Resolves the doubts that existed before the identity was read.
    pub(super) fn clear(&self, doubts: u64) {
        self.cleared.fetch_max(doubts, Ordering::AcqRel);
    }

    /// Processes the server's sections `server` and `replication`.
    pub(super) fn see(&self, server: &Value, replication: &Value) {
        let parts = [field(server, "run_id"), field(replication, "master_replid")];
        if parts == [None, None] {
            return self.log_missing(&Failure::Broken("INFO contains no server id".into()));
        }
        let who = parts.map(Option::unwrap_or_default).join(":");
        let mut known = self.known.lock();
        let is_another = match &*known {
            Some(known) if *known == who => return,
            Some(_) => {
                let now = self.clock.now();
                let time = field(server, "server_time_usec").and_then(|time| time.parse().ok());
                // Rounded up, so that a write in the same millisecond counts as older than the change.
                let since = time.map_or(FOR_EVER, |time: u64| time / 1000 + 1);
                self.reborn_since.store(since, Ordering::Release);
                self.reborn.store(now.0, Ordering::Release);
                true
            }
            None => false,
        };
        *known = Some(who);
        self.met.fetch_add(1, Ordering::AcqRel);
        // The user's log subscriber may block, and the client's own thread needs this lock to
        // reconnect.
        drop(known);
        if is_another {
            let server = self.address();
            self.observers
                .notify(|| ClientEvent::ServerReborn { server });
            tracing::warn!(
                target: "lockdog::server",
                server = self.address,
                "server identity changed (restart or failover): locks may be lost"
            );
        }
    }

    /// The server has reported its identity, so a change of it is noticed.
    pub(super) fn is_known(&self) -> bool {
        let known = self.known.lock();
        known.as_ref().is_some_and(|who| !who.is_empty())
    }

    /// If a server answered whose configuration was not checked: the number of servers so far.
    pub(super) fn unchecked(&self) -> Option<u64> {
        let met = self.met.load(Ordering::Acquire);
        (met != self.checked.load(Ordering::Acquire)).then_some(met)
    }

    /// The configuration of this server and all earlier ones is checked.
    pub(super) fn checked(&self, met: u64) {
        self.checked.store(met, Ordering::Release);
    }

    /// Logs once that the server does not report its identity.
    pub(super) fn log_missing(&self, failure: &Failure) {
        if !self.has_logged.swap(true, Ordering::Relaxed) {
            self.met.fetch_add(1, Ordering::AcqRel);
            tracing::debug!(
                target: "lockdog::server",
                %failure, "the server does not report its identity"
            );
        }
    }
}

/// Later than any server's clock in milliseconds, and exact in a script.
const FOR_EVER: u64 = 1 << 52;
