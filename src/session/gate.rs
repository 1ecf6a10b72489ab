//! The wait for a latch: the client's thread looks, once for all waiters of the client, and tells them.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Core;
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

/// What the waiters of one latch share. The look for them ends with the last of them.
pub(crate) struct Gate {
    state: watch::Sender<GateState>,
    _stops_looking: DropGuard,
}

/// What the last look came to.
#[derive(Clone, Debug)]
pub(crate) enum GateState {
    Unknown,
    Closed,
    /// The count was zero, or a message said so. This is final.
    Open,
    Failed(Error),
}

impl Gate {
    /// Waits until the gate opens. A patient caller waits through failures: it has a deadline.
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub(crate) async fn opened(&self, is_patient: bool) -> Result<(), Error> {
        let mut state = self.state.subscribe();
        // A failure that came before this call is not this call's.
        let mut is_first = true;
        loop {
            match &*state.borrow_and_update() {
                GateState::Open => return Ok(()),
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

    /// Why the last look failed, if it did.
    pub(crate) fn failure(&self) -> Option<Error> {
        match &*self.state.borrow() {
            GateState::Failed(error) => Some(error.clone()),
            GateState::Unknown | GateState::Closed | GateState::Open => None,
        }
    }

    fn set(&self, new: GateState) {
        self.state.send_if_modified(|state| {
            let is_new = !matches!(state, GateState::Open);
            if is_new {
                *state = new;
            }
            is_new
        });
    }
}

impl Core {
    /// The gate of a latch. The first waiter of the client begins to look.
    pub(crate) fn gate(self: &Arc<Self>, key: &Arc<LockKey>) -> Result<Arc<Gate>, Error> {
        let mut gates = self.gates.by_key.lock();
        let found = gates.get(key).and_then(Weak::upgrade);
        // One whose look has ended cannot open any more.
        let lives = |gate: &Arc<Gate>| {
            !matches!(
                *gate.state.borrow(),
                GateState::Open | GateState::Failed(Error::Closed)
            )
        };
        if let Some(gate) = found.filter(lives) {
            return Ok(gate);
        }
        let listener = self.waiters.add_listener(key, Owner::new())?;
        let stop = CancellationToken::new();
        let gate = Arc::new(Gate {
            state: watch::Sender::new(GateState::Unknown),
            _stops_looking: stop.clone().drop_guard(),
        });
        let look = Look {
            core: self.clone(),
            key: key.clone(),
            gate: Arc::downgrade(&gate),
        };
        gates.insert(key.clone(), look.gate.clone());
        drop(gates);
        let looking = async move {
            stop.run_until_cancelled(look.until_open(&listener)).await;
        };
        if self.upkeep.run(Box::pin(looking)).is_err() {
            return Err(Error::Closed);
        }
        Ok(gate)
    }
}

/// The look for one gate. Its drop tells the waiters that are left, for example at a shutdown.
struct Look {
    core: Arc<Core>,
    key: Arc<LockKey>,
    gate: Weak<Gate>,
}

impl Look {
    /// Looks once for each message, and each poll cap.
    async fn until_open(&self, listener: &Listener) {
        let core = &self.core;
        let listens = core.backoff(&self.key).is_none();
        let mut has_subscribed = false;
        loop {
            let now = core.clock.now();
            let state = match core.ensure_open() {
                Ok(()) => self.look(listener).await,
                Err(closed) => GateState::Failed(closed),
            };
            let is_over = matches!(state, GateState::Open | GateState::Failed(Error::Closed));
            self.tell(state);
            if is_over {
                return;
            }
            if listens && !has_subscribed {
                // The zero may come before the subscription, so there is one more look behind it.
                listener.subscribed(&core.server).await;
                has_subscribed = true;
                continue;
            }
            let until = now + core.clock.sooner(core.settings.poll_cap);
            if let Err(error) = listener.wait(until).await {
                self.tell(GateState::Failed(error));
                return;
            }
        }
    }

    async fn look(&self, listener: &Listener) -> GateState {
        let core = &self.core;
        // A count that was set anew since then does not hold the waiters.
        if listener.heard_zero() {
            return GateState::Open;
        }
        let time = core.server.allot(core.clock.now());
        let mut sent = Sent::default();
        let counted = latch::count(&core.server, &self.key, time, &mut sent).await;
        core.server.abandon_silent(&counted, &sent);
        match counted {
            Ok(..=0) => GateState::Open,
            _ if listener.heard_zero() => GateState::Open,
            Ok(_) => GateState::Closed,
            Err(failure) => GateState::Failed(failure.into()),
        }
    }

    fn tell(&self, state: GateState) {
        if let Some(gate) = self.gate.upgrade() {
            gate.set(state);
        }
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        let mut gates = self.core.gates.by_key.lock();
        // Another gate may have come in its place.
        if gates.get(&self.key).is_some_and(|it| it.ptr_eq(&self.gate)) {
            gates.remove(&self.key);
        }
        drop(gates);
        self.tell(GateState::Failed(Error::Closed));
    }
}
