//! The steps of one run. They are derived from its seed, and shortened in the search for the shortest
//! failing plan.

use super::crowd::Crowd;
use super::together::{POLL_CAP_MS, Together};
use crate::simulation::chance::Chance;
use crate::simulation::network::Faults;
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
    /// It replaces the tasks.
    pub(super) scene: Option<Scene>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Scene {
    Crowd(Crowd),
    Together(Together),
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Task {
    pub(super) client: usize,
    pub(super) owner: u64,
    pub(super) steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Step {
    /// A first acquire or a re-entry, depending on what the owner holds.
    Acquire {
        reads: bool,
        wait_ms: Option<u64>,
        lease_ms: Option<u64>,
        cancel: Cancel,
    },
    /// Unlocks the newest guard.
    Unlock(Cancel),
    /// Drops the oldest guard, because guards may end in any order.
    Drop,
    /// Leaves the oldest guard to its lease.
    Leave,
    /// Converts the newest guard to the other mode.
    Change {
        wait_ms: u64,
        cancel: Cancel,
    },
    Rest(u64),
}

impl Plan {
    pub(super) fn draw(seed: u64) -> Self {
        let mut world = plan::Plan::draw(seed);
        world.tasks.clear();
        let mut chance = Chance::new(seed, 30);
        let lease_ms = world.watchdog_lease_ms;
        // The fourth task shares the third owner.
        let owners = [0, 1, 2, 2, 3];
        let count = chance.within(2, 5) as usize;
        let tasks = owners.into_iter().take(count).map(|owner| Task {
            client: usize::from(owner == 1),
            owner,
            steps: (0..chance.within(3, 9))
                .map(|_| step(&mut chance, lease_ms))
                .collect(),
        });
        let mut plan = Self {
            tasks: tasks.collect(),
            redisson: None,
            world,
            scene: None,
        };
        if chance.percent(2) {
            plan.scene = Some(Scene::Crowd(Crowd::draw(&mut chance)));
        } else if chance.percent(2) {
            plan.scene = Some(Scene::Together(Together::draw(&mut chance)));
            plan.world.poll_cap_ms = POLL_CAP_MS;
        }
        if plan.scene.is_some() {
            plan.tasks.clear();
            plan.world.faults = Faults::default();
            plan.world.pauses.clear();
        } else {
            // A shorter lease of Redisson's watchdog would shorten the key's TTL below the leases of
            // others.
            plan.redisson = RedissonPlan::draw(seed, &[0], plan.longest_lease_ms());
        }
        plan
    }

    pub(super) fn is_without_faults(&self) -> bool {
        self.world.faults == Faults::default() && self.world.pauses.is_empty()
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
    let [cancel_acquire, cancel_end] = [25, 20].map(|percent| Cancel::draw(chance, percent));
    match chance.within(0, 99) {
        0..45 => Step::Acquire {
            reads: chance.percent(60),
            wait_ms: chance.percent(60).then(|| chance.within(1, 2 * lease_ms)),
            lease_ms: chance.percent(50).then(|| chance.within(20, 2 * lease_ms)),
            cancel: cancel_acquire,
        },
        45..62 => Step::Unlock(cancel_end),
        62..72 => Step::Drop,
        72..76 => Step::Leave,
        76..90 => Step::Change {
            wait_ms: chance.within(0, lease_ms),
            cancel: cancel_end,
        },
        _ => {
            let longest = chance.one_of(&[5, 50, 2 * lease_ms]);
            Step::Rest(chance.within(0, longest))
        }
    }
}
