//! The steps of one run. They are derived from its seed, and shortened in the search for the shortest
//! failing plan.

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
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Task {
    pub(super) client: usize,
    pub(super) steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Step {
    Acquire {
        permits: u32,
        wait_ms: Option<u64>,
        lease_ms: Option<u64>,
        cancel: Cancel,
    },
    /// Releases the newest value.
    Release(Cancel),
    /// Drops the oldest value.
    Drop,
    /// Makes two values of the newest, if it has more than one permit.
    Split,
    /// Keeps the ids of the newest value, and not the value.
    HandOut,
    /// Releases the oldest ids.
    GiveBack(Cancel),
    /// Resumes the oldest abandoned call.
    Resume,
    Rest(u64),
}

impl Plan {
    pub(super) fn draw(seed: u64) -> Self {
        let mut world = plan::Plan::draw(seed);
        world.tasks.clear();
        let mut chance = Chance::new(seed, 10);
        let total = chance.one_of(&[1, 2, 3]);
        let lease_ms = world.watchdog_lease_ms;
        let tasks = (0..chance.within(2, 5)).map(|task| {
            let steps = chance.within(3, 9);
            Task {
                // There are two clients, and one of them has most of the tasks.
                client: usize::from(task == 1),
                steps: (0..steps)
                    .map(|_| step(&mut chance, lease_ms, total))
                    .collect(),
            }
        });
        Self {
            tasks: tasks.collect(),
            // A client whose clock is ahead takes permits before the end of their leases.
            redisson: RedissonPlan::draw(seed, &[0, -500, -60_000], lease_ms),
            world,
            total,
        }
    }

    /// How long a permit of the run may exist on the server after the last command.
    pub(super) fn longest_lease_ms(&self) -> u64 {
        let steps = self.tasks.iter().flat_map(|task| &task.steps);
        let leases = steps.filter_map(|step| match step {
            Step::Acquire { lease_ms, .. } => *lease_ms,
            _ => None,
        });
        leases.fold(self.world.watchdog_lease_ms, u64::max)
    }

    /// Every plan that is one change shorter than this one.
    pub(super) fn smaller(&self) -> Vec<Self> {
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

fn step(chance: &mut Chance, lease_ms: u64, total: u32) -> Step {
    let [cancel_acquire, cancel_end] = [30, 20].map(|percent| Cancel::draw(chance, percent));
    match chance.within(0, 99) {
        0..42 => Step::Acquire {
            permits: chance.within(1, u64::from(total)) as u32,
            wait_ms: chance.percent(60).then(|| chance.within(1, 2 * lease_ms)),
            lease_ms: chance.percent(50).then(|| chance.within(20, 2 * lease_ms)),
            cancel: cancel_acquire,
        },
        42..60 => Step::Release(cancel_end),
        60..70 => Step::Drop,
        70..74 => Step::Split,
        74..80 => Step::HandOut,
        80..88 => Step::GiveBack(cancel_end),
        88..93 => Step::Resume,
        _ => {
            let longest = chance.one_of(&[5, 50, 2 * lease_ms]);
            Step::Rest(chance.within(0, longest))
        }
    }
}
