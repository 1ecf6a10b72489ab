//! Making the count in Redis what it is here, when nobody waits for it or nobody saw the answer.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::Core;
use crate::error::LostReason;
use crate::hold::{Command, Hold, Phase, State};
use crate::script::{self, Settled};
use crate::server::{Connection, Failure, Place};

/// A hold whose count in Redis is not, or may not be, what it is here.
pub(crate) struct Job {
    hold: Arc<Hold>,
    turn: Turn,
    /// Where a command without an answer was sent: settling there comes after it for certain.
    on: Option<Connection>,
    /// Told whether Redis answered.
    answer: Option<oneshot::Sender<bool>>,
}

/// Whose turn it is to send a command for the hold.
enum Turn {
    /// To be waited for.
    Later,
    /// This job's, handed over by whoever sent the last one.
    Mine(#[expect(dead_code, reason = "held until the job is done")] Command),
    /// Nobody's: the hold was given up, and the one who sent the last command may never look again.
    Regardless,
}

impl Job {
    pub(crate) fn new(hold: Arc<Hold>) -> Self {
        Self {
            hold,
            turn: Turn::Later,
            on: None,
            answer: None,
        }
    }

    /// A job whose end is waited for.
    pub(crate) fn answering(hold: Arc<Hold>) -> (Self, oneshot::Receiver<bool>) {
        let (answer, answered) = oneshot::channel();
        let job = Self {
            answer: Some(answer),
            ..Self::new(hold)
        };
        (job, answered)
    }

    /// Waits until no other command for the hold is under way.
    pub(crate) async fn turn(&mut self) {
        if matches!(self.turn, Turn::Later) {
            self.turn = Turn::Mine(self.hold.command().await);
        }
    }

    /// For a hold that was given up by somebody other than the sender of its last command.
    pub(crate) fn regardless(hold: Arc<Hold>) -> Self {
        Self {
            turn: Turn::Regardless,
            ..Self::new(hold)
        }
    }

    /// After a command that is to be undone, and whose end is waited for.
    pub(super) fn answering_after(
        hold: Arc<Hold>,
        command: Option<Command>,
        on: Option<Connection>,
    ) -> (Self, oneshot::Receiver<bool>) {
        let (answer, answered) = oneshot::channel();
        let job = Self {
            answer: Some(answer),
            ..Self::after(hold, command, on)
        };
        (job, answered)
    }

    /// After a command whose answer nobody saw.
    pub(crate) fn after(hold: Arc<Hold>, command: Option<Command>, on: Option<Connection>) -> Self {
        Self {
            turn: command.map_or(Turn::Later, Turn::Mine),
            on,
            ..Self::new(hold)
        }
    }
}

/// Does a job on the background's own connection, or where the job's last command went. Every error
/// is tried again until the hold's lease is over (design: invariant 6). Room at the server is taken for
/// each try only, so that what cannot succeed keeps nothing else waiting.
pub(crate) async fn settle(core: &Core, mut job: Job) {
    let hold = &job.hold;
    let limit = core.server.command_timeout();
    let mut pause = SHORTEST_PAUSE;
    let mut place: Option<Place> = None;
    let answered = loop {
        let there = match place.take() {
            Some(place) => Ok(place),
            None => core.server.node(hold.key().key()).map(Place::plain),
        };
        let trying = match &there {
            Ok(place) => place.room().await,
            Err(_) => None,
        };
        let connection = match (&there, &job.on) {
            (_, Some(connection)) => Ok(connection.clone()),
            (Ok(place), None) => place.own_connection(limit).await,
            (Err(failure), None) => Err(failure.clone()),
        };
        let target = hold.state().target();
        let settled = match &connection {
            Ok(connection) => {
                let field = core.field(hold);
                let publishes = core.server.publishes();
                script::settle(connection, publishes, hold.key(), &field, target, limit).await
            }
            Err(failure) => Err(failure.clone()),
        };
        let failure = match settled {
            Ok(settled) => {
                // The last command may come yet, and what it does is for whoever sent it to undo.
                let is_last = !matches!(job.turn, Turn::Regardless);
                core.settled(hold, target, &settled, is_last);
                break true;
            }
            // A server out of memory lowers no count; the final unlock deletes the field whatever
            // its count is, and must not wait for this.
            Err(Failure::Refused { code, .. }) if code == "OOM" && target > 0 => break true,
            Err(failure) => failure,
        };
        drop(trying);
        if core.clock.now() >= hold.state().remains_until {
            break false;
        }
        hold.state().unsettled = true;
        tracing::debug!(lock.hash = %hold.key().fingerprint(), ?failure, "settling again");
        place = core.server.redirected(&failure, connection.as_ref().ok());
        if place.is_some() {
            // The server runs nothing more for this key.
            job.on = None;
        } else if let Some(old) = job.on.take() {
            // It does not answer, so what was sent on it may run at any later time.
            core.server.abandon(&old);
            core.server.kill(&old, limit).await;
        } else if let (Ok(connection), true) = (&connection, failure.is_ambiguous()) {
            core.server.abandon(connection);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    };
    if mutant!("late_drop") && hold.state().target() == 0 {
        core.holds.change(hold, State::end);
    }
    if hold.state().phase == Phase::Ended {
        // The master that answered may have been replaced already by one that has the field: an
        // unanswered acquire can be replicated before its settlement is lost.
        hold.state().granted = true;
        core.forget(hold);
    }
    if let Some(answer) = job.answer {
        // Whoever asked may have lost patience.
        let _ = answer.send(answered);
    }
}

impl Core {
    /// `is_last` if no earlier command for the hold is on its way.
    fn settled(&self, hold: &Arc<Hold>, target: u32, settled: &Settled, is_last: bool) {
        if target == 0 {
            let now = self.clock.now();
            if is_last {
                self.holds.change(hold, |state| state.remains_until = now);
            }
        } else if matches!(settled, Settled::Missing) {
            self.lose(hold, LostReason::NotOurs);
        }
    }
}

const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
