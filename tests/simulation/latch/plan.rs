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
    TrySet {
        count: i64,
        cancel: Cancel,
    },
    CountDown(Cancel),
    Delete(Cancel),
    /// Begins a wait in a task of its own.
    Wait {
        limit_ms: Option<u64>,
        cancel: Cancel,
    },
    /// The server restarts without its data.
    Restart,
    Rest(u64),
}

impl Plan {
    pub(super) fn draw(seed: u64) -> Self {
        let mut world = plan::Plan::draw(seed);
        world.tasks.clear();
        let mut chance = Chance::new(seed, 14);
        world.listens = chance.percent(70);
        world.faults.undelivered = chance.one_of(&[0, 0, 30]);
        let restarts = chance.percent(20);
        let tasks = (0..chance.within(2, 5)).map(|task| {
            let steps = chance.within(3, 9);
            Task {
                // There are two clients, and one of them has most of the tasks.
                client: usize::from(task == 1),
                steps: (0..steps).map(|_| step(&mut chance, restarts)).collect(),
            }
        });
        Self {
            tasks: tasks.collect(),
            redisson: RedissonPlan::draw(seed, &[0], 0),
            world,
        }
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

fn step(chance: &mut Chance, restarts: bool) -> Step {
    let mut cancel = |percent| match chance.within(0, 99) {
        n if n >= percent => Cancel::Never,
        n if n % 3 == 0 => Cancel::Left(chance.within(1, 6)),
        n if n % 2 == 0 => Cancel::AtPoll(chance.within(1, 6)),
        _ => Cancel::After(chance.within(0, 100)),
    };
    let cancel = cancel(25);
    match chance.within(0, 99) {
        0..22 => Step::TrySet {
            count: chance.one_of(&[0, 1, 1, 2, 2, 3]),
            cancel,
        },
        22..50 => Step::CountDown(cancel),
        50..54 => Step::Delete(cancel),
        54..82 => Step::Wait {
            limit_ms: chance.percent(40).then(|| chance.within(0, 500)),
            cancel,
        },
        82..85 if restarts => Step::Restart,
        _ => {
            let longest = chance.one_of(&[5, 50, 500]);
            Step::Rest(chance.within(0, longest))
        }
    }
}
