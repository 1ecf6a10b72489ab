//! The wait for a latch: the client's thread looks, once for all waiters of the client, and tells them.

use std::sync::atomic::{AtomicU64, Ordering};
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
    /// How many looks have begun.
    looks: AtomicU64,
    listener: Arc<Listener>,
    _stops_looking: DropGuard,
}

/// What the last look came to.
#[derive(Clone, Debug)]
pub(crate) enum GateState {
    Unknown,
    Closed {
        /// The number of the look that found it.
        look: u64,
    },
    /// The count was zero, or a message said so. This is final.
    Open {
        /// The zero counts for the waiters that came before this look began. Later ones do not know whether
        /// it was before their own waits.
        look: u64,
    },
    Failed(Error),
}

/// How the wait at one gate ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Opened {
    ForAll,
    /// The zero may have been before this waiter came: it has to look anew.
    ForOthers,
}

impl Gate {
    /// Waits until the gate opens, for a waiter that came after this many looks. A patient caller waits
    /// through failures: it has a deadline.
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub(crate) async fn opened(&self, came: u64, is_patient: bool) -> Result<Opened, Error> {
        let mut state = self.state.subscribe();
        // A failure that came before this call is not this call's.
        let mut is_first = true;
        loop {
            match &*state.borrow_and_update() {
                GateState::Open { look } if *look > came => return Ok(Opened::ForAll),
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

    /// Makes the thread look now, or once more if it is just looking.
    pub(crate) fn look_now(&self) {
        self.listener.wake();
    }

    /// What the last look came to.
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

/// The next gate of this latch has a subscription of its own, so it hears no message from before.
impl Drop for Gate {
    fn drop(&mut self) {
        self.listener.leave();
    }
}

impl Core {
    /// The gate of a latch, and how many looks have begun before the caller came. The first waiter of the
    /// client begins to look.
    pub(crate) fn gate(self: &Arc<Self>, key: &Arc<LockKey>) -> Result<(Arc<Gate>, u64), Error> {
        let mut gates = self.gates.by_key.lock();
        let found = gates.get(key).and_then(Weak::upgrade);
        // One whose look has ended cannot open any more.
        let lives = |gate: &Arc<Gate>| {
            !matches!(
                *gate.state.borrow(),
                GateState::Open { .. } | GateState::Failed(Error::Closed)
            )
        };
        if let Some(gate) = found.filter(lives) {
            let came = gate.looks.load(Ordering::Acquire);
            return Ok((gate, came));
        }
        let listener = Arc::new(self.waiters.add_listener(key, Owner::new())?);
        let stop = CancellationToken::new();
        let gate = Arc::new(Gate {
            state: watch::Sender::new(GateState::Unknown),
            looks: AtomicU64::new(0),
            listener: listener.clone(),
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
        if self.mailbox.run(Box::pin(looking)).is_err() {
            return Err(Error::Closed);
        }
        Ok((gate, 0))
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
        let last = self.until_last(listener).await;
        // Before a waiter that is let go can wait again, for the same reason as in the gate's drop.
        listener.leave();
        self.tell(last);
    }

    /// Returns what the last look came to.
    async fn until_last(&self, listener: &Listener) -> GateState {
        let core = &self.core;
        let listens = core.backoff(&self.key).is_none();
        let mut has_subscribed = false;
        // A message of a zero counts for the waiters that came before this look began.
        let mut heard_for = 0;
        loop {
            let now = core.clock.now();
            let state = match core.ensure_open() {
                Ok(()) => self.look(listener, heard_for).await,
                Err(closed) => GateState::Failed(closed),
            };
            let is_over = matches!(
                state,
                GateState::Open { .. } | GateState::Failed(Error::Closed)
            );
            if is_over {
                return state;
            }
            // A zero of before would have been heard until now, unless its message takes longer than a look.
            if let GateState::Closed { look } = state {
                heard_for = look;
            }
            self.tell(state);
            let until = now + core.clock.sooner(core.settings.poll_cap);
            let waited = tokio::select! {
                biased;
                // The zero may come before the subscription, so there is one more look behind it.
                () = listener.subscribed(&core.server), if listens && !has_subscribed => {
                    has_subscribed = true;
                    // The first waiters came before the subscription was sent.
                    heard_for = heard_for.max(1);
                    Ok(())
                }
                // The connection for messages may be slow while commands are answered.
                waited = listener.wait(until) => waited,
            };
            if let Err(error) = waited {
                return GateState::Failed(error);
            }
        }
    }

    async fn look(&self, listener: &Listener, heard_for: u64) -> GateState {
        let core = &self.core;
        // A count that was set again since then does not hold the waiters that the message counts for.
        if listener.heard_zero() {
            return GateState::Open { look: heard_for };
        }
        let look = match self.gate.upgrade() {
            Some(gate) => gate.looks.fetch_add(1, Ordering::AcqRel) + 1,
            // Its last waiter has left.
            None => 0,
        };
        let time = core.server.allot(core.clock.now());
        let mut sent = Sent::default();
        let counted = latch::count(&core.server, &self.key, time, &mut sent).await;
        core.server.abandon_silent(&counted, &sent);
        match counted {
            Ok(..=0) => GateState::Open { look },
            _ if listener.heard_zero() => GateState::Open { look: heard_for },
            Ok(_) => GateState::Closed { look },
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
