//! One task of a plan, written as a user would write it.

use std::pin::Pin;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use uuid::Uuid;

use super::plan::{Step, Task};
use crate::error::Error;
use crate::semaphore::{Permit, Semaphore};
use crate::simulation::plan::Cancel;
use crate::simulation::task::cancelled;

/// The reports of a task to the observer.
pub(super) enum Report {
    Says(String),
    LosesLedger,
    EndsNumber,
    /// The call of this task begins to wait for one permit, or its wait ends.
    Waits(usize, bool),
    /// A call asked for this many permits, and got another number.
    GotOthers {
        wanted: u32,
        got: u32,
    },
}

/// A call that was polled a few times and abandoned, to be resumed or dropped later.
pub(super) enum Left {
    Acquire(Pin<Box<dyn Future<Output = Result<Option<Permit>, Error>> + Send>>),
    Release(Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>),
}

/// Runs every step, and returns the remaining permits and the abandoned calls.
pub(super) async fn run(
    number: usize,
    task: Task,
    seats: Semaphore,
    total: u32,
    other: Uuid,
    reports: UnboundedSender<Report>,
) -> (Vec<Permit>, Vec<Left>) {
    let mut runner = Runner {
        number,
        seats,
        total,
        other,
        reports,
        held: Vec::new(),
        left: Vec::new(),
    };
    for step in task.steps {
        runner.report(Report::Says(format!("task {number}: {step:?}")));
        runner.take(step).await;
    }
    (runner.held, runner.left)
}

struct Runner {
    number: usize,
    seats: Semaphore,
    total: u32,
    other: Uuid,
    reports: UnboundedSender<Report>,
    held: Vec<Permit>,
    /// From the oldest to the newest.
    left: Vec<Left>,
}

impl Runner {
    async fn take(&mut self, step: Step) {
        match step {
            Step::Acquire {
                permits,
                wait_ms,
                cancel,
            } => self.acquire(permits, wait_ms, cancel).await,
            Step::Release(cancel) => {
                if let Some(permit) = self.held.pop() {
                    self.end(Box::pin(permit.release()), cancel).await;
                }
            }
            Step::Drop => {
                if !self.held.is_empty() {
                    drop(self.held.remove(0));
                }
            }
            Step::Split => {
                let part = self.held.last_mut().and_then(|permit| permit.split(1));
                self.held.extend(part);
            }
            Step::ByNumber(cancel) => {
                if let Some(permit) = self.held.pop() {
                    let (seats, permits) = (self.seats.clone(), permit.count());
                    permit.forget();
                    let call = async move { seats.release(permits).await };
                    self.end(Box::pin(call), cancel).await;
                }
            }
            Step::Reclaim => drop(self.seats.reclaim(self.other).await),
            Step::LoseLedger => self.report(Report::LosesLedger),
            Step::SetAgain => {
                self.report(Report::EndsNumber);
                tokio::task::yield_now().await;
                // Another task may do the same at the same time.
                let _ = self.seats.try_set_permits(self.total).await;
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

    async fn acquire(&mut self, permits: u32, wait_ms: Option<u64>, cancel: Cancel) {
        let seats = self.seats.clone();
        let call: Pin<Box<dyn Future<Output = Result<Option<Permit>, Error>> + Send>> =
            match permits {
                0 => Box::pin(async move { seats.drain().await }),
                _ => {
                    let request = seats.try_acquire_many(permits);
                    match wait_ms {
                        Some(wait) => request.wait(Duration::from_millis(wait)).into_future(),
                        None => request.into_future(),
                    }
                }
            };
        // The run ends when no task can report any more, also if an abandoned call is left.
        let reports = self.reports.downgrade();
        let mut call: Pin<Box<dyn Future<Output = _> + Send>> = Box::pin(async move {
            let result = call.await;
            if let Ok(Some(permit)) = &result
                && ![0, permit.count()].contains(&permits)
                && let Some(reports) = reports.upgrade()
            {
                let (wanted, got) = (permits, permit.count());
                let _ = reports.send(Report::GotOthers { wanted, got });
            }
            result
        });
        let waits_for_one = permits == 1 && wait_ms.is_some();
        if waits_for_one {
            self.report(Report::Waits(self.number, true));
        }
        let ended = cancelled(&mut call, cancel).await;
        if waits_for_one {
            self.report(Report::Waits(self.number, false));
        }
        match ended {
            Some(result) => self.held.extend(result.ok().flatten()),
            None if matches!(cancel, Cancel::Left(_)) => self.left.push(Left::Acquire(call)),
            None => {}
        }
    }

    async fn end(
        &mut self,
        mut call: Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>,
        cancel: Cancel,
    ) {
        let ended = cancelled(&mut call, cancel).await;
        if ended.is_none() && matches!(cancel, Cancel::Left(_)) {
            self.left.push(Left::Release(call));
        }
    }

    fn report(&self, report: Report) {
        // A run that found a violation receives no more reports.
        let _ = self.reports.send(report);
    }
}
