//! One `WAIT` for all callers that came before it was sent. Later callers share the next one.
//!
//! A round may begin with a caller whose runtime ends, and continue with another caller's. So it has
//! no timer of its own. A connection from a user's pool has timers; these run on the background. The
//! callers limit how long they wait for a round.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use redis::{Cmd, Value};
use tokio::runtime::Handle;

use super::setting::Replicas;
use crate::clock::Moment;
use crate::server::Context;
use crate::server::connection::Connection;
use crate::server::failure::Failure;
use crate::server::followers::{self, Followers};

/// A write that changes nothing; it answers 1 if it wrote. It is sent with the script's whole text: if
/// the server did not know a digest, nothing would be written and the `WAIT` after it would prove
/// nothing.
pub(in crate::server) struct Touch {
    pub(in crate::server) command: Cmd,
    /// The slot is being moved to this server, so `ASKING` is needed.
    pub(in crate::server) asking: bool,
}

impl Touch {
    async fn send(&self, connection: &Connection, limit: Duration) -> Result<Value, Failure> {
        if self.asking {
            connection.ask_with_asking(&self.command, limit).await
        } else {
            connection.ask(&self.command, limit).await
        }
    }
}

/// What a round waits for.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) struct AckGoal {
    pub(in crate::server) replicas: Replicas,
    /// Wait for disks; `Some(true)` includes the master's own disk.
    pub(in crate::server) disk: Option<bool>,
    pub(in crate::server) timeout: Duration,
    /// Ask afterwards which replicas follow.
    pub(in crate::server) followers: bool,
}

/// The acknowledgements of a round.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) struct AckCount {
    pub(in crate::server) acknowledged: u32,
    pub(in crate::server) required: u32,
    /// The master's own disk was required, but does not have the write.
    pub(in crate::server) is_off_disk: bool,
    /// The replicas that followed right after the `WAIT`, if asked.
    pub(in crate::server) followers: Option<Followers>,
}

impl AckCount {
    pub(in crate::server) fn is_enough(&self) -> bool {
        self.acknowledged >= self.required && !self.is_off_disk
    }
}

pub(in crate::server) type AckResult = Result<AckCount, Failure>;

/// The rounds of one server. One round runs at a time.
#[derive(Default)]
pub(in crate::server) struct AckRounds {
    last: Mutex<Option<AckRound>>,
    /// When the current round was sent, while it has no answer. [`AckRounds::clear`] replaces the
    /// cell, because an earlier round may still write to the old one.
    asked: Mutex<AckQuestion>,
}

type AckQuestion = Arc<Mutex<Option<Moment>>>;

/// A round, shared by its callers.
#[derive(Clone)]
struct AckRound {
    connection: Connection,
    /// One entry for each caller while it waits. `None` once the round was sent: it does not cover
    /// later writes.
    touches: Arc<Mutex<Option<Vec<Weak<Touch>>>>>,
    outcome: Shared<BoxFuture<'static, AckResult>>,
}

impl AckRounds {
    /// The result of the next round on this connection that is not yet sent.
    pub(in crate::server) fn join(
        &self,
        connection: &Connection,
        touch: &Arc<Touch>,
        goal: AckGoal,
        context: &Context,
    ) -> impl Future<Output = AckResult> + use<> {
        let mut last = self.last.lock();
        let before = last.as_ref().filter(|it| it.connection.is(connection));
        // A round that was not sent yet covers this write too.
        if let Some(round) = before
            && let Some(touches) = &mut *round.touches.lock()
        {
            // The list is full: remove callers that have left before it grows.
            if touches.len() == touches.capacity() {
                touches.retain(|touch| touch.strong_count() > 0);
            }
            touches.push(Arc::downgrade(touch));
            return round.outcome.clone();
        }
        // Commands of a sent round do not cover this write, so another round follows it.
        let before = before.map(|round| round.outcome.clone());
        let touches = Arc::new(Mutex::new(Some(vec![Arc::downgrade(touch)])));
        let outcome = {
            let (connection, touches) = (connection.clone(), touches.clone());
            let (asked, clock) = (self.asked.lock().clone(), context.clock.clone());
            async move {
                if let Some(before) = before {
                    // This future drives the previous round if that one has no other waiter.
                    let _ = before.await;
                }
                // From here on no caller can join this round.
                let touches = touches.lock().take().unwrap_or_default();
                *asked.lock() = Some(clock.now());
                let outcome = run(&connection, &touches, goal).await;
                *asked.lock() = None;
                outcome
            }
        };
        // Any caller's runtime may poll the round and end before it, so its timers are the
        // background's.
        let background = context.background.runtime().clone();
        let outcome = with_timers_of(background, outcome).boxed().shared();
        *last = Some(AckRound {
            connection: connection.clone(),
            touches,
            outcome: outcome.clone(),
        });
        outcome
    }

    /// Whether the current round has had no answer for longer than `limit`.
    pub(in crate::server) fn is_silent(&self, now: Moment, limit: Duration) -> bool {
        let asked = self.asked.lock().clone();
        let since = *asked.lock();
        since.is_some_and(|since| now.since(since) > limit)
    }

    /// Releases the connection. No round counts as asked any more, so the next caller with a short limit does
    /// not end the attempt to connect that follows.
    pub(in crate::server) fn clear(&self) {
        *self.last.lock() = None;
        *self.asked.lock() = AckQuestion::default();
    }
}

/// Runs the future's timers on this runtime, whichever runtime polls it.
async fn with_timers_of<F: Future>(runtime: Handle, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        let _entered = runtime.enter();
        future.as_mut().poll(context)
    })
    .await
}

/// Sends a write, and waits for its acknowledgement.
async fn run(connection: &Connection, touches: &[Weak<Touch>], goal: AckGoal) -> AckResult {
    let limit = goal.timeout;
    // A caller that left releases its lock, so its write needs no acknowledgement.
    let mut touches = touches.iter().filter_map(Weak::upgrade);
    let first = touches.next().ok_or_else(gone)?;
    // The write is sent before the `WAIT`: a server executes the commands of one connection in their
    // order.
    let (mut touched, required, mut answer) = match goal.replicas {
        // The number is known, so the write and the `WAIT` share a round trip.
        Replicas::Count(count) => {
            let (touched, answer) = tokio::join!(
                first.send(connection, limit),
                wait_on(connection, count, goal)
            );
            (touched, count, Some(answer))
        }
        // A share depends on how many replicas are connected, so the master is asked first.
        share => {
            let info = followers::question();
            let (touched, info) =
                tokio::join!(first.send(connection, limit), connection.ask(&info, limit));
            let followers = Followers::read(&info?);
            let connected = followers.map_or(0, |followers| followers.connected);
            // No replica can acknowledge. A `WAIT` is needed only for the master's own disk.
            if connected == 0 && goal.disk != Some(true) {
                return Ok(AckCount {
                    acknowledged: 0,
                    required: share.of(0),
                    is_off_disk: false,
                    followers,
                });
            }
            (touched, share.of(connected), None)
        }
    };
    while !has_written(&touched) {
        // The `WAIT` covered no write, so its answer proves nothing.
        answer = None;
        // This server may not have that caller's key any more, so the next caller's write is used.
        let Some(next) = touches.next() else {
            return Err(touched.err().unwrap_or_else(gone));
        };
        touched = next.send(connection, limit).await;
    }
    let (answer, followers) = match answer {
        Some(answer) => answer?,
        // Not sent yet, or sent without a write before it.
        None => wait_on(connection, required, goal).await?,
    };
    read(&answer, followers, required, goal).ok_or_else(|| {
        let text: String = format!("{answer:?}").chars().take(100).collect();
        Failure::Broken(format!("unexpected answer: {text}").into())
    })
}

fn has_written(touched: &Result<Value, Failure>) -> bool {
    matches!(touched, Ok(Value::Int(1)))
}

fn gone() -> Failure {
    Failure::Unsent("the lock is gone already".into())
}

/// Waits for this many replicas. The question which replicas follow is sent together with the `WAIT`.
/// The server answers it after the `WAIT`, so it costs no further round trip.
async fn wait_on(
    connection: &Connection,
    replicas: u32,
    goal: AckGoal,
) -> Result<(Value, Option<Followers>), Failure> {
    let (wait, limit) = (wait(replicas, goal), goal.timeout);
    if !goal.followers {
        return Ok((connection.ask(&wait, limit).await?, None));
    }
    let info = followers::question();
    let (answer, info) = tokio::join!(connection.ask(&wait, limit), connection.ask(&info, limit));
    Ok((answer?, info.ok().as_ref().and_then(Followers::read)))
}

fn wait(replicas: u32, goal: AckGoal) -> Cmd {
    // The server should answer before the callers' time limit.
    let margin = (goal.timeout / 4).min(MARGIN);
    let timeout = (goal.timeout - margin).as_millis().max(1) as u64;
    let mut wait = match goal.disk {
        None => redis::cmd("WAIT"),
        Some(local) => {
            let mut wait = redis::cmd("WAITAOF");
            wait.arg(u8::from(local));
            wait
        }
    };
    wait.arg(replicas).arg(timeout);
    wait
}

fn read(
    answer: &Value,
    followers: Option<Followers>,
    required: u32,
    goal: AckGoal,
) -> Option<AckCount> {
    let number = |value: &Value| match value {
        Value::Int(number) => u32::try_from(*number).ok(),
        _ => None,
    };
    let (local, acknowledged) = match (goal.disk, answer) {
        // `WAIT` says nothing about disks, so the master's own counts as written.
        (None, answer) => (1, number(answer)?),
        // `WAITAOF` answers with two counts: the master's own disk, and the replicas.
        (Some(_), Value::Array(both)) => match &both[..] {
            [local, replicas] => (number(local)?, number(replicas)?),
            _ => return None,
        },
        _ => return None,
    };
    Some(AckCount {
        acknowledged,
        required,
        is_off_disk: goal.disk == Some(true) && local == 0,
        followers,
    })
}

const MARGIN: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_the_connection_is_cleared_no_round_is_silent() {
        let rounds = AckRounds::default();
        let before = rounds.asked.lock().clone();
        let later = Moment(0) + Duration::from_secs(10);
        *before.lock() = Some(Moment(0));
        assert!(rounds.is_silent(later, Duration::from_secs(1)));
        rounds.clear();
        assert!(!rounds.is_silent(later, Duration::from_secs(1)));
        // An earlier round is still running.
        *before.lock() = Some(Moment(0));
        assert!(!rounds.is_silent(later, Duration::from_secs(1)));
    }
}
