//! The wait for a latch: the client's thread queries the count, once for all waiters of the client, and
//! notifies them.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Core;
use crate::clock::Moment;
use crate::error::Error;
use crate::key::{ByKey, LockKey};
use crate::owner::Owner;
use crate::script::latch;
use crate::server::Sent;
use crate::wait::Listener;

/// The latches for which this client waits.
#[derive(Default)]
pub(crate) struct Gates {
    by_key: Mutex<ByKey<Weak<Gate>>>,
}

/// What the waiters of one latch share. The queries for them end when the last waiter drops it.
pub(crate) struct Gate {
    state: watch::Sender<GateState>,
    /// When its first waiter came.
    since: Moment,
    listener: Arc<Listener>,
    _stops_queries: DropGuard,
}

/// The result of the last query.
#[derive(Clone, Debug)]
pub(crate) enum GateState {
    Unknown,
    Closed {
        /// When the query that found it began.
        began: Moment,
    },
    /// The count was zero, by a query or by a message. This is final.
    Open {
        /// The count was zero at this moment or later. For a waiter that came after this moment, the
        /// zero may have been before its own wait.
        before: Moment,
    },
    Failed(Error),
}

/// How the wait at one gate ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Opened {
    ForAll,
    /// The count may have been zero only before this waiter came: the waiter has to wait at a new gate.
    ForOthers,
}

impl Gate {
    /// Waits until the gate opens, for a waiter that came at this moment. A patient caller has a deadline, so
    /// failed queries do not end its wait.
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub(crate) async fn opened(&self, came: Moment, is_patient: bool) -> Result<Opened, Error> {
        let mut state = self.state.subscribe();
        // The query before this call may have failed. Only a query after it decides this call.
        let mut is_first = true;
        loop {
            match &*state.borrow_and_update() {
                GateState::Open { before } if came <= *before => return Ok(Opened::ForAll),
                GateState::Open { .. } => return Ok(Opened::ForOthers),
                GateState::Failed(Error::Closed) => return Err(Error::Closed),
                GateState::Failed(error) if !is_patient && !is_first => return Err(error.clone()),
                _ => {}
            }
            is_first = false;
            if state.changed().await.is_err() {
                return Err(Error::Closed);
            }
        }
    }

    /// Whether its first waiter came before this moment.
    pub(crate) fn is_older_than(&self, came: Moment) -> bool {
        self.since < came
    }

    /// Makes the thread send a query now, or another one if a query is in flight.
    pub(crate) fn query_now(&self) {
        self.listener.wake();
    }

    /// The result of the last query.
    pub(crate) fn state(&self) -> GateState {
        self.state.borrow().clone()
    }

    fn set(&self, new: GateState) {
        self.state.send_if_modified(|state| {
            let is_new = !matches!(state, GateState::Open { .. });
            if is_new {
                *state = new;
            }
            is_new
        });
    }
}

/// The next gate of this latch has a subscription of its own, so it gets no earlier message.
impl Drop for Gate {
    fn drop(&mut self) {
        self.listener.leave();
    }
}

impl Core {
    /// The gate of a latch, and when the caller came to it. For the first waiter of the client, the thread
    /// begins to send queries.
    pub(crate) fn gate(self: &Arc<Self>, key: &Arc<LockKey>) -> Result<(Arc<Gate>, Moment), Error> {
        let came = self.clock.now();
        let mut gates = self.gates.by_key.lock();
        let found = gates.get(key).and_then(Weak::upgrade);
        // The queries of a gate end when it opens or the client is shut down. A new waiter then needs
        // another gate.
        let is_usable = |gate: &Arc<Gate>| {
            !matches!(
                *gate.state.borrow(),
                GateState::Open { .. } | GateState::Failed(Error::Closed)
            )
        };
        if let Some(gate) = found.filter(is_usable) {
            return Ok((gate, came));
        }
        let listener = Arc::new(self.waiters.add_listener(key, Owner::new())?);
        let stop = CancellationToken::new();
        let gate = Arc::new(Gate {
            state: watch::Sender::new(GateState::Unknown),
            since: came,
            listener: listener.clone(),
            _stops_queries: stop.clone().drop_guard(),
        });
        let queries = GateQueries {
            core: self.clone(),
            key: key.clone(),
            gate: Arc::downgrade(&gate),
        };
        gates.insert(key.clone(), queries.gate.clone());
        drop(gates);
        let task = async move {
            stop.run_until_cancelled(queries.until_open(&listener))
                .await;
        };
        if self.mailbox.run(Box::pin(task)).is_err() {
            return Err(Error::Closed);
        }
        Ok((gate, came))
    }
}

/// The queries for one gate. Their drop ends the waits at it that are left: at a shutdown, or after a panic in a
/// query. After a panic the waiters go on to another gate.
struct GateQueries {
    core: Arc<Core>,
    key: Arc<LockKey>,
    gate: Weak<Gate>,
}

impl GateQueries {
    /// Queries the count at the beginning, after each message, and once in each poll cap.
    async fn until_open(&self, listener: &Listener) {
        let last = self.until_last(listener).await;
        // The waiters are notified after this, so a waiter that waits again gets a new subscription, as
        // after the gate's drop.
        listener.leave();
        self.notify_waiters(last);
    }

    /// Returns the result of the last query.
    async fn until_last(&self, listener: &Listener) -> GateState {
        let core = &self.core;
        let listens = core.backoff(&self.key).is_none();
        let mut has_subscribed = false;
        loop {
            let now = core.clock.now();
            let state = match core.ensure_open() {
                Ok(()) => self.query(listener, now).await,
                Err(closed) => GateState::Failed(closed),
            };
            let is_over = matches!(
                state,
                GateState::Open { .. } | GateState::Failed(Error::Closed)
            );
            if is_over {
                return state;
            }
            self.notify_waiters(state);
            let until = now + core.clock.jitter_down(core.settings.poll_cap);
            let waited = tokio::select! {
                biased;
                // The count may become zero before the subscription begins, so a query follows it.
                () = listener.subscribed(&core.server), if listens && !has_subscribed => {
                    has_subscribed = true;
                    Ok(())
                }
                // A slow connection for messages delays no query.
                waited = listener.wait(until) => waited,
            };
            if let Err(error) = waited {
                return GateState::Failed(error);
            }
        }
    }

    async fn query(&self, listener: &Listener, now: Moment) -> GateState {
        let core = &self.core;
        let mut is_repeated = false;
        let counted = loop {
            let time = core.server.time_box(core.clock.now());
            let mut sent = Sent::default();
            let counted = latch::count(&core.server, &self.key, time, &mut sent).await;
            core.server.abandon_unanswered(&counted, &sent);
            // An old master may not have a latch that the new one has, and a latch without a count is open.
            let is_final = counted.is_err() || is_repeated || !core.server.abandon_outdated(&sent);
            // After the message of the zero, the count decides nothing, and a new connection may take long.
            if is_final || listener.zero_received().is_some() {
                break counted;
            }
            is_repeated = true;
        };
        let found = matches!(counted, Ok(..=0)).then_some(now);
        // After the message of the zero, the count may have been set again. The waiters are released all
        // the same. The later moment counts, because a waiter may have come after the begin of this query.
        if let Some(before) = found.max(self.zero_by_message(listener)) {
            return GateState::Open { before };
        }
        match counted {
            Ok(_) => GateState::Closed { began: now },
            Err(failure) => GateState::Failed(failure.into()),
        }
    }

    /// A moment at or before the zero that a message reported. The subscription began after the first waiter
    /// came, so the message did too. A waiter that came later may have come while the message was in flight:
    /// the client assumes that this takes at most a poll cap.
    fn zero_by_message(&self, listener: &Listener) -> Option<Moment> {
        let received = listener.zero_received()?;
        // Without the gate there is no waiter, so the moment does not matter.
        let since = self.gate.upgrade().map_or(received, |gate| gate.since);
        let before = since.max(received.minus(self.core.settings.poll_cap));
        Some(before)
    }

    fn notify_waiters(&self, state: GateState) {
        if let Some(gate) = self.gate.upgrade() {
            gate.set(state);
        }
    }
}

impl Drop for GateQueries {
    fn drop(&mut self) {
        let mut gates = self.core.gates.by_key.lock();
        // A new gate may have replaced it.
        if gates.get(&self.key).is_some_and(|it| it.ptr_eq(&self.gate)) {
            gates.remove(&self.key);
        }
        drop(gates);
        self.notify_waiters(GateState::Failed(Error::Closed));
    }
}
