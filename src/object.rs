//! A named object on a server that is not a lock: the state that its handles share, and its commands that are
//! for no hold.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::background::ensure_runtime;
use crate::error::{Error, Result};
use crate::key::{Kind, LockKey};
use crate::server::{Failure, Sent, TimeBox};
use crate::session::{Core, Session, UnansweredCall};

/// The state that the handles and requests of one object share.
pub(crate) struct Object {
    session: Arc<Session>,
    name: Box<str>,
    /// If the name is invalid, each request returns this error.
    key: Result<Arc<LockKey>>,
}

impl Object {
    pub(crate) fn new(session: Arc<Session>, kind: &'static Kind, name: &str) -> Self {
        let key = session.core().key(kind, name);
        Self {
            session,
            name: name.into(),
            key,
        }
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// The user's name for it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn key(&self) -> Result<&Arc<LockKey>> {
        self.key.as_ref().map_err(Error::clone)
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        self.session.core()
    }

    /// Runs a command that is for no hold of this client. The returned `Sent` says which of its sendings may
    /// have run.
    pub(crate) async fn call<T>(
        &self,
        call: impl AsyncFnOnce(&Core, &LockKey, TimeBox, &mut Sent) -> Result<T, Failure>,
    ) -> Result<(T, Sent)> {
        let (core, key) = (self.core(), self.key()?);
        ensure_runtime()?;
        core.ensure_open()?;
        let time = core.server.time_box(core.clock.now());
        let mut sent = Sent::default();
        let answer = call(core, key, time, &mut sent).await;
        core.server.abandon_unanswered(&answer, &sent);
        Ok((answer?, sent))
    }

    /// Reserves the right to start one more command with [`Object::complete`]. Sends nothing.
    pub(crate) fn reserve(&self) -> Result<UnansweredCall> {
        self.key()?;
        ensure_runtime()?;
        // It counts before the check, so a shutdown either waits for it or is seen by the check.
        let reserved = UnansweredCall::new(self.core().clone())?;
        self.core().ensure_open()?;
        Ok(reserved)
    }

    /// Starts a command that has to run even if the caller's future is dropped: the client's thread repeats it
    /// until it is answered, at most for `limit` after the first sending. A shutdown waits for it. Returns
    /// the answer to the first sending, or [`Error::Unconfirmed`] if there is none in time. `what` names the
    /// command.
    ///
    /// # Cancel safety
    ///
    /// After its first poll, the client's thread sends the command even if this is cancelled.
    pub(crate) async fn complete<T: Send + 'static>(
        &self,
        reserved: UnansweredCall,
        what: &'static str,
        limit: Duration,
        call: impl AsyncCommand<T>,
    ) -> Result<T> {
        let (core, key) = (reserved.core().clone(), self.key()?.clone());
        let patience = core.server.command_timeout() * 2;
        let (answer, answered) = oneshot::channel();
        let sending = Sending {
            unanswered: reserved,
            key,
            what,
            answer: Some(answer),
            sent: Sent::in_shutdown_too(),
            last: Some(Failure::Unsent("others are sent before it".into())),
        };
        let sending = sending.until_answered(limit, call);
        if core.mailbox.run(Box::pin(sending)).is_err() {
            return Err(Error::Closed);
        }
        let began = core.clock.now();
        let unanswered = match tokio::time::timeout(patience, answered).await {
            Ok(Ok(FirstOutcome::Answered(answer))) => return Ok(answer?),
            Ok(Ok(FirstOutcome::Unanswered(failure))) => failure,
            // It was never sent.
            Ok(Err(_)) => return Err(Error::Closed),
            Err(_) => Failure::silent(core.clock.now().since(began)),
        };
        // The failure itself may be retriable, but a second call would count in addition to this one.
        Err(Error::unconfirmed_call(what, unanswered.into()))
    }
}

/// The outcome of the first sending of a command.
enum FirstOutcome<T> {
    Answered(Result<T, Failure>),
    /// The client repeats it.
    Unanswered(Failure),
}

/// A command that can be repeated: running it twice has the effect of running it once.
pub(crate) trait AsyncCommand<T>: Send + 'static {
    fn send(
        &self,
        core: &Core,
        key: &LockKey,
        time: TimeBox,
        sent: &mut Sent,
    ) -> impl Future<Output = Result<T, Failure>> + Send;
}

/// A command that the client's thread sends.
struct Sending<T> {
    unanswered: UnansweredCall,
    key: Arc<LockKey>,
    what: &'static str,
    /// Receives the outcome of the first sending. `None` after it was sent.
    answer: Option<oneshot::Sender<FirstOutcome<T>>>,
    /// The state of the last sending.
    sent: Sent,
    /// Why it has no usable answer yet.
    last: Option<Failure>,
}

impl<T: Send + 'static> Sending<T> {
    async fn until_answered(mut self, limit: Duration, call: impl AsyncCommand<T>) {
        let core = self.unanswered.core().clone();
        let mut until = None;
        let mut pause = SHORTEST_PAUSE;
        loop {
            let turn = core.unanswered_calls.turn(core.lane(&self.key)).await;
            let now = core.clock.now();
            let until = *until.get_or_insert(now + limit);
            if now >= until {
                // It waited too long for its turn.
                return;
            }
            let time = core.server.time_box(now);
            self.sent = Sent::in_shutdown_too();
            // Boxed, because most of the commands wait for their turn or for the next sending.
            let sending = Box::pin(call.send(&core, &self.key, time, &mut self.sent));
            let outcome = sending.await;
            core.server.abandon_unanswered(&outcome, &self.sent);
            drop(turn);
            // A permanent refusal is an answer. A command that could not be sent has none: an earlier sending
            // of the same call may have run.
            let first = match outcome {
                Err(failure)
                    if failure.is_ambiguous()
                        || failure.passes()
                        || matches!(failure, Failure::Unsent(_)) =>
                {
                    self.last = Some(failure.clone());
                    FirstOutcome::Unanswered(failure)
                }
                // The caller has its error, which says that the client continues. No call waits for this answer.
                Err(failure) if self.answer.is_none() => {
                    self.last = Some(failure);
                    return;
                }
                outcome => {
                    self.last = None;
                    FirstOutcome::Answered(outcome)
                }
            };
            if let Some(answer) = self.answer.take() {
                // The receiver may be gone.
                let _ = answer.send(first);
            }
            if self.last.is_none() || core.clock.now() + pause >= until {
                return;
            }
            tokio::time::sleep(core.clock.jitter_down(pause)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// Logs that the command has no usable answer, also if the client ends first. If it ends during the first sending,
/// the caller learns that the command may have run.
impl<T> Drop for Sending<T> {
    fn drop(&mut self) {
        let first = self.sent.first.filter(|_| !self.sent.is_answered());
        if let (Some(first), Some(answer)) = (first, self.answer.take()) {
            let failure = Failure::silent(self.unanswered.core().clock.now().since(first));
            self.last = Some(failure.clone());
            // The receiver may be gone.
            let _ = answer.send(FirstOutcome::Unanswered(failure));
        }
        if let Some(failure) = &self.last {
            tracing::warn!(
                target: "lockdog::lock",
                { lock = self.key.logged_name(), lock.hash = %self.key.fingerprint(), what = self.what, %failure },
                "the client gave up a command without an answer"
            );
        }
    }
}

const SHORTEST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
