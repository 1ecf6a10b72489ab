//! Waiting until a master's replicas have what it granted.
//!
//! `WAIT` keeps everybody behind it on its connection waiting, so it has one of its own. There it
//! covers what that connection wrote: a write that changes nothing goes before it, and comes behind
//! everything that the master executed for others until then. So one `WAIT` serves all whose locks
//! were granted before it left, and no caller's command stands behind it.

mod deployment;
mod replicas;
mod replication_state;
mod round;
mod setting;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use self::replication_state::{AwaitedReplicas, ReplicationState};
use self::round::{AckCount, AckGoal, AckResult, AckRounds, Touch};
use super::Context;
use super::connection::Connection;
use super::connection_slot::ConnectionSlot;
use super::failure::Failure;
use super::node::Node;
use crate::clock::{Clock, Moment};

pub(super) use replicas::Followers;
pub use setting::{ReplicaAck, Replicas};

/// Asks one server for its replicas' acknowledgements.
pub(super) struct Acker {
    /// Driven by the background, because callers of all runtimes share the rounds.
    slot: ConnectionSlot,
    context: Context,
    rounds: AckRounds,
    known: Mutex<ReplicationState>,
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
    touch: Arc<Touch>,
    /// Where it was written.
    on: &'a Connection,
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

impl Node {
    /// Waits until the replicas have what was written, as `ack` says, up to `until`. Answers whether
    /// all that follow have it; where there have been none for long, too.
    ///
    /// # Cancel safety
    ///
    /// Cancelling it leaves a command that changes nothing.
    pub(super) async fn acknowledge(
        &self,
        ack: ReplicaAck,
        written: PendingWrite<'_>,
        clock: &Clock,
        until: Moment,
    ) -> Result<bool, Unacknowledged> {
        let began = clock.now();
        let left = until.since(began);
        let mut expected = AwaitedReplicas::default();
        let (replicas, disk, timeout) = match ack {
            ReplicaAck::Off => return Ok(true),
            ReplicaAck::BestEffort { timeout } => {
                expected = self.expected(&written, began, timeout.min(left)).await;
                (Replicas::Count(expected.count), None, timeout)
            }
            ReplicaAck::Require { replicas, timeout } => (replicas, None, timeout),
            ReplicaAck::RequireAof {
                local,
                replicas,
                timeout,
            } => (replicas, Some(local), timeout),
        };
        if replicas == Replicas::Count(0) && disk != Some(true) {
            return Ok(!expected.others);
        }
        let goal = AckGoal {
            replicas,
            disk,
            timeout,
            followers: ack.is_required() && self.endpoint().is_switched(),
        };
        let limit = timeout.min(until.since(clock.now()));
        let asked = tokio::time::timeout(limit, self.ask(&written, goal, limit)).await;
        let outcome = asked.unwrap_or_else(|_| {
            if self.acker().rounds.is_silent(clock.now(), timeout + SLACK) {
                self.acker().disconnect();
            }
            Err(Failure::silent(limit))
        });
        if let Err(failure) = &outcome
            && is_unknown_command(failure)
        {
            self.note_unknown(written.on, failure);
        }
        if ack.is_required() {
            let followers = outcome.as_ref().ok().and_then(|count| count.followers);
            judge(outcome, replicas)?;
            return Ok(!goal.followers || self.has_all(followers, clock.now()));
        }
        // A caller with less time than that does not know whether they are slow.
        if limit >= timeout || !matches!(outcome, Err(Failure::Silent { .. })) {
            self.learn(&outcome, replicas, clock.now());
        }
        // The round may have been begun by somebody who expected fewer.
        let is_enough = outcome.is_ok_and(|count| count.acknowledged >= expected.count);
        Ok(is_enough && !expected.others)
    }

    /// As many replicas follow as ever did, by what the master said right after they acknowledged.
    fn has_all(&self, followers: Option<Followers>, now: Moment) -> bool {
        let Some(followers) = followers else {
            return false;
        };
        let identity = self.endpoint().identity();
        identity.count(followers);
        !identity.lost_replicas(now)
    }

    async fn ask(&self, written: &PendingWrite<'_>, goal: AckGoal, limit: Duration) -> AckResult {
        let acker = self.acker();
        let mut is_first = true;
        loop {
            let connection = self.ack_connection(written.on, limit).await?;
            let (touch, context) = (&written.touch, &acker.context);
            let round = acker.rounds.join(&connection, touch, goal, context);
            let outcome = round.await;
            if outcome.as_ref().is_err_and(Failure::is_ambiguous) {
                acker.slot.remove(&connection);
                // It may have been closed for having been idle.
                if std::mem::replace(&mut is_first, false) {
                    continue;
                }
            }
            if !written.on.is_current() || !connection.is_current() {
                return Err(Failure::Unsent(SWITCHED.into()));
            }
            return outcome;
        }
    }

    /// A connection of its own to the server where that was written.
    async fn ack_connection(
        &self,
        on: &Connection,
        limit: Duration,
    ) -> Result<Connection, Failure> {
        let acker = self.acker();
        if !on.is_current() {
            return Err(Failure::Unsent(SWITCHED.into()));
        }
        for _ in 0..2 {
            let endpoint = self.endpoint().clone();
            let Context {
                background,
                command_timeout: patience,
                ..
            } = &acker.context;
            let patience = *patience;
            let open = || async move { endpoint.open_own_in_time(patience).await };
            // Boxed: it is rare, and part of every acquire otherwise.
            let opened = Box::pin(acker.slot.get(background.runtime(), limit, open));
            let connection = opened.await?;
            if connection.leads_where(on) {
                return Ok(connection);
            }
            acker.slot.remove(&connection);
        }
        // Nobody's lock is written there from now on.
        self.abandon(on);
        Err(Failure::Unsent(SWITCHED.into()))
    }
}

fn judge(outcome: AckResult, replicas: Replicas) -> Result<(), Unacknowledged> {
    match outcome {
        Ok(count) if count.is_enough() => Ok(()),
        Ok(AckCount {
            acknowledged,
            required,
            is_off_disk,
            ..
        }) => Err(Unacknowledged::TooFew {
            acknowledged,
            required,
            cause: is_off_disk.then(|| "the master has it not on disk".to_owned()),
        }),
        Err(failure @ Failure::Refused { .. }) if !failure.passes() => {
            Err(Unacknowledged::Refused(failure))
        }
        Err(failure) => Err(Unacknowledged::TooFew {
            acknowledged: 0,
            required: replicas.of(0),
            cause: Some(failure.words()),
        }),
    }
}

/// A proxy in between, or a server before 7.2 that is asked for its disk.
fn is_unknown_command(failure: &Failure) -> bool {
    let Failure::Refused { code, message } = failure else {
        return false;
    };
    let message = message.to_lowercase();
    let says = |words| message.contains(words);
    code == "ERR" && (says("unknown") || says("unsupported") || says("not supported"))
}

const UNCONFIRMED: &str =
    "fewer replicas follow than before, and no other server confirms who the master is";
const SWITCHED: &str = "another server has become the master";
/// Servers look at the end of a `WAIT` ten times a second.
const SLACK: Duration = Duration::from_millis(500);
