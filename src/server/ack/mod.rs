//! Waits until a master's replicas have its grants.
//!
//! `WAIT` blocks all later commands on its connection, so the client sends it on a connection of its own.
//! `WAIT` covers only the writes of its own connection. So the client first sends a write that changes
//! nothing on that connection. The master executes that write after all grants that it has answered. So one
//! `WAIT` serves all locks that were granted before it was sent, and it blocks no caller's command.

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
use super::single_flight::Attempt;

pub(super) use self::replication_state::{AwaitedReplicas, Behind};
pub(super) use self::round::{AckCount, AckGoal, AckResult};
pub use setting::{ReplicaAck, Replicas};

/// Asks one server for its replicas' acknowledgements.
pub(super) struct Acker {
    /// The background drives the connection, because callers on all runtimes share the rounds.
    pub(super) slot: ConnectionSlot,
    pub(super) context: Context,
    pub(super) rounds: AckRounds,
    pub(super) known: Mutex<ReplicationState>,
}

/// The reason why a lock does not count as acknowledged.
#[derive(Debug)]
pub(crate) enum Unacknowledged {
    /// The server refuses it, now and later.
    Refused(Failure),
    TooFew {
        acknowledged: u32,
        required: u32,
        /// Additional information for the error.
        cause: Option<String>,
    },
}

impl Unacknowledged {
    /// Enough replicas have it, but others are missing. One of these may be the master now.
    pub(super) fn unconfirmed() -> Self {
        Self::TooFew {
            acknowledged: 0,
            required: 1,
            cause: Some(UNCONFIRMED.to_owned()),
        }
    }

    /// The server has left the deployment.
    pub(super) fn left() -> Self {
        Self::TooFew {
            acknowledged: 0,
            required: 1,
            cause: Some(SWITCHED.to_owned()),
        }
    }
}

/// A write that has to be acknowledged.
pub(crate) struct PendingWrite<'a> {
    pub(super) touch: Arc<Touch>,
    /// The connection on which it was written.
    pub(super) on: &'a Connection,
}

impl<'a> PendingWrite<'a> {
    /// `on` is the connection of the write. `touch` is a write command that changes nothing. It
    /// answers 1 if it wrote.
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

    /// The attempt to connect.
    pub(super) fn attempt(&self) -> &dyn Attempt {
        self.slot.attempt()
    }

    /// Closes the connection once no call waits for an answer on it.
    pub(super) fn disconnect(&self) {
        self.slot.clear();
        self.rounds.clear();
    }

    /// The reason why this server never acknowledges, if that is known.
    pub(super) fn refusal(&self, of: &Connection) -> Option<Failure> {
        let known = self.known.lock();
        let (server, failure) = known.unknown.as_ref()?;
        (*server == of.server_run()).then(|| failure.clone())
    }
}

/// Whether the server does not know the command: a proxy, or for `WAITAOF` a server before 7.2.
pub(super) fn is_unknown_command(failure: &Failure) -> bool {
    let Failure::Refused { code, message } = failure else {
        return false;
    };
    let message = message.to_lowercase();
    let says = |words| message.contains(words);
    code == "ERR" && (says("unknown") || says("unsupported") || says("not supported"))
}

const UNCONFIRMED: &str =
    "fewer replicas follow than before, and no sentinel or other node confirms the master";
pub(super) const SWITCHED: &str = "another server has become the master";
