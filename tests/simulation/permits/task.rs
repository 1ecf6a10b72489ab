//! One task of a plan, written as a user would write it.

use std::pin::Pin;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use super::plan::{Step, Task};
use crate::error::Error;
use crate::key::PermitId;
use crate::permit_semaphore::{LeasedPermit, PermitSemaphore};
use crate::simulation::plan::Cancel;
use crate::simulation::task::cancelled;

/// The reports of a task to the observer.
pub(super) enum Report {
    Says(String),
    /// A release returned that these permits are released.
    Released(Vec<PermitId>),
    /// A release by ids returned that none of these permits is in use.
    GivenBack(Vec<PermitId>),
    /// No value of the client has these permits any more, and they are not released.
    HandedOut(Vec<PermitId>),
}

/// A call that was polled a few times and abandoned, to be resumed or dropped later.
pub(super) enum Left {
    Acquire(Pin<Box<dyn Future<Output = Result<Option<LeasedPermit>, Error>> + Send>>),
    Release(Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>),
}

/// Runs every step, and returns the remaining permits and the abandoned calls.
pub(super) async fn run(
    number: usize,
    task: Task,
    seats: PermitSemaphore,
    reports: UnboundedSender<Report>,
) -> (Vec<LeasedPermit>, Vec<Left>) {
    let mut runner = Runner {
        seats,
        reports,
        held: Vec::new(),
        handed: Vec::new(),
        left: Vec::new(),
    };
    for step in task.steps {
        runner.report(Report::Says(format!("task {number}: {step:?}")));
        runner.take(step).await;
    }
    (runner.held, runner.left)
}

struct Runner {
    seats: PermitSemaphore,
    reports: UnboundedSender<Report>,
    held: Vec<LeasedPermit>,
    handed: Vec<Vec<PermitId>>,
    /// From the oldest to the newest.
    left: Vec<Left>,
}

impl Runner {
    async fn take(&mut self, step: Step) {
        match step {
            Step::Acquire {
                permits,
                wait_ms,
                lease_ms,
                cancel,
            } => {
                let mut request = self.seats.try_acquire_many(permits);
                if let Some(wait) = wait_ms {
                    request = request.wait(Duration::from_millis(wait));
                }
                if let Some(lease) = lease_ms {
                    request = request.lease(Duration::from_millis(lease));
                }
                let mut call = request.into_future();
                match cancelled(&mut call, cancel).await {
                    Some(result) => self.held.extend(result.ok().flatten()),
                    None if matches!(cancel, Cancel::Left(_)) => {
                        self.left.push(Left::Acquire(call));
                    }
                    None => {}
                }
            }
            Step::Release(cancel) => {
                if let Some(permits) = self.held.pop() {
                    let ids = permits.ids();
                    let mut call = Box::pin(permits.release());
                    match cancelled(&mut call, cancel).await {
                        Some(Ok(())) => self.report(Report::Released(ids)),
                        None if matches!(cancel, Cancel::Left(_)) => {
                            self.left.push(Left::Release(call));
                        }
                        _ => {}
                    }
                }
            }
            Step::Drop => {
                if !self.held.is_empty() {
                    drop(self.held.remove(0));
                }
            }
            Step::Split => {
                let part = self.held.last_mut().and_then(|permits| permits.split(1));
                self.held.extend(part);
            }
            Step::HandOut => {
                if let Some(permits) = self.held.pop() {
                    let ids = permits.into_ids();
                    self.report(Report::HandedOut(ids.clone()));
                    self.handed.push(ids);
                }
            }
            Step::GiveBack(cancel) => {
                if !self.handed.is_empty() {
                    let ids = self.handed.remove(0);
                    let call = self.seats.release(&ids);
                    if let Some(Ok(())) = cancelled(call, cancel).await {
                        self.report(Report::GivenBack(ids));
                    }
                }
            }
            Step::Resume => {
                if !self.left.is_empty() {
                    match self.left.remove(0) {
                        Left::Acquire(call) => self.held.extend(call.await.ok().flatten()),
                        Left::Release(call) => drop(call.await),
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
