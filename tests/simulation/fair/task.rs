//! One task of a plan, written as a user would write it.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use super::contest::{Call, Contest, HoldName, Won};
use super::election::Shown;
use super::patience::Patience;
use super::plan::{Step, Task};
use super::watches::StreamId;
use crate::election::{Leader, Leaders};
use crate::error::{Error, Result};
use crate::owner::Owner;
use crate::session::Unlocked;
use crate::simulation::network::Network;
use crate::simulation::plan::Cancel;
use crate::simulation::task::{LeastTime, cancelled};

/// The reports of a task to the observer.
pub(super) enum Report {
    Says(String),
    /// An unlock returned that this hold is deleted in Redis.
    Released(HoldName),
    /// An acquire with a least time returned this hold.
    Keeps(HoldName, LeastTime),
    /// An unlock returned that Redis keeps this hold's lock for this time.
    Kept(HoldName, Duration),
    /// This owner is the leader.
    Leads {
        owner: String,
        term: u64,
    },
    /// A call returned the leader. The time, in nanoseconds, is that of its beginning.
    Asked {
        began: u64,
        leader: Option<Shown>,
    },
    /// The leader's value is to be deleted.
    Erases,
    /// A stream is polled from now on, until it returns or for a while.
    Observes(StreamId),
    /// The stream is no longer polled.
    LooksAway(StreamId),
    /// A stream returned the leader. The time is that of the beginning of its call.
    Observed {
        stream: StreamId,
        began: u64,
        leader: Option<Shown>,
    },
}

/// A call that was polled a few times and abandoned, to be resumed or dropped later.
pub(super) enum Left {
    Acquire(Option<LeastTime>, Call<Option<Won>>),
    Unlock(Call<Unlocked>),
    Observe {
        stream: StreamId,
        began: u64,
        call: Pin<Box<dyn Future<Output = Observed> + Send>>,
    },
}

/// A stream, and the result of its call.
type Observed = (Leaders, Result<Option<Leader>>);

/// Runs every step, and returns the remaining holds and the abandoned calls.
pub(super) async fn run(
    number: usize,
    task: Task,
    contest: Contest,
    patience: Patience,
    network: Arc<Network>,
    reports: UnboundedSender<Report>,
) -> (Vec<Won>, Vec<Left>) {
    let mut runner = Runner {
        number,
        client: task.client,
        owner: Owner::from_id(number as u64),
        contest,
        patience,
        network,
        reports,
        won: Vec::new(),
        left: Vec::new(),
        values: 0,
        leaders: None,
        streams: 0,
    };
    for step in task.steps {
        runner.report(Report::Says(format!("owner {number}: {step:?}")));
        runner.take(step).await;
    }
    (runner.won, runner.left)
}

struct Runner {
    number: usize,
    client: usize,
    owner: Owner,
    contest: Contest,
    patience: Patience,
    network: Arc<Network>,
    reports: UnboundedSender<Report>,
    won: Vec<Won>,
    /// From the oldest to the newest.
    left: Vec<Left>,
    /// The number of values that the task has made.
    values: u64,
    /// The stream with which the task observes the leaders, and the number of streams that it has
    /// begun.
    leaders: Option<(StreamId, Leaders)>,
    streams: u64,
}

impl Runner {
    async fn take(&mut self, step: Step) {
        match step {
            Step::Acquire {
                wait_ms,
                lease_ms,
                least_ms,
                cancel,
            } => {
                let [wait, lease, at_least] =
                    [wait_ms, lease_ms, least_ms].map(|ms| ms.map(Duration::from_millis));
                let began = self.network.now();
                let least = least_ms.map(|ms| LeastTime { ms, began });
                let value = self.value();
                let contest = &self.contest;
                let mut call = contest.acquire(&self.owner, wait, lease, at_least, value);
                // The pending holds of an owner that abandoned a call are not distinguished.
                let is_patient =
                    cancel == Cancel::Never && wait_ms.is_some() && self.left.is_empty();
                let owner = self.owner.to_string();
                let wait = is_patient.then(|| self.patience.begin(&owner));
                let result = cancelled(&mut call, cancel).await;
                drop(wait);
                match result {
                    Some(Ok(won)) => self.won(won, least),
                    Some(Err(Error::Lost(_))) => self.won.clear(),
                    Some(Err(_)) => {}
                    None if matches!(cancel, Cancel::Left(_)) => {
                        self.left.push(Left::Acquire(least, call));
                    }
                    None => {}
                }
            }
            Step::Unlock(cancel) => {
                if let Some(won) = self.won.pop() {
                    let name = won.name();
                    let mut call = won.end();
                    match cancelled(&mut call, cancel).await {
                        Some(Ok(Unlocked::Released)) => self.report(Report::Released(name)),
                        Some(Ok(Unlocked::Kept { rest })) => self.report(Report::Kept(name, rest)),
                        None if matches!(cancel, Cancel::Left(_)) => {
                            self.left.push(Left::Unlock(call));
                        }
                        _ => {}
                    }
                }
            }
            Step::Drop => {
                if !self.won.is_empty() {
                    drop(self.won.remove(0));
                }
            }
            Step::Force => self.contest.force_unlock().await,
            Step::Resume => {
                if !self.left.is_empty() {
                    match self.left.remove(0) {
                        Left::Acquire(least, call) => {
                            let won = call.await.ok().flatten();
                            self.won(won, least);
                        }
                        Left::Unlock(call) => drop(call.await),
                        Left::Observe {
                            stream,
                            began,
                            mut call,
                        } => {
                            self.report(Report::Observes(stream));
                            let most = Duration::from_millis(MOST_MS);
                            match tokio::time::timeout(most, &mut call).await {
                                Ok((leaders, result)) => {
                                    self.observed(stream, began, Some(result));
                                    self.leaders = Some((stream, leaders));
                                }
                                Err(_) => self.observed(stream, began, None),
                            }
                        }
                    }
                }
            }
            Step::Rest(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
            Step::Proclaim(cancel) => {
                let value = self.value();
                if let Some(won) = self.won.last() {
                    // The observer checks whether the value was published.
                    let _ = cancelled(won.proclaim(value), cancel).await;
                }
            }
            Step::AskLeader => {
                let began = self.network.now();
                if let Some(leader) = self.contest.leader().await {
                    let leader = leader.map(Shown::of);
                    self.report(Report::Asked { began, leader });
                }
            }
            Step::Erase => self.report(Report::Erases),
            Step::Observe(cancel) => self.observe(cancel).await,
            Step::LookAway => self.leaders = None,
        }
    }

    async fn observe(&mut self, cancel: Cancel) {
        let Some((stream, mut leaders)) = self.leaders.take().or_else(|| self.begin()) else {
            return;
        };
        let began = self.network.now();
        self.report(Report::Observes(stream));
        if matches!(cancel, Cancel::Left(_)) {
            let mut call = Box::pin(async move {
                let leader = leaders.next().await;
                (leaders, leader)
            });
            match cancelled(&mut call, cancel).await {
                Some((leaders, result)) => {
                    self.observed(stream, began, Some(result));
                    self.leaders = Some((stream, leaders));
                }
                None => {
                    self.observed(stream, began, None);
                    self.left.push(Left::Observe {
                        stream,
                        began,
                        call,
                    });
                }
            }
            return;
        }
        let result = cancelled(leaders.next(), cancel).await;
        self.observed(stream, began, result);
        self.leaders = Some((stream, leaders));
    }

    fn begin(&mut self) -> Option<(StreamId, Leaders)> {
        self.streams += 1;
        let stream = StreamId {
            client: self.client,
            task: self.number,
            number: self.streams,
        };
        Some((stream, self.contest.observe()?))
    }

    fn observed(&self, stream: StreamId, began: u64, result: Option<Result<Option<Leader>>>) {
        self.report(match result {
            Some(Ok(leader)) => Report::Observed {
                stream,
                began,
                leader: leader.map(Shown::of),
            },
            Some(Err(_)) | None => Report::LooksAway(stream),
        });
    }

    fn won(&mut self, won: Option<Won>, least: Option<LeastTime>) {
        if let (Some(won), Some(least)) = (&won, least) {
            self.report(Report::Keeps(won.name(), least));
        }
        if let Some(HoldName::Term(term)) = won.as_ref().map(Won::name) {
            let owner = self.owner.to_string();
            self.report(Report::Leads { owner, term });
        }
        self.won.extend(won);
    }

    /// A value that no leader has published before.
    fn value(&mut self) -> String {
        self.values += 1;
        format!("value {} of {}", self.values, self.owner)
    }

    fn report(&self, report: Report) {
        // A run that found a violation receives no more reports.
        let _ = self.reports.send(report);
    }
}

/// How long a task waits for the next leader at most, after it has resumed that call.
const MOST_MS: u64 = 1_000;
