//! Runs the jobs that dropped guards and cancelled calls left: with few tasks at a time, and so that a
//! silent server delays only its own jobs.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use crate::hold::{HoldPhase, HoldState};
use crate::panics;
use crate::session::{Core, Job, Lane, Unsettled, settle};

/// Settlements in progress. A job has a task while its command is in flight, and while it waits for its
/// turn behind another command of its hold. Otherwise it is in the queue of a lane or in the heap.
pub(super) struct Settlements<'a> {
    core: &'a Arc<Core>,
    tasks: JoinSet<JobStep>,
    /// Each lane has its own limit, so a silent lane takes no capacity from the others.
    lanes: HashMap<Lane, LaneQueue>,
    /// Jobs to retry, the earliest first.
    later: BinaryHeap<DelayedJob>,
    /// How many jobs were put into `later` so far.
    delayed: u64,
}

/// The jobs of one lane.
#[derive(Default)]
struct LaneQueue {
    running: usize,
    waiting: VecDeque<Job>,
}

/// A job that waits for its next attempt.
struct DelayedJob {
    at: Instant,
    /// Jobs of the same moment are in the order of insertion.
    number: u64,
    job: Job,
}

/// The result of a task.
enum JobStep {
    /// The job got its turn.
    Turn(Job),
    Tried(Lane, Option<Unsettled>),
}

impl<'a> Settlements<'a> {
    pub(super) fn new(core: &'a Arc<Core>) -> Self {
        Self {
            core,
            tasks: JoinSet::new(),
            lanes: HashMap::new(),
            later: BinaryHeap::new(),
            delayed: 0,
        }
    }

    pub(super) fn begin(&mut self, mut job: Job) {
        let rest = job.rest(self.core.clock.now());
        if !rest.is_zero() {
            return self.postpone(job, rest);
        }
        if job.try_turn() {
            return self.enqueue(job);
        }
        self.tasks.spawn(async move {
            job.acquire_turn().await;
            JobStep::Turn(job)
        });
    }

    /// Processes the next event; pending while there is none.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost.
    pub(super) async fn process_next(&mut self) {
        let next = self.later.peek().map(|next| next.at);
        let next_try = async {
            match next {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            Some(done) = self.tasks.join_next() => self.process_step(done),
            () = next_try => {
                if let Some(next) = self.later.pop() {
                    self.begin(next.job);
                }
            }
        }
    }

    /// Releases all holds and pending acquires, and waits for all jobs.
    pub(super) async fn finish(mut self, jobs: &mut UnboundedReceiver<Job>) {
        let now = self.core.clock.now();
        let is_due = |job: &Job| job.rest(now).is_zero();
        // A lock that a guard left to its lease stays in Redis.
        self.later.retain(|later| is_due(&later.job));
        for hold in self.core.holds.all() {
            let phase = hold.state().phase;
            if matches!(
                phase,
                HoldPhase::Pending | HoldPhase::Held | HoldPhase::Jeopardy
            ) {
                self.core.holds.change(&hold, HoldState::end);
                self.begin(Job::new(hold));
            }
        }
        jobs.close();
        while let Some(job) = jobs.recv().await {
            if is_due(&job) {
                self.begin(job);
            }
        }
        while !self.is_idle() {
            self.process_next().await;
        }
    }

    fn is_idle(&self) -> bool {
        self.tasks.is_empty() && self.later.is_empty() && self.lanes.is_empty()
    }

    /// Tries the job, or queues it in its lane.
    fn enqueue(&mut self, job: Job) {
        let lane = job.lane(self.core);
        let queue = self.lanes.entry(lane).or_default();
        if queue.running >= AT_ONCE {
            queue.waiting.push_back(job);
            return;
        }
        queue.running += 1;
        let core = self.core.clone();
        self.tasks
            .spawn(async move { JobStep::Tried(lane, settle(&core, job).await) });
    }

    fn process_step(&mut self, done: Result<JobStep, JoinError>) {
        let done = match done {
            Ok(done) => done,
            Err(error) => return panics::pass_on(Err(error)),
        };
        let (lane, unsettled) = match done {
            JobStep::Turn(job) => return self.enqueue(job),
            JobStep::Tried(lane, unsettled) => (lane, unsettled),
        };
        let mut gave_up = false;
        if let Some(unsettled) = unsettled {
            gave_up = unsettled.gave_up;
            self.postpone(unsettled.job, unsettled.pause);
        }
        self.end_try(lane, gave_up);
    }

    fn postpone(&mut self, job: Job, pause: Duration) {
        self.delayed += 1;
        self.later.push(DelayedJob {
            at: Instant::now() + pause,
            number: self.delayed,
            job,
        });
    }

    /// A task of the lane has ended: starts the next job.
    fn end_try(&mut self, lane: Lane, gave_up: bool) {
        let Some(queue) = self.lanes.get_mut(&lane) else {
            return;
        };
        queue.running -= 1;
        let mut next = VecDeque::new();
        if gave_up {
            // The connection was abandoned, and the server was asked to close it: the waiting jobs use
            // another connection.
            next = std::mem::take(&mut queue.waiting);
            next.iter_mut().for_each(Job::leave_connection);
        } else if let Some(job) = queue.waiting.pop_front() {
            next.push_back(job);
        }
        if queue.running == 0 && queue.waiting.is_empty() {
            self.lanes.remove(&lane);
        }
        for job in next {
            self.enqueue(job);
        }
    }
}

impl Ord for DelayedJob {
    fn cmp(&self, other: &Self) -> Ordering {
        // Reversed, because the heap returns the largest first.
        let key = |later: &Self| (later.at, later.number);
        key(other).cmp(&key(self))
    }
}

impl PartialOrd for DelayedJob {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Eq for DelayedJob {}

impl PartialEq for DelayedJob {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

/// This many concurrent commands are enough to fill a connection.
const AT_ONCE: usize = 256;

#[cfg(test)]
mod on_servers {
    use super::*;
    use crate::client::Client;
    use crate::hold::Hold;
    use crate::key::{LockKey, kind};
    use crate::owner::Owner;
    use crate::support::prelude::{LONG, SOON};
    use crate::support::{RedisServer, eventually};

    /// A client of this server, whose background opens connections, and the core for the settlements of
    /// the test.
    async fn client(server: &RedisServer) -> (Client, Arc<Core>) {
        let client = Client::connect(server.url()).await.unwrap();
        let core = client.lock("l").session().core().clone();
        (client, core)
    }

    fn ended(core: &Core, number: usize) -> Arc<Hold> {
        let key = LockKey::new(&kind::PLAIN, &format!("l{number}"), None).unwrap();
        let hold = core.holds.enter(&Arc::new(key), Owner::new());
        let now = core.clock.now();
        hold.state().sending(now, LONG);
        core.holds.change(&hold, HoldState::end);
        hold
    }

    #[tokio::test]
    async fn many_jobs_run_in_a_bounded_number_of_tasks() {
        let server = RedisServer::start().await;
        let (_client, core) = client(&server).await;
        let mut settling = Settlements::new(&core);
        for number in 0..20_000 {
            settling.begin(Job::new(ended(&core, number)));
            let tasks = settling.tasks.len();
            assert!(tasks <= AT_ONCE, "{tasks} tasks");
        }
        while !settling.is_idle() {
            settling.process_next().await;
            let tasks = settling.tasks.len();
            assert!(tasks <= AT_ONCE, "{tasks} tasks");
        }
        assert!(core.holds.all().is_empty());
    }

    #[tokio::test]
    async fn jobs_on_a_silent_connection_do_not_delay_other_jobs() {
        let [server, silent] = [RedisServer::start().await, RedisServer::start().await];
        let (_client, core) = client(&server).await;
        let (_other, others) = client(&silent).await;
        let node = others.server.node("").unwrap();
        let dead = node.connection(SOON).await.unwrap();
        silent.pause();
        let mut settling = Settlements::new(&core);
        for number in 0..2 * AT_ONCE {
            let hold = ended(&core, number);
            settling.begin(Job::after(hold, None, Some(dead.clone())));
        }
        // On a silent connection no job ends before a command timeout has passed.
        settling.begin(Job::new(ended(&core, 2 * AT_ONCE)));
        let mut ended = 0;
        eventually(SOON, "the other lock is released", async || {
            settling.process_next().await;
            ended += 1;
            core.holds.all().len() == 2 * AT_ONCE
        })
        .await;
        assert_eq!(ended, 1, "others were waited for");
        silent.resume();
        while !settling.is_idle() {
            settling.process_next().await;
        }
        assert!(core.holds.all().is_empty());
    }
}
