//! The wait for a latch: the client's thread looks, once for all waiters of the client, and tells them.

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

/// What the waiters of one latch share. The look for them ends with the last of them.
pub(crate) struct Gate {
    state: watch::Sender<GateState>,
    /// When its first waiter came.
    since: Moment,
    listener: Arc<Listener>,
    _stops_looking: DropGuard,
}

/// What the last look came to.
#[derive(Clone, Debug)]
pub(crate) enum GateState {
    Unknown,
    Closed {
        /// When the look that found it began.
        began: Moment,
    },
    /// The count was zero, or a message said so. This is final.
    Open {
        /// A waiter that came later does not know whether the zero was before its own wait.
        before: Moment,
    },
    Failed(Error),
}

/// How the wait at one gate ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Opened {
    ForAll,
    /// By what may have been before this waiter came: it has to look again.
    ForOthers,
}

impl Gate {
    /// Waits until the gate opens, for a waiter that came at this moment. A patient caller waits through
    /// failures: it has a deadline.
    ///
    /// # Cancel safety
    ///
    /// Cancelling it changes nothing.
    pub(crate) async fn opened(&self, came: Moment, is_patient: bool) -> Result<Opened, Error> {
        let mut state = self.state.subscribe();
        // A failure that came before this call is not this call's.
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

    /// Whether it was there before a waiter that came at this moment.
    pub(crate) fn is_older_than(&self, came: Moment) -> bool {
        self.since < came
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
    /// The gate of a latch, and when the caller came to it. The first waiter of the client begins to look.
    pub(crate) fn gate(self: &Arc<Self>, key: &Arc<LockKey>) -> Result<(Arc<Gate>, Moment), Error> {
        let came = self.clock.now();
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
            return Ok((gate, came));
        }
        let listener = Arc::new(self.waiters.add_listener(key, Owner::new())?);
        let stop = CancellationToken::new();
        let gate = Arc::new(Gate {
            state: watch::Sender::new(GateState::Unknown),
            since: came,
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
        Ok((gate, came))
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
        loop {
            let now = core.clock.now();
            let state = match core.ensure_open() {
                Ok(()) => self.look(listener, now).await,
                Err(closed) => GateState::Failed(closed),
            };
            let is_over = matches!(
                state,
                GateState::Open { .. } | GateState::Failed(Error::Closed)
            );
            if is_over {
                return state;
            }
            self.tell(state);
            let until = now + core.clock.sooner(core.settings.poll_cap);
            let waited = tokio::select! {
                biased;
                // The zero may come before the subscription, so there is one more look behind it.
                () = listener.subscribed(&core.server), if listens && !has_subscribed => {
                    has_subscribed = true;
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

    async fn look(&self, listener: &Listener, now: Moment) -> GateState {
        let core = &self.core;
        let time = core.server.allot(core.clock.now());
        let mut sent = Sent::default();
        let counted = latch::count(&core.server, &self.key, time, &mut sent).await;
        core.server.abandon_silent(&counted, &sent);
        let counted = match counted {
            Ok(..=0) => return GateState::Open { before: now },
            Ok(_) => GateState::Closed { began: now },
            Err(failure) => GateState::Failed(failure.into()),
        };
        // A count that was set again since the message does not hold the waiters.
        self.heard(listener).unwrap_or(counted)
    }

    /// Whether a message said that the count is zero. The subscription is younger than the first waiter, so
    /// the message is. It may be older than a waiter that came later, by the time that it was under way: a
    /// poll cap at most is assumed.
    fn heard(&self, listener: &Listener) -> Option<GateState> {
        let heard = listener.heard_zero()?;
        // If it is gone, its last waiter has left.
        let since = self.gate.upgrade().map_or(heard, |gate| gate.since);
        let before = since.max(heard.minus(self.core.settings.poll_cap));
        Some(GateState::Open { before })
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
