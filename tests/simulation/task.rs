//! One task of a plan, written as a user would write it.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use super::network::Network;
use super::plan::{Cancel, LockKind, PlanStep, Task};
use crate::error::{Error, LostReason};
use crate::guard::{Guard, Held, Verdict};
use crate::lock::Lock;
use crate::owner::Owner;
use crate::session::{Reentry, Unlocked};

/// The reports of a task to the observer.
pub(super) enum Report {
    Says(String),
    Wrong(String),
    /// A call of the task with this number waits, and is polled until its end.
    Waits(usize),
    /// It no longer waits.
    Ended(usize),
    /// A call of the task with this number may poll from now on, or no longer.
    MayAsk(usize, bool),
    /// An owner that held a non-reentrant lock was refused.
    Refused,
    /// An unlock returned that this field is deleted in Redis.
    Released(String),
    /// An acquire with a least time returned a guard of this field.
    Keeps(String, LeastTime),
    /// An unlock returned that Redis keeps this field for this time.
    Kept(String, Duration),
}

/// The least time of an acquire, and when its call began, in nanoseconds.
#[derive(Clone, Copy)]
pub(super) struct LeastTime {
    pub(super) ms: u64,
    pub(super) began: u64,
}

/// A call that was polled a few times and abandoned, to be resumed or dropped later.
pub(super) enum Left {
    Acquire(
        Option<LeastTime>,
        Pin<Box<dyn Future<Output = Result<Option<Guard>, Error>> + Send>>,
    ),
    Unlock(
        String,
        Pin<Box<dyn Future<Output = Result<Unlocked, Error>> + Send>>,
    ),
}

/// The guarantees that a task has.
#[derive(Clone, Copy)]
pub(super) struct Nature {
    /// No other task has this owner.
    pub(super) alone: bool,
    /// There are no faults, so no unlock may fail.
    pub(super) calm: bool,
    pub(super) lock: LockKind,
}

/// Runs every step, and returns the remaining guards and the abandoned calls.
pub(super) async fn run(
    number: usize,
    task: Task,
    nature: Nature,
    lock: Lock,
    network: Arc<Network>,
    reports: UnboundedSender<Report>,
) -> (Vec<Guard>, Vec<Left>) {
    let mut runner = Runner {
        number,
        owner: Owner::from_id(task.owner),
        nature,
        lock,
        network,
        reports,
        guards: Vec::new(),
        left: Vec::new(),
        forgotten: 0,
    };
    for step in task.steps {
        runner.say(|| format!("owner {}: {step:?}", task.owner));
        runner.take(step).await;
        runner.look_at_guards();
    }
    (runner.guards, runner.left)
}

struct Runner {
    number: usize,
    owner: Owner,
    nature: Nature,
    lock: Lock,
    network: Arc<Network>,
    reports: UnboundedSender<Report>,
    guards: Vec<Guard>,
    /// From the oldest to the newest.
    left: Vec<Left>,
    forgotten: u32,
}

impl Runner {
    async fn take(&mut self, step: PlanStep) {
        match step {
            PlanStep::Acquire {
                wait_ms,
                lease_ms,
                least_ms,
                local,
                cancel,
            } => {
                let mut request = self.lock.try_lock().owner(&self.owner);
                if let Some(wait) = wait_ms {
                    request = request.wait(Duration::from_millis(wait));
                }
                if let Some(lease) = lease_ms {
                    request = request.lease(Duration::from_millis(lease));
                }
                let least = least_ms.map(|ms| LeastTime {
                    ms,
                    began: self.network.now(),
                });
                if let Some(least) = least {
                    request = request.hold_at_least(Duration::from_millis(least.ms));
                }
                if local {
                    request = request.reentry(Reentry::Local);
                }
                let mut call = request.into_future();
                let had = self.newest_valid();
                let waits = cancel == Cancel::Never && wait_ms.is_some();
                if waits {
                    self.report(Report::Waits(self.number));
                }
                self.report(Report::MayAsk(self.number, true));
                let result = cancelled(&mut call, cancel).await;
                self.report(Report::MayAsk(self.number, false));
                if waits {
                    self.report(Report::Ended(self.number));
                }
                if let (Some(had), Some(result)) = (had, &result) {
                    self.look_at_nested(&had, result);
                }
                match result {
                    Some(result) => self.acquired(result, least),
                    None if matches!(cancel, Cancel::Left(_)) => {
                        self.left.push(Left::Acquire(least, call));
                    }
                    None => {}
                }
            }
            PlanStep::Unlock(cancel) => {
                if let Some(guard) = self.guards.pop() {
                    let field = guard.field();
                    let mut call = Box::pin(guard.unlock());
                    match cancelled(&mut call, cancel).await {
                        Some(result) => self.unlocked(field, result),
                        None if matches!(cancel, Cancel::Left(_)) => {
                            self.left.push(Left::Unlock(field, call));
                        }
                        None => {}
                    }
                }
            }
            PlanStep::Resume => {
                if !self.left.is_empty() {
                    match self.left.remove(0) {
                        Left::Acquire(least, call) => {
                            let result = call.await;
                            self.acquired(result, least);
                        }
                        Left::Unlock(field, call) => {
                            // The call may have been frozen for longer than its time limit.
                            if let Ok(unlocked) = call.await {
                                self.ended(field, unlocked);
                            }
                        }
                    }
                }
            }
            PlanStep::Drop => {
                if !self.guards.is_empty() {
                    let guard = self.guards.remove(0);
                    let held = guard.held();
                    drop(guard);
                    let last = self.nature.alone && self.guards.is_empty() && self.forgotten == 0;
                    if last && held.is_valid() {
                        let what = "a dropped hold is still valid".to_owned();
                        self.report(Report::Wrong(what));
                    }
                }
            }
            PlanStep::Forget => {
                if let Some(guard) = self.guards.pop() {
                    self.forgotten += 1;
                    guard.forget();
                }
            }
            PlanStep::EndForgotten(cancel) => {
                let request = self.lock.unlock().owner(&self.owner);
                // The observer checks its effect in Redis, when the run is at rest.
                let _ = cancelled(request.into_future(), cancel).await;
            }
            PlanStep::Force(cancel) => {
                let _ = cancelled(self.lock.force_unlock().into_future(), cancel).await;
            }
            PlanStep::Rest(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
        }
    }

    fn acquired(&mut self, result: Result<Option<Guard>, Error>, least: Option<LeastTime>) {
        match result {
            Ok(Some(guard)) => {
                if guard.token().is_some() != self.nature.lock.tokens().is_some() {
                    let what = format!("a guard of the lock has the token {:?}", guard.token());
                    self.report(Report::Wrong(what));
                }
                if let Some(least) = least {
                    self.report(Report::Keeps(guard.field(), least));
                }
                self.guards.push(guard);
            }
            Err(Error::Lost(_)) => self.guards.clear(),
            _ => {}
        }
    }

    /// The newest guard, if it is valid.
    fn newest_valid(&self) -> Option<Held> {
        let held = self.guards.last()?.held();
        held.is_valid().then_some(held)
    }

    /// NR2: an owner that asks for a non-reentrant lock which it holds is refused.
    fn look_at_nested(&self, had: &Held, result: &Result<Option<Guard>, Error>) {
        if self.nature.lock != LockKind::NonReentrant || !self.nature.alone {
            return;
        }
        match result {
            Err(Error::AlreadyHeld(_)) => self.report(Report::Refused),
            Ok(_) if had.is_valid() => {
                let what = "an owner that has a non-reentrant lock is not refused".to_owned();
                self.report(Report::Wrong(what));
            }
            _ => {}
        }
    }

    fn unlocked(&mut self, field: String, result: Result<Unlocked, Error>) {
        match result {
            Ok(unlocked) => self.ended(field, unlocked),
            Err(Error::UnlockUnconfirmed(error)) if self.nature.calm => {
                let what = format!("an unlock fails though nothing goes wrong: {error}");
                self.report(Report::Wrong(what));
            }
            _ => {}
        }
    }

    fn ended(&self, field: String, unlocked: Unlocked) {
        match unlocked {
            Unlocked::Released => self.report(Report::Released(field)),
            Unlocked::Kept { rest } => self.report(Report::Kept(field, rest)),
            Unlocked::StillHeld { .. } => {}
        }
    }

    /// A claim ends only with its guard or with a loss.
    fn look_at_guards(&self) {
        for guard in &self.guards {
            if guard.verdict() == Verdict::Lost(LostReason::Released) {
                let what = format!("{} was released under its guard", guard.field());
                self.report(Report::Wrong(what));
            }
        }
    }

    fn say(&self, line: impl FnOnce() -> String) {
        self.report(Report::Says(line()));
    }

    fn report(&self, report: Report) {
        // A run that found a violation receives no more reports.
        let _ = self.reports.send(report);
    }
}

/// Stops polling `call` when the plan says so. Returns `None` if that was before its end.
pub(super) async fn cancelled<F: Future>(call: F, cancel: Cancel) -> Option<F::Output> {
    match cancel {
        Cancel::Never => Some(call.await),
        Cancel::AtPoll(polls) | Cancel::Left(polls) => polled(call, polls).await,
        Cancel::After(ms) => tokio::time::timeout(Duration::from_millis(ms), call)
            .await
            .ok(),
    }
}

/// Polls a future at most `polls` times. Returns `None` if it is not ready then.
async fn polled<F: Future>(future: F, polls: u64) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
