//! Sets the count in Redis to the local count, after a drop or after an unknown outcome.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::Core;
use super::job_outcome::JobOutcome;
use super::lane::Lane;
use crate::clock::Moment;
use crate::hold::{Hold, HoldPhase, TurnGuard};
use crate::script::{LoweredHold, SettleReply};
use crate::server::{Connection, Failure, Route};

/// A hold whose count in Redis differs, or may differ, from the local count.
pub(crate) struct Job {
    hold: Arc<Hold>,
    turn: JobTurn,
    /// The connection of a command without an answer. A settlement on it certainly runs after that
    /// command.
    on: Option<Connection>,
    answer: Option<oneshot::Sender<JobOutcome>>,
    /// The job is obsolete once the hold is no longer listed.
    only_if_listed: bool,
    /// Where the server redirected the last attempt.
    sent_to: Option<Route>,
    failed: u32,
    /// A guard left the hold to its lease, which is over at this moment. The job is not begun before it.
    not_before: Option<Moment>,
    /// Since when the server refuses the job while the client shuts down.
    refused_since: Option<Moment>,
    /// When it was first tried.
    began: Option<Moment>,
    /// The warning about a slow release was logged.
    has_warned: bool,
}

/// A job that needs another attempt.
pub(crate) struct Unsettled {
    pub(crate) job: Job,
    /// How long to wait before the next attempt.
    pub(crate) pause: Duration,
    /// The attempt used a connection that does not answer, and that was abandoned.
    pub(crate) gave_up: bool,
}

/// The job's turn to send a command for the hold.
enum JobTurn {
    /// The job has to wait for the turn.
    Later,
    /// The job has the turn, from the sender of the last command.
    Mine(#[expect(dead_code, reason = "held until the job is done")] TurnGuard),
    /// The job needs no turn: its hold has ended, and the last sender may never be polled again.
    Regardless,
}

impl Job {
    pub(crate) fn new(hold: Arc<Hold>) -> Self {
        Self {
            hold,
            turn: JobTurn::Later,
            on: None,
            answer: None,
            sent_to: None,
            failed: 0,
            not_before: None,
            refused_since: None,
            began: None,
            has_warned: false,
            only_if_listed: false,
        }
    }

    /// A job for a hold whose sender may end it meanwhile. The caller can wait for the outcome.
    pub(crate) fn if_listed(hold: Arc<Hold>) -> (Self, oneshot::Receiver<JobOutcome>) {
        let (mut job, answered) = Self::answering(hold);
        job.only_if_listed = true;
        (job, answered)
    }

    /// A job whose outcome the caller waits for.
    pub(crate) fn answering(hold: Arc<Hold>) -> (Self, oneshot::Receiver<JobOutcome>) {
        let (answer, answered) = oneshot::channel();
        let job = Self {
            answer: Some(answer),
            ..Self::new(hold)
        };
        (job, answered)
    }

    /// A job for a hold that a guard left to its lease, which is over when the job begins.
    pub(super) fn after_lease(hold: Arc<Hold>) -> Self {
        let lease_is_over = hold.state().remains_until;
        Self {
            not_before: Some(lease_is_over),
            ..Self::new(hold)
        }
    }

    /// How long the job has to wait before it begins.
    pub(crate) fn rest(&self, now: Moment) -> Duration {
        self.not_before.map_or(Duration::ZERO, |at| at.since(now))
    }

    /// Takes the turn if no other command for the hold is in flight. Returns false if one is.
    pub(crate) fn try_turn(&mut self) -> bool {
        if matches!(self.turn, JobTurn::Later) {
            match self.hold.try_command() {
                Some(command) => self.turn = JobTurn::Mine(command.into_background()),
                None => return false,
            }
        }
        true
    }

    /// Where its next attempt goes.
    pub(crate) fn lane(&self, core: &Core) -> Lane {
        if let Some(on) = &self.on {
            return Lane::Connection(on.number());
        }
        match &self.sent_to {
            Some(route) => Lane::Server(route.address_in_memory()),
            None => core.lane(self.hold.key()),
        }
    }

    /// The connection of its last command was abandoned.
    pub(crate) fn leave_connection(&mut self) {
        self.on = None;
    }

    /// Waits until no other command for the hold is in flight, or takes the turn of a frozen sender.
    /// That sender's command is then settled on the same connection.
    pub(crate) async fn acquire_turn(&mut self) {
        if matches!(self.turn, JobTurn::Later) {
            let (command, on) = self.hold.command().await;
            self.turn = JobTurn::Mine(command.into_background());
            self.on = self.on.take().or(on);
        }
    }

    /// For a hold that was ended by another party than the sender of its last command.
    pub(crate) fn without_turn(hold: Arc<Hold>) -> Self {
        Self {
            turn: JobTurn::Regardless,
            ..Self::new(hold)
        }
    }

    /// For a command that has to be undone; the caller waits for the outcome.
    pub(super) fn answering_after(
        hold: Arc<Hold>,
        command: Option<TurnGuard>,
        on: Option<Connection>,
    ) -> (Self, oneshot::Receiver<JobOutcome>) {
        let (answer, answered) = oneshot::channel();
        let job = Self {
            answer: Some(answer),
            ..Self::after(hold, command, on)
        };
        (job, answered)
    }

    /// For a command whose answer is unknown.
    pub(crate) fn after(
        hold: Arc<Hold>,
        command: Option<TurnGuard>,
        on: Option<Connection>,
    ) -> Self {
        Self {
            turn: command.map_or(JobTurn::Later, |it| JobTurn::Mine(it.into_background())),
            on,
            ..Self::new(hold)
        }
    }
}

/// Tries once to do a job: on the connection of the job's last command, or else on the background's
/// own. Every error is retried until the hold's lease is over (design: invariant 6). Between attempts a
/// job has no task, so that jobs which wait for the end of an outage delay nothing else.
pub(crate) async fn settle(core: &Core, mut job: Job) -> Option<Unsettled> {
    let hold = job.hold.clone();
    if job.only_if_listed && core.holds.numbered(hold.key(), hold.number()).is_none() {
        return None;
    }
    if job.not_before.is_some() {
        hold.state().end_lease();
    }
    if hold.state().is_left() {
        // A guard left the lock to its lease. The lease also ends what an earlier command did.
        return None;
    }
    let began = *job.began.get_or_insert_with(|| core.clock.now());
    let limit = core.server.command_timeout();
    let there = match job.sent_to.take() {
        Some(route) => Ok(route),
        None => core.server.node(hold.key().key()).map(Route::plain),
    };
    let connection = match (&there, &job.on) {
        (_, Some(connection)) => Ok(connection.clone()),
        (Ok(route), None) => route.own_connection(limit).await,
        (Err(failure), None) => Err(failure.clone()),
    };
    let (target, lease, rest) = {
        let state = hold.state();
        // Checked again: to open the connection takes time, and a guard may have left the lock meanwhile.
        if state.is_left() {
            return None;
        }
        let rest = state.rest(core.clock.now());
        (state.target(), state.longest_lease(), rest)
    };
    let settled = match &connection {
        Ok(connection) => {
            hold.asks_on(connection);
            let field = core.field(&hold);
            let lowered = LoweredHold {
                key: hold.key(),
                field: &field,
                target,
                view: hold.state().ledger_view(),
                lease,
                queue_timeouts: core.settings.queue_timeouts,
                list: None,
            };
            let sending = pin!(core.lower(connection, &lowered, rest, limit));
            match &job.on {
                Some(on) if core.is_closed() => settle_or_close(core, on, sending).await,
                _ => sending.await,
            }
        }
        Err(failure) => Err(failure.clone()),
    };
    let failure = match settled {
        Ok(settled) => {
            // An earlier command may still arrive. Its sender has to undo it.
            let is_last = !matches!(job.turn, JobTurn::Regardless);
            core.settled(&hold, target, &settled, is_last);
            job.end(
                core,
                target == 0,
                match settled {
                    SettleReply::Done | SettleReply::Kept => JobOutcome::Done,
                    SettleReply::Missing => JobOutcome::Nothing,
                },
            );
            return None;
        }
        // A server that is out of memory lowers no count. The final unlock deletes the field whatever
        // its count is, and must not wait for this, unless others wait for the part that was released.
        Err(Failure::Refused { code, .. })
            if code == "OOM" && target > 0 && !hold.key().kind().is_freed_in_parts() =>
        {
            job.end(core, false, JobOutcome::Done);
            return None;
        }
        Err(failure) => failure,
    };
    let now = core.clock.now();
    // The lease is over, so Redis has nothing of the hold, even if no command was answered.
    if now >= hold.state().remains_until && !core.is_kept_by_partner(&hold) {
        job.end(core, true, JobOutcome::Unanswered);
        return None;
    }
    if core.is_closed() && matches!(failure, Failure::Refused { .. }) {
        // The server answers but refuses. A client that shuts down waits briefly, because the server's
        // state may be transient.
        let since = *job.refused_since.get_or_insert(now);
        if !failure.passes() || now.since(since) >= A_SECOND {
            core.give_up_release(&hold);
            job.end(core, true, JobOutcome::Unanswered);
            return None;
        }
    }
    hold.state().unsettled = true;
    // The caller's connection may be one that no task drives. Its silence proves nothing about the server.
    if job.on.is_none() && !job.has_warned && now.since(began) >= A_SECOND {
        job.has_warned = core.warn_of_release(&hold, &failure);
    }
    tracing::debug!(
        target: "lockdog::lock",
        { lock = hold.key().logged_name(), lock.hash = %hold.key().fingerprint(), %failure },
        "settlement failed"
    );
    job.sent_to = core.server.redirected(&failure, connection.as_ref().ok());
    let mut gave_up = false;
    if job.sent_to.is_some() {
        // The server runs no further command for this key.
        job.on = None;
    } else if let Some(old) = job.on.take() {
        // It does not answer, so the command sent on it may still run at any time.
        core.server.abandon(&old);
        core.server.kill(&old, limit).await;
        gave_up = true;
        // Only the attempts from here on show how long the release fails. The background's own connection may have
        // broken meanwhile, and then the first of them fails at once.
        job.began = None;
    } else if let (Ok(connection), true) = (&connection, failure.ends_connection()) {
        // The background's own connection is silent or leads to a replica now: the next attempt opens another one.
        core.server.abandon(connection);
    }
    // Doubled up to the longest pause.
    let pause = SHORTEST_PAUSE * (1 << job.failed.min(MOST_DOUBLINGS));
    job.failed = job.failed.saturating_add(1);
    Some(Unsettled {
        job,
        pause: pause.min(LONGEST_PAUSE),
        gave_up,
    })
}

/// Waits for the answer on a connection that may not be driven any more. After a short time a client
/// that shuts down kills the connection if that is permitted: then the commands that are queued in it
/// never run.
async fn settle_or_close(
    core: &Core,
    on: &Connection,
    mut sending: Pin<&mut impl Future<Output = Result<SettleReply, Failure>>>,
) -> Result<SettleReply, Failure> {
    let answer = tokio::time::timeout(SHUTDOWN_LIMIT, &mut sending).await;
    if let Ok(answer) = answer {
        return answer;
    }
    if core.server.kill(on, core.server.command_timeout()).await {
        return Err(Failure::silent(SHUTDOWN_LIMIT));
    }
    // The settlement runs after the commands that are queued there, whenever those are sent.
    sending.await
}

impl Job {
    /// Removes a hold if Redis has nothing of it any more, and sends the outcome to the caller that
    /// waits.
    fn end(self, core: &Core, nothing_is_left: bool, outcome: JobOutcome) {
        let hold = &self.hold;
        // If the hold ended after the count was sent, it stays listed: another job for its end follows.
        if nothing_is_left && hold.state().phase == HoldPhase::Ended {
            // The master that answered may already have been replaced by one that has the field: an
            // unanswered acquire can be replicated before its settlement is lost.
            hold.state().granted = true;
            core.forget(hold, outcome != JobOutcome::Unanswered);
        }
        if let Some(answer) = self.answer {
            // The receiver may be gone.
            let _ = answer.send(outcome);
        }
    }
}

/// How long a client that shuts down waits for an answer before it kills the connection.
const SHUTDOWN_LIMIT: Duration = Duration::from_millis(250);
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const MOST_DOUBLINGS: u32 = 8;
const A_SECOND: Duration = Duration::from_secs(1);
