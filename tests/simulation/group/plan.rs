//! The steps of one run. They are derived from its seed, and shortened in the search for the shortest
//! failing plan.

use super::command::VALUES;
use crate::simulation::chance::Chance;
use crate::simulation::plan::{self, Cancel};
use crate::simulation::redisson::RedissonPlan;
use crate::simulation::shorter::{self, Parts};

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Plan {
    /// Clocks, faults, pauses and settings. Its own tasks are not used.
    pub(super) world: plan::Plan,
    pub(super) tasks: Vec<Task>,
    /// A Redisson client runs, too.
    pub(super) redisson: Option<RedissonPlan>,
}

/// One task is one owner.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Task {
    pub(super) client: usize,
    pub(super) steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Step {
    Acquire {
        /// One bit for each value. An owner that holds some values uses those instead.
        values: u8,
        wait_ms: Option<u64>,
        lease_ms: Option<u64>,
        cancel: Cancel,
    },
    /// Unlocks the newest guard.
    Unlock(Cancel),
    /// Drops the oldest guard.
    Drop,
    /// Frees these values.
    Force(u8),
    /// Resumes the oldest abandoned call.
    Resume,
    Rest(u64),
}

impl Plan {
    pub(super) fn draw(seed: u64) -> Self {
        let mut world = plan::Plan::draw(seed);
        world.tasks.clear();
        let mut chance = Chance::new(seed, 40);
        let lease_ms = world.watchdog_lease_ms;
        let tasks = (0..chance.within(2, 5)).map(|task| {
            let steps = chance.within(3, 9);
            Task {
                // There are two clients, and one of them has most of the tasks.
                client: usize::from(task == 1),
                steps: (0..steps).map(|_| step(&mut chance, lease_ms)).collect(),
            }
        });
        Self {
            tasks: tasks.collect(),
            // A client whose clock is ahead takes values before the end of their time.
            redisson: RedissonPlan::draw(seed, &[0, -500, -60_000], lease_ms),
            world,
        }
    }

    /// How long a key of the run may exist on the server after the last command.
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

fn step(chance: &mut Chance, lease_ms: u64) -> Step {
    let [cancel_acquire, cancel_end] = [30, 20].map(|percent| Cancel::draw(chance, percent));
    let mut values = || chance.within(1, (1 << VALUES.len()) - 1) as u8;
    // The intersection of two draws has few values, so that several locks can be held at once.
    let (values, all) = (values() & values(), values());
    let values = if values == 0 { all } else { values };
    match chance.within(0, 99) {
        0..48 => Step::Acquire {
            values,
            wait_ms: chance.percent(60).then(|| chance.within(1, 2 * lease_ms)),
            lease_ms: chance.percent(50).then(|| chance.within(20, 2 * lease_ms)),
            cancel: cancel_acquire,
        },
        48..66 => Step::Unlock(cancel_end),
        66..78 => Step::Drop,
        78..82 => Step::Force(values),
        82..89 => Step::Resume,
        _ => {
            let longest = chance.one_of(&[5, 50, 2 * lease_ms]);
            Step::Rest(chance.within(0, longest))
        }
    }
}
