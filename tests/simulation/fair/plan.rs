//! The steps of one run. They are derived from its seed, and shortened in the search for the shortest
//! failing plan.

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
    /// The lock is that of an election.
    pub(super) is_election: bool,
    pub(super) death: Option<Death>,
    /// A Redisson client runs, too.
    pub(super) redisson: Option<RedissonPlan>,
}

/// A client dies: its tasks and its watchdog end, and it sends no more commands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Death {
    pub(super) client: usize,
    pub(super) at_ms: u64,
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
        wait_ms: Option<u64>,
        lease_ms: Option<u64>,
        /// The least time of the lock.
        least_ms: Option<u64>,
        cancel: Cancel,
    },
    /// Unlocks the newest guard.
    Unlock(Cancel),
    /// Drops the oldest guard.
    Drop,
    Force,
    /// Resumes the oldest abandoned call.
    Resume,
    Rest(u64),
    /// The leader publishes another value.
    Proclaim(Cancel),
    /// Asks for the leader.
    AskLeader,
    /// The leader's value is deleted.
    Erase,
    /// Awaits the next leader with the task's stream, or with a new one if it has none.
    Observe(Cancel),
    /// Drops the stream.
    LookAway,
}

impl Plan {
    pub(super) fn draw(seed: u64) -> Self {
        let mut world = plan::Plan::draw(seed);
        world.tasks.clear();
        let mut chance = Chance::new(seed, 20);
        // With two of the three values, faults can keep a waiter silent for so long that it loses its
        // place.
        world.silence_ms = chance.one_of(&[10_000, 6 * world.poll_cap_ms, 2_000]);
        if chance.percent(25) {
            // The server does not answer for longer than a waiter's presence lasts.
            let begin = chance.within(50, 1_500);
            world.faults.stalls = [begin, begin + chance.within(100, 3_500)];
            world.command_timeout_ms = chance.one_of(&[world.command_timeout_ms, 5_000]);
            world.silence_ms = 10_000;
        }
        let lease_ms = world.watchdog_lease_ms;
        let tasks = (0..chance.within(2, 6)).map(|task| {
            let steps = chance.within(3, 8);
            Task {
                // There are two clients, and one of them has most of the tasks.
                client: usize::from(task % 3 == 1),
                steps: (0..steps).map(|_| step(&mut chance, lease_ms)).collect(),
            }
        });
        let mut plan = Self {
            tasks: tasks.collect(),
            is_election: seed % 3 == 2,
            death: Death::draw(seed, &mut world),
            redisson: RedissonPlan::draw(seed, &[0, 60_000, -60_000], lease_ms),
            world,
        };
        if chance.percent(5) {
            plan.tasks = long_hold(&mut chance);
            plan.world.silence_ms = 2_000;
        }
        match plan.is_election {
            true => plan.be_an_election(),
            false => plan.keep_locks(),
        }
        plan
    }

    /// In some runs every other acquire has a least time, and more locks are forced, so that an unlock finds that its
    /// lock was lost.
    fn keep_locks(&mut self) {
        let mut chance = Chance::new(self.world.seed, 24);
        if !chance.percent(40) {
            return;
        }
        let lease_ms = self.world.watchdog_lease_ms;
        let longest = chance.one_of(&[lease_ms / 2, 2 * lease_ms]);
        for step in self.tasks.iter_mut().flat_map(|task| &mut task.steps) {
            match step {
                Step::Acquire { least_ms, .. } if chance.percent(50) => {
                    *least_ms = Some(chance.within(10, longest));
                }
                Step::Rest(_) if chance.percent(20) => *step = Step::Force,
                _ => {}
            }
        }
    }

    /// Adds the steps of candidates. The other choices of a seed stay those of a fair lock.
    fn be_an_election(&mut self) {
        let mut chance = Chance::new(self.world.seed, 22);
        for task in &mut self.tasks {
            let steps = task.steps.drain(..).flat_map(|step| {
                let further = chance.percent(40).then(|| match chance.within(0, 99) {
                    0..45 => Step::Proclaim(Cancel::draw(&mut chance, 20)),
                    45..90 => Step::AskLeader,
                    _ => Step::Erase,
                });
                [Some(step), further]
            });
            let steps: Vec<Step> = steps.flatten().collect();
            task.steps = steps;
        }
        let watchers = (0..chance.within(1, 2)).map(|_| Task {
            client: chance.within(0, 1) as usize,
            steps: (0..chance.within(3, 8))
                .flat_map(|_| watch(&mut chance))
                .collect(),
        });
        let watchers: Vec<Task> = watchers.collect();
        self.tasks.extend(watchers);
        if chance.percent(40) {
            // A message arrives long before the next poll.
            self.world.listens = true;
            self.world.poll_cap_ms = 2_000;
            self.world.silence_ms = 10_000;
        }
    }

    /// How long the lock of the run may exist on the server after the last command.
    pub(super) fn longest_lease_ms(&self) -> u64 {
        let steps = self.tasks.iter().flat_map(|task| &task.steps);
        let leases = steps.filter_map(|step| match step {
            Step::Acquire {
                lease_ms, least_ms, ..
            } => (*lease_ms).max(*least_ms),
            _ => None,
        });
        leases.fold(self.world.watchdog_lease_ms, u64::max)
    }

    /// Every plan that is one change shorter than this one.
    pub(super) fn smaller(&self) -> Vec<Self> {
        let mut plans = shorter::plans(
            self,
            |plan| Parts {
                world: &mut plan.world,
                tasks: &mut plan.tasks,
                redisson: &mut plan.redisson,
            },
            |task| &mut task.steps,
        );
        if self.death.is_some() {
            plans.push(Self {
                death: None,
                ..self.clone()
            });
        }
        plans
    }
}

impl Death {
    /// Draws a death in a quarter of the runs, half of which have no faults.
    fn draw(seed: u64, world: &mut plan::Plan) -> Option<Self> {
        let mut chance = Chance::new(seed, 23);
        if !chance.percent(25) {
            return None;
        }
        if chance.percent(50) {
            world.faults = Faults {
                kill: world.faults.kill,
                ..Faults::default()
            };
            world.pauses.clear();
        }
        Some(Self {
            client: chance.within(0, 1) as usize,
            at_ms: chance.within(20, 2_500),
        })
    }
}

/// One owner holds the lock for longer than other owners of its client may send nothing.
fn long_hold(chance: &mut Chance) -> Vec<Task> {
    let acquire = Step::Acquire {
        wait_ms: Some(9_000),
        lease_ms: None,
        least_ms: None,
        cancel: Cancel::Never,
    };
    let held_ms = chance.within(3_000, 7_000);
    let task = |client, steps| Task { client, steps };
    let waits = |first| vec![Step::Rest(first), acquire, Step::Drop];
    vec![
        task(0, vec![acquire, Step::Rest(held_ms), Step::Drop]),
        task(0, waits(chance.within(10, 500))),
        task(0, waits(chance.within(10, 500))),
        task(1, waits(chance.within(10, 500))),
    ]
}

/// The steps of an observer of the leaders.
fn watch(chance: &mut Chance) -> Vec<Step> {
    match chance.within(0, 99) {
        0..60 => {
            let longest = chance.one_of(&[50, 300, 1_000]);
            vec![Step::Observe(Cancel::After(chance.within(10, longest)))]
        }
        60..70 => vec![Step::Observe(Cancel::AtPoll(chance.within(1, 6)))],
        70..85 => vec![
            Step::Observe(Cancel::Left(chance.within(1, 6))),
            Step::Rest(chance.within(0, 500)),
            Step::Resume,
        ],
        85..93 => vec![Step::Rest(chance.within(0, 500))],
        _ => vec![Step::LookAway],
    }
}

fn step(chance: &mut Chance, lease_ms: u64) -> Step {
    let [cancel_acquire, cancel_end] = [30, 20].map(|percent| Cancel::draw(chance, percent));
    match chance.within(0, 99) {
        0..50 => Step::Acquire {
            wait_ms: chance.percent(85).then(|| chance.within(1, 8 * lease_ms)),
            lease_ms: chance.percent(50).then(|| chance.within(20, 2 * lease_ms)),
            least_ms: None,
            cancel: cancel_acquire,
        },
        50..70 => Step::Unlock(cancel_end),
        70..80 => Step::Drop,
        80..83 => Step::Force,
        83..89 => Step::Resume,
        _ => {
            let longest = chance.one_of(&[5, 50, 2 * lease_ms]);
            Step::Rest(chance.within(0, longest))
        }
    }
}
