//! Waiting until a master's replicas have what it granted.
//!
//! `WAIT` keeps everybody behind it on its connection waiting, so it has one of its own. There it
//! covers what that connection wrote: a write that changes nothing goes before it, and comes behind
//! everything that the master executed for others until then. So one `WAIT` serves all whose locks
//! were granted before it left, and no caller's command stands behind it.

mod replication_state;
mod round;
mod setting;

use std::sync::Arc;

use parking_lot::Mutex;

use self::replication_state::ReplicationState;
use self::round::{AckRounds, Touch};
use super::connection::Connection;
use super::connection_slot::ConnectionSlot;
use super::context::Context;
use super::failure::Failure;

pub(super) use self::replication_state::{AwaitedReplicas, Behind};
pub(super) use self::round::{AckCount, AckGoal, AckResult};
pub use setting::{ReplicaAck, Replicas};

/// Asks one server for its replicas' acknowledgements.
pub(super) struct Acker {
    /// Driven by the background, because callers of all runtimes share the rounds.
    pub(super) slot: ConnectionSlot,
    pub(super) context: Context,
    pub(super) rounds: AckRounds,
    pub(super) known: Mutex<ReplicationState>,
}

/// Why a lock does not count as acknowledged.
#[derive(Debug)]
pub(crate) enum Unacknowledged {
    /// The server does not do it, now or later.
    Refused(Failure),
    TooFew {
        acknowledged: u32,
        required: u32,
        /// What else is to be said of it.
        cause: Option<String>,
    },
}

impl Unacknowledged {
    /// Replicas have it, and others are gone: one of these may be the master now.
    pub(super) fn unconfirmed() -> Self {
        Self::TooFew {
            acknowledged: 0,
            required: 1,
            cause: Some(UNCONFIRMED.to_owned()),
        }
    }

    /// The server is no part of the deployment any more.
    pub(super) fn left() -> Self {
        Self::TooFew {
            acknowledged: 0,
            required: 1,
            cause: Some(SWITCHED.to_owned()),
        }
    }
}

/// What is written and has to be acknowledged.
pub(crate) struct PendingWrite<'a> {
    pub(super) touch: Arc<Touch>,
    /// Where it was written.
    pub(super) on: &'a Connection,
}

impl<'a> PendingWrite<'a> {
    /// On this connection; `touch` writes and changes nothing, and answers 1 if it did write.
    pub(crate) fn new(touch: redis::Cmd, on: &'a Connection) -> Self {
        let asking = on.is_asking();
        let touch = Arc::new(Touch {
            command: touch,
            asking,
        });
        Self { touch, on }
    }
}

impl Acker {
    pub(super) fn new(context: &Context) -> Self {
        Self {
            slot: ConnectionSlot::new(&context.clock),
            context: context.clone(),
            rounds: AckRounds::default(),
            known: Mutex::default(),
        }
    }

    /// A connection may be opened at once: see [`SingleFlight::retry_now`](super::single_flight::SingleFlight::retry_now).
    pub(super) fn retry_now(&self) {
        self.slot.retry_now();
    }

    #[cfg(test)]
    pub(super) fn is_delayed(&self) -> bool {
        self.slot.is_delayed()
    }

    /// Closes the connection once nobody waits for an answer on it.
    pub(super) fn disconnect(&self) {
        self.slot.clear();
        self.rounds.clear();
    }

    /// Why it is known that this server acknowledges nothing.
    pub(super) fn refusal(&self, of: &Connection) -> Option<Failure> {
        let known = self.known.lock();
        let (on, failure) = known.unknown.as_ref()?;
        on.leads_where(of).then(|| failure.clone())
    }
}

/// A proxy in between, or a server before 7.2 that is asked for its disk.
pub(super) fn is_unknown_command(failure: &Failure) -> bool {
    let Failure::Refused { code, message } = failure else {
        return false;
    };
    let message = message.to_lowercase();
    let says = |words| message.contains(words);
    code == "ERR" && (says("unknown") || says("unsupported") || says("not supported"))
}

const UNCONFIRMED: &str =
    "fewer replicas follow than before, and no other server confirms who the master is";
pub(super) const SWITCHED: &str = "another server has become the master";
