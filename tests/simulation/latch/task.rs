//! One task of a plan, written as a user would write it.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;

use super::plan::{Step, Task};
use crate::error::Result;
use crate::latch::CountDownLatch;
use crate::simulation::network::Network;
use crate::simulation::plan::Cancel;
use crate::simulation::task::cancelled;

/// The reports of a task to the observer.
pub(super) enum Report {
    Says(String),
    /// A count-down begins.
    Counts,
    Restarts,
    Waits(Waiting),
    /// A wait that is not polled for a while.
    Left(WaitNumber),
    Ended {
        wait: WaitNumber,
        at: u64,
        /// Whether the latch opened; `None` if the wait failed or was cancelled.
        opened: Option<bool>,
    },
}

/// The task, and the number of its wait.
pub(super) type WaitNumber = (usize, usize);

pub(super) struct Waiting {
    pub(super) wait: WaitNumber,
    pub(super) client: usize,
    pub(super) began: u64,
}

/// A call that was polled a few times and abandoned.
type Left = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// Runs every step. Returns the waits that have not ended, and the abandoned calls.
pub(super) async fn run(
    number: usize,
    task: Task,
    latch: CountDownLatch,
    network: Arc<Network>,
    reports: UnboundedSender<Report>,
) -> (JoinSet<()>, Vec<Left>) {
    let mut runner = Runner {
        number,
        client: task.client,
        latch,
        network,
        reports,
        waits: JoinSet::new(),
        begun: 0,
        left: Vec::new(),
    };
    for step in task.steps {
        runner.report(Report::Says(format!("task {number}: {step:?}")));
        runner.take(step).await;
    }
    (runner.waits, runner.left)
}

struct Runner {
    number: usize,
    client: usize,
    latch: CountDownLatch,
    network: Arc<Network>,
    reports: UnboundedSender<Report>,
    waits: JoinSet<()>,
    begun: usize,
    left: Vec<Left>,
}

impl Runner {
    async fn take(&mut self, step: Step) {
        let latch = self.latch.clone();
        match step {
            Step::TrySet { count, cancel } => {
                let call = async move { latch.try_set_count(count).await.map(drop) };
                self.end(Box::pin(call), cancel).await;
            }
            Step::CountDown(cancel) => {
                self.report(Report::Counts);
                self.end(Box::pin(async move { latch.count_down().await }), cancel)
                    .await;
            }
            Step::Delete(cancel) => {
                let call = async move { latch.delete().await.map(drop) };
                self.end(Box::pin(call), cancel).await;
            }
            Step::Wait { limit_ms, cancel } => self.wait(limit_ms, cancel),
            Step::Restart => {
                self.report(Report::Restarts);
                tokio::task::yield_now().await;
            }
            Step::Rest(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
        }
    }

    async fn end(&mut self, mut call: Left, cancel: Cancel) {
        let ended = cancelled(&mut call, cancel).await;
        if ended.is_none() && matches!(cancel, Cancel::Left(_)) {
            self.left.push(call);
        }
    }

    fn wait(&mut self, limit_ms: Option<u64>, cancel: Cancel) {
        let wait = (self.number, self.begun);
        self.begun += 1;
        let (latch, network, reports) = (
            self.latch.clone(),
            self.network.clone(),
            self.reports.clone(),
        );
        let client = self.client;
        self.waits.spawn(async move {
            let began = network.now();
            let waiting = Waiting {
                wait,
                client,
                began,
            };
            let _ = reports.send(Report::Waits(waiting));
            let mut call = Box::pin(async move {
                match limit_ms {
                    None => latch.wait_zero().await.map(|()| true),
                    Some(ms) => latch.wait_zero_within(Duration::from_millis(ms)).await,
                }
            });
            let mut ended = cancelled(&mut call, cancel).await;
            if ended.is_none() && matches!(cancel, Cancel::Left(_)) {
                let _ = reports.send(Report::Left(wait));
                tokio::time::sleep(LEFT).await;
                ended = Some(call.await);
            }
            let opened = ended.and_then(Result::ok);
            let at = network.now();
            let _ = reports.send(Report::Ended { wait, at, opened });
        });
    }

    fn report(&self, report: Report) {
        // A run that found a violation receives no more reports.
        let _ = self.reports.send(report);
    }
}

/// How long a wait is not polled.
const LEFT: Duration = Duration::from_millis(300);
