//! Waits until a master's replicas have its grants.

use std::time::Duration;

use crate::clock::{Clock, Moment};
use crate::server::ack::{
    AckCount, AckGoal, AckResult, AwaitedReplicas, PendingWrite, ReplicaAck, Replicas, SWITCHED,
    Unacknowledged, is_unknown_command,
};
use crate::server::connection::Connection;
use crate::server::context::Context;
use crate::server::failure::Failure;
use crate::server::followers::Followers;
use crate::server::node::Node;

impl Node {
    /// Waits until the replicas have the write, as `ack` requires, at most up to `until`. Returns true
    /// if all replicas that follow have it, or if there have been no replicas for long.
    ///
    /// # Cancel safety
    ///
    /// If dropped, a command that changes nothing may still run.
    pub(in crate::server) async fn acknowledge(
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
                let limit = timeout.min(left);
                expected = self.expected(&written, began, limit, left >= timeout).await;
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
                // The connection does not answer, so the next round needs another one.
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
        // A caller with a shorter limit does not show whether the replicas are slow.
        if limit >= timeout || !matches!(outcome, Err(Failure::Silent { .. })) {
            self.record(&outcome, replicas, clock.now());
        }
        // Another caller that expected fewer replicas may have begun the round.
        let is_enough = outcome.is_ok_and(|count| count.acknowledged >= expected.count);
        Ok(is_enough && !expected.others)
    }

    /// Whether as many replicas follow as ever did, by the master's report right after they
    /// acknowledged.
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
                // The server may have closed the connection because it was idle, so try a new one.
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

    /// The separate connection for `WAIT` to the server of the write.
    pub(super) async fn ack_connection(
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
                command_timeout: timeout,
                ..
            } = &acker.context;
            let timeout = *timeout;
            let open = || async move { endpoint.open_own_in_time(timeout).await };
            // Boxed: it is rare, and would otherwise enlarge the future of every acquire.
            let opened = Box::pin(acker.slot.get(background.runtime(), limit, open));
            let connection = opened.await?;
            if connection.leads_to_same_server(on) {
                return Ok(connection);
            }
            acker.slot.remove(&connection);
        }
        // The server was replaced or restarted, so no further lock may be written on that connection.
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
            cause: is_off_disk.then(|| "the master does not have it on disk".to_owned()),
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

/// Servers check for the end of a `WAIT` ten times a second.
const SLACK: Duration = Duration::from_millis(500);
