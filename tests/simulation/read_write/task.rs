//! One task of a plan, written as a user would write it.

use std::pin::Pin;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use super::plan::{Step, Task};
use crate::error::Error;
use crate::lock::Lock;
use crate::lock_request::FromGuard;
use crate::owner::Owner;
use crate::read_write_lock::{ReadGuard, ReadWriteLock, UpgradeError, WriteGuard};
use crate::session::Unlocked;
use crate::simulation::plan::Cancel;
use crate::simulation::task::cancelled;

/// The reports of a task to the observer.
pub(super) enum Report {
    Says(String),
    /// A guard left this field to its lease, and possibly the field of its owner in the other mode.
    Left(String),
}

pub(super) enum Held {
    Read(ReadGuard),
    Write(WriteGuard),
}

/// A call that was polled a few times and abandoned, to be dropped later.
pub(super) type Left = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Runs every step, and returns the remaining guards and the abandoned calls.
pub(super) async fn run(
    task: Task,
    lock: ReadWriteLock,
    reports: UnboundedSender<Report>,
) -> (Vec<Held>, Vec<Left>) {
    let mut runner = Runner {
        owner: Owner::from_id(task.owner),
        lock,
        reports,
        held: Vec::new(),
        left: Vec::new(),
    };
    for step in task.steps {
        runner.report(Report::Says(format!("owner {}: {step:?}", task.owner)));
        runner.take(step).await;
    }
    (runner.held, runner.left)
}

struct Runner {
    owner: Owner,
    lock: ReadWriteLock,
    reports: UnboundedSender<Report>,
    held: Vec<Held>,
    left: Vec<Left>,
}

impl Runner {
    async fn take(&mut self, step: Step) {
        match step {
            Step::Acquire {
                reads,
                wait_ms,
                lease_ms,
                cancel,
            } => {
                let limits = (wait_ms, lease_ms);
                match reads {
                    true => {
                        self.acquire(self.lock.read(), limits, cancel, Held::Read)
                            .await
                    }
                    false => {
                        self.acquire(self.lock.write(), limits, cancel, Held::Write)
                            .await
                    }
                }
            }
            Step::Unlock(cancel) => match self.held.pop() {
                Some(Held::Read(guard)) => self.unlock(guard.unlock(), cancel).await,
                Some(Held::Write(guard)) => self.unlock(guard.unlock(), cancel).await,
                None => {}
            },
            Step::Drop => {
                if !self.held.is_empty() {
                    drop(self.held.remove(0));
                }
            }
            Step::Leave => {
                if !self.held.is_empty() {
                    let held = self.held.remove(0);
                    self.report(Report::Left(match &held {
                        Held::Read(guard) => guard.field(),
                        Held::Write(guard) => guard.field(),
                    }));
                    match held {
                        Held::Read(guard) => guard.leave_to_lease(),
                        Held::Write(guard) => guard.leave_to_lease(),
                    }
                }
            }
            Step::Change { wait_ms, cancel } => self.change(wait_ms, cancel).await,
            Step::Rest(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
        }
    }

    async fn acquire<G: FromGuard>(
        &mut self,
        lock: Lock<G>,
        (wait_ms, lease_ms): (Option<u64>, Option<u64>),
        cancel: Cancel,
        held: fn(G) -> Held,
    ) {
        let mut request = lock.try_lock().owner(&self.owner);
        if let Some(wait) = wait_ms {
            request = request.wait(Duration::from_millis(wait));
        }
        if let Some(lease) = lease_ms {
            request = request.lease(Duration::from_millis(lease));
        }
        let mut call = request.into_future();
        match cancelled(&mut call, cancel).await {
            Some(Ok(Some(guard))) => self.held.push(held(guard)),
            Some(Err(Error::Lost(_))) => self.held.clear(),
            Some(_) => {}
            None => self.leave(async move { drop(call.await) }, cancel),
        }
    }

    async fn unlock(
        &mut self,
        call: impl Future<Output = Result<Unlocked, Error>> + Send + 'static,
        cancel: Cancel,
    ) {
        let mut call = Box::pin(call);
        if cancelled(&mut call, cancel).await.is_none() {
            self.leave(async move { drop(call.await) }, cancel);
        }
    }

    async fn change(&mut self, wait_ms: u64, cancel: Cancel) {
        match self.held.pop() {
            Some(Held::Read(guard)) => {
                let wait = Duration::from_millis(wait_ms);
                let mut call = guard.upgrade().wait(wait).into_future();
                match cancelled(&mut call, cancel).await {
                    Some(Ok(guard)) => self.held.push(Held::Write(guard)),
                    Some(Err(error)) => {
                        self.held
                            .extend(UpgradeError::into_guard(error).map(Held::Read));
                    }
                    None => self.leave(async move { drop(call.await) }, cancel),
                }
            }
            Some(Held::Write(guard)) => {
                let mut call = Box::pin(guard.downgrade());
                match cancelled(&mut call, cancel).await {
                    Some(guard) => self.held.extend(guard.ok().map(Held::Read)),
                    None => self.leave(async move { drop(call.await) }, cancel),
                }
            }
            None => {}
        }
    }

    fn leave(&mut self, call: impl Future<Output = ()> + Send + 'static, cancel: Cancel) {
        if matches!(cancel, Cancel::Left(_)) {
            self.left.push(Box::pin(call));
        }
    }

    fn report(&self, report: Report) {
        // A run that found a violation receives no more reports.
        let _ = self.reports.send(report);
    }
}
