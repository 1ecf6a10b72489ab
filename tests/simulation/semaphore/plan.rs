//! The steps of one run. They are derived from its seed, and shortened in the search for the shortest
//! failing plan.

use std::iter;

use crate::simulation::chance::Chance;
use crate::simulation::plan::{self, Cancel};
use crate::simulation::redisson::RedissonPlan;
use crate::simulation::shorter::{self, Parts};

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Plan {
    /// Clocks, faults, pauses and settings. Its own tasks are not used.
    pub(super) world: plan::Plan,
    /// How many permits the semaphore has.
    pub(super) total: u32,
    pub(super) tasks: Vec<Task>,
    /// A Redisson client runs, too.
    pub(super) redisson: Option<RedissonPlan>,
    /// All calls wait for one permit each, and there are no faults.
    pub(super) is_crowded: bool,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Task {
    pub(super) client: usize,
    pub(super) steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Step {
    Acquire {
        /// 0: all that are free.
        permits: u32,
        wait_ms: Option<u64>,
        cancel: Cancel,
    },
    /// Releases the newest value.
    Release(Cancel),
    /// Drops the oldest value.
    Drop,
    /// Makes two values of the newest, if it has more than one permit.
    Split,
    /// Forgets the newest value, and releases as many permits by their number.
    ByNumber(Cancel),
    /// Releases the permits of the other client's requests while that client still runs.
    Reclaim,
    /// The ledger is deleted, unless something was reclaimed.
    LoseLedger,
    /// The number is deleted and set again.
    SetAgain,
    /// Resumes the oldest abandoned call.
    Resume,
    Rest(u64),
}

impl Plan {
    pub(super) fn draw(seed: u64) -> Self {
        let mut world = plan::Plan::draw(seed);
        world.tasks.clear();
        let mut chance = Chance::new(seed, 12);
        world.listens = chance.percent(60);
        let total = chance.one_of(&[1, 2, 3, 5]);
        // The known limitation: if the ledger is lost after the number was set again, nothing shows
        // which requests had ended.
        let losses = match chance.within(0, 9) {
            0..3 => [true, false],
            3..6 => [false, true],
            _ => [false, false],
        };
        let tasks = (0..chance.within(2, 5)).map(|task| {
            let steps = chance.within(3, 9);
            Task {
                // There are two clients, and one of them has most of the tasks.
                client: usize::from(task == 1),
                steps: (0..steps)
                    .map(|_| step(&mut chance, total, losses))
                    .collect(),
            }
        });
        let redisson = RedissonPlan::draw(seed, &[0], 0);
        let mut plan = Self {
            tasks: tasks.collect(),
            // It would release permits of a deleted number to the next number.
            redisson: redisson.filter(|_| !losses[1]),
            world,
            total,
            is_crowded: false,
        };
        plan.be_crowded(seed);
        plan
    }

    /// In some runs several tasks of one client use one permit each, again and again. The client hands them from
    /// task to task. The other choices of a seed stay as they are.
    fn be_crowded(&mut self, seed: u64) {
        let mut chance = Chance::new(seed, 17);
        if !chance.percent(20) {
            return;
        }
        self.is_crowded = true;
        self.redisson = None;
        self.world.be_prompt();
        self.total = chance.one_of(&[2, 3, 5]);
        let most = u64::from(self.total);
        let rounds = chance.within(10, 60);
        let longest = chance.one_of(&[0, 5, 20]);
        // In some of them another client waits, too.
        let others = u64::from(chance.percent(30));
        let tasks = (0..chance.within(most + 4, most + 8)).map(|task| {
            let rounds = (0..rounds).flat_map(|_| {
                let acquire = Step::Acquire {
                    permits: 1,
                    wait_ms: Some(60_000),
                    cancel: Cancel::Never,
                };
                let held = (longest > 0).then(|| Step::Rest(chance.within(0, longest)));
                iter::once(acquire)
                    .chain(held)
                    .chain([Step::Release(Cancel::Never)])
            });
            Task {
                client: usize::from(task < others),
                steps: rounds.collect(),
            }
        });
        self.tasks = tasks.collect();
    }

    /// Every plan that is one change shorter than this one, unless it is crowded.
    pub(super) fn smaller(&self) -> Vec<Self> {
        // It has up to two thousand steps, and a search through them would take many minutes.
        if self.is_crowded {
            return Vec::new();
        }
        shorter::plans(
            self,
            |plan| Parts {
                world: &mut plan.world,
                tasks: &mut plan.tasks,
                redisson: &mut plan.redisson,
            },
            |task| &mut task.steps,
        )
    }
}

fn step(chance: &mut Chance, total: u32, [ledger, number]: [bool; 2]) -> Step {
    let mut cancel = |percent| match chance.within(0, 99) {
        n if n >= percent => Cancel::Never,
        n if n % 3 == 0 => Cancel::Left(chance.within(1, 6)),
        n if n % 2 == 0 => Cancel::AtPoll(chance.within(1, 6)),
        _ => Cancel::After(chance.within(0, 100)),
    };
    let (cancel_acquire, cancel_end) = (cancel(30), cancel(20));
    match chance.within(0, 99) {
        0..44 => Step::Acquire {
            permits: chance.within(0, u64::from(total)) as u32,
            wait_ms: chance.percent(60).then(|| chance.within(1, 300)),
            cancel: cancel_acquire,
        },
        // As in Redisson, it adds permits that no request has, such as those whose loss the client has learned.
        76..82 if !number && !ledger => Step::ByNumber(cancel_end),
        44..62 | 76..82 => Step::Release(cancel_end),
        62..70 => Step::Drop,
        70..76 => Step::Split,
        82..86 if ledger => Step::LoseLedger,
        82..86 if number => Step::Reclaim,
        86..90 if ledger => Step::Reclaim,
        86..90 if number => Step::SetAgain,
        82..94 => Step::Resume,
        _ => {
            let longest = chance.one_of(&[5, 50, 200]);
            Step::Rest(chance.within(0, longest))
        }
    }
}
