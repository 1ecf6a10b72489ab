//! One task of a plan, written as a user would write it.

use std::pin::Pin;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use super::plan::{Step, Task};
use crate::error::Error;
use crate::guard::Guard;
use crate::lock::Lock;
use crate::owner::Owner;
use crate::session::Unlocked;
use crate::simulation::plan::Cancel;
use crate::simulation::task::cancelled;

/// The reports of a task to the observer.
pub(super) enum Report {
    Says(String),
    /// An unlock returned that this field is deleted in Redis.
    Released(String),
}

/// A call that was polled a few times and abandoned, to be resumed or dropped later.
pub(super) enum Left {
    Acquire(Pin<Box<dyn Future<Output = Result<Option<Guard>, Error>> + Send>>),
    Unlock(Pin<Box<dyn Future<Output = Result<Unlocked, Error>> + Send>>),
}

/// Runs every step, and returns the remaining guards and the abandoned calls.
pub(super) async fn run(
    number: usize,
    task: Task,
    lock_of: impl Fn(u8) -> Lock,
    reports: UnboundedSender<Report>,
) -> (Vec<Guard>, Vec<Left>) {
    let mut runner = Runner {
        owner: Owner::from_id(number as u64),
        lock_of,
        reports,
        held: 0,
        guards: Vec::new(),
        left: Vec::new(),
    };
    for step in task.steps {
        runner.report(Report::Says(format!("owner {number}: {step:?}")));
        runner.take(step).await;
    }
    (runner.guards, runner.left)
}

struct Runner<L> {
    owner: Owner,
    /// The lock of some values.
    lock_of: L,
    reports: UnboundedSender<Report>,
    /// The values of the guards.
    held: u8,
    guards: Vec<Guard>,
    /// From the oldest to the newest.
    left: Vec<Left>,
}

impl<L: Fn(u8) -> Lock> Runner<L> {
    async fn take(&mut self, step: Step) {
        match step {
            Step::Acquire {
                values,
                wait_ms,
                lease_ms,
                cancel,
            } => {
                if self.guards.is_empty() {
                    self.held = values;
                }
                let lock = (self.lock_of)(self.held);
                let mut request = lock.try_lock().owner(&self.owner);
                if let Some(wait) = wait_ms {
                    request = request.wait(Duration::from_millis(wait));
                }
                if let Some(lease) = lease_ms {
                    request = request.lease(Duration::from_millis(lease));
                }
                let mut call = request.into_future();
                match cancelled(&mut call, cancel).await {
                    Some(Ok(guard)) => self.guards.extend(guard),
                    Some(Err(Error::Lost(_))) => self.guards.clear(),
                    Some(Err(_)) => {}
                    None if matches!(cancel, Cancel::Left(_)) => {
                        self.left.push(Left::Acquire(call));
                    }
                    None => {}
                }
            }
            Step::Unlock(cancel) => {
                if let Some(guard) = self.guards.pop() {
                    let field = guard.field();
                    let mut call = Box::pin(guard.unlock());
                    match cancelled(&mut call, cancel).await {
                        Some(Ok(Unlocked::Released)) => self.report(Report::Released(field)),
                        None if matches!(cancel, Cancel::Left(_)) => {
                            self.left.push(Left::Unlock(call));
                        }
                        _ => {}
                    }
                }
            }
            Step::Drop => {
                if !self.guards.is_empty() {
                    drop(self.guards.remove(0));
                }
            }
            Step::Force(values) => drop((self.lock_of)(values).force_unlock().await),
            Step::Resume => {
                if !self.left.is_empty() {
                    match self.left.remove(0) {
                        Left::Acquire(call) => drop(call.await),
                        Left::Unlock(call) => drop(call.await),
                    }
                }
            }
            Step::Rest(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
        }
    }

    fn report(&self, report: Report) {
        // A run that found a violation receives no more reports.
        let _ = self.reports.send(report);
    }
}
