//! One `WAIT` for all who came before it was sent; those who come meanwhile share the next one.
//!
//! A round may be begun by a caller whose runtime ends, and go on with another's. So it has no timer
//! of its own, and one that a connection brings along (those of a user's pool do) is the background's.
//! Whoever waits for a round limits that.

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

/// A write that changes nothing; answered with 1 if it did write. Sent as it is, with the text of its
/// script: one that the server did not know would leave the `WAIT` behind it worth nothing.
pub(in crate::server) struct Touch {
    pub(in crate::server) command: Cmd,
    /// The slot is being moved there.
    pub(in crate::server) asking: bool,
}

impl Touch {
    async fn send(&self, connection: &Connection, limit: Duration) -> Result<Value, Failure> {
        if self.asking {
            connection.ask_asking(&self.command, limit).await
        } else {
            connection.ask(&self.command, limit).await
        }
    }
}

/// What is waited for.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) struct AckGoal {
    pub(in crate::server) replicas: Replicas,
    /// On disk, and the master's own too if that is true.
    pub(in crate::server) disk: Option<bool>,
    pub(in crate::server) timeout: Duration,
    /// Who follows is asked, too.
    pub(in crate::server) followers: bool,
}

/// Who acknowledged.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) struct AckCount {
    pub(in crate::server) acknowledged: u32,
    pub(in crate::server) required: u32,
    /// The master's own disk was waited for, and has it not.
    pub(in crate::server) is_off_disk: bool,
    /// Who followed right after that, if it was asked.
    pub(in crate::server) followers: Option<Followers>,
}

impl AckCount {
    pub(in crate::server) fn is_enough(&self) -> bool {
        self.acknowledged >= self.required && !self.is_off_disk
    }
}

pub(in crate::server) type AckResult = Result<AckCount, Failure>;

/// The rounds of one server, one under way at a time.
#[derive(Default)]
pub(in crate::server) struct AckRounds {
    last: Mutex<Option<AckRound>>,
    /// Since when the latest round waits for its answer. Another one after each
    /// [`AckRounds::clear`], because rounds of before that may still write theirs.
    asked: Mutex<AckQuestion>,
}

type AckQuestion = Arc<Mutex<Option<Moment>>>;

/// A round, as those who wait for it share it.
#[derive(Clone)]
struct AckRound {
    connection: Connection,
    /// One of each caller, as long as it waits. `None` once it has begun: what was written after that
    /// is not covered.
    touches: Arc<Mutex<Option<Vec<Weak<Touch>>>>>,
    outcome: Shared<BoxFuture<'static, AckResult>>,
}

impl AckRounds {
    /// What becomes of the next round that begins on this connection.
    pub(in crate::server) fn join(
        &self,
        connection: &Connection,
        touch: &Arc<Touch>,
        goal: AckGoal,
        context: &Context,
    ) -> impl Future<Output = AckResult> + use<> {
        let mut last = self.last.lock();
        let before = last.as_ref().filter(|it| it.connection.is(connection));
        if let Some(round) = before
            && let Some(touches) = &mut *round.touches.lock()
        {
            if touches.len() == touches.capacity() {
                touches.retain(|touch| touch.strong_count() > 0);
            }
            touches.push(Arc::downgrade(touch));
            return round.outcome.clone();
        }
        let before = before.map(|round| round.outcome.clone());
        let touches = Arc::new(Mutex::new(Some(vec![Arc::downgrade(touch)])));
        let outcome = {
            let (connection, touches) = (connection.clone(), touches.clone());
            let (asked, clock) = (self.asked.lock().clone(), context.clock.clone());
            async move {
                if let Some(before) = before {
                    // Driven by us, if nobody is left who waits for it.
                    let _ = before.await;
                }
                let touches = touches.lock().take().unwrap_or_default();
                *asked.lock() = Some(clock.now());
                let outcome = run(&connection, &touches, goal).await;
                *asked.lock() = None;
                outcome
            }
        };
        let background = context.background.runtime().clone();
        let outcome = with_timers_of(background, outcome).boxed().shared();
        *last = Some(AckRound {
            connection: connection.clone(),
            touches,
            outcome: outcome.clone(),
        });
        outcome
    }

    /// Whether the round that is under way has had no answer for longer than this.
    pub(in crate::server) fn is_silent(&self, now: Moment, limit: Duration) -> bool {
        let asked = self.asked.lock().clone();
        let since = *asked.lock();
        since.is_some_and(|since| now.since(since) > limit)
    }

    /// Lets go of the connection. Nothing is asked any more: the next caller that is impatient does
    /// not end the attempt to connect that comes after this.
    pub(in crate::server) fn clear(&self) {
        *self.last.lock() = None;
        *self.asked.lock() = AckQuestion::default();
    }
}

/// Has whatever timer the future makes belong to this runtime, whichever polls it.
async fn with_timers_of<F: Future>(runtime: Handle, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| {
        let _entered = runtime.enter();
        future.as_mut().poll(context)
    })
    .await
}

/// Writes something and waits for what that is worth.
async fn run(connection: &Connection, touches: &[Weak<Touch>], goal: AckGoal) -> AckResult {
    let limit = goal.timeout;
    // Whoever is gone gives its lock back.
    let mut touches = touches.iter().filter_map(Weak::upgrade);
    let first = touches.next().ok_or_else(gone)?;
    // In this order: commands of one connection are executed as they were sent.
    let (mut touched, required, mut answer) = match goal.replicas {
        Replicas::Count(count) => {
            let (touched, answer) = tokio::join!(
                first.send(connection, limit),
                wait_on(connection, count, goal)
            );
            (touched, count, Some(answer))
        }
        share => {
            let info = followers::question();
            let (touched, info) =
                tokio::join!(first.send(connection, limit), connection.ask(&info, limit));
            let followers = Followers::read(&info?);
            let connected = followers.map_or(0, |followers| followers.connected);
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
        // Its answer is worth nothing.
        answer = None;
        // The server may not have that one's key any more.
        let Some(next) = touches.next() else {
            return Err(touched.err().unwrap_or_else(gone));
        };
        touched = next.send(connection, limit).await;
    }
    let (answer, followers) = match answer {
        Some(answer) => answer?,
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

/// Waits for so many replicas. The question who follows is sent together with the `WAIT`, and the server
/// answers it after the `WAIT`: it costs no further round trip.
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
    // It shall say who acknowledged before its callers are tired of it.
    let margin = (goal.timeout / 4).min(MARGIN);
    let patience = (goal.timeout - margin).as_millis().max(1) as u64;
    let mut wait = match goal.disk {
        None => redis::cmd("WAIT"),
        Some(local) => {
            let mut wait = redis::cmd("WAITAOF");
            wait.arg(u8::from(local));
            wait
        }
    };
    wait.arg(replicas).arg(patience);
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
        (None, answer) => (1, number(answer)?),
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
    fn once_the_connection_is_let_go_of_no_round_is_silent() {
        let rounds = AckRounds::default();
        let before = rounds.asked.lock().clone();
        let later = Moment(0) + Duration::from_secs(10);
        *before.lock() = Some(Moment(0));
        assert!(rounds.is_silent(later, Duration::from_secs(1)));
        rounds.clear();
        assert!(!rounds.is_silent(later, Duration::from_secs(1)));
        // A round of before goes on.
        *before.lock() = Some(Moment(0));
        assert!(!rounds.is_silent(later, Duration::from_secs(1)));
    }
}
