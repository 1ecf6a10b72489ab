//! What happens in one run: drawn from its seed, and cut shorter to find the shortest failing one.
//!
//! Every plan keeps to what a quorum needs (A1 to A3): rates that differ by less than one percent,
//! losses that are either covered by quarantine or happen to no more instances than are masked.

use crate::quorum::Rules;
use crate::simulation::Chance;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) instances: usize,
    pub(super) masked: usize,
    pub(super) fenced: bool,
    /// Instances have no clock that tokens could be taken from.
    pub(super) timeless: bool,
    /// Instances remember when they lost their data. Without it, each client has to have seen them
    /// before.
    pub(super) epochs: bool,
    pub(super) watchdog_lease_ms: u64,
    pub(super) poll_cap_ms: u64,
    /// When faults end, and nothing more goes wrong.
    pub(super) calm_ms: u64,
    /// When clients leave their scripts, and each wants the lock once more.
    pub(super) finish_ms: u64,
    pub(super) network: Faults,
    pub(super) walls: Vec<Wall>,
    pub(super) scripts: Vec<Script>,
    pub(super) mishaps: Vec<Mishap>,
}

/// In percent of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Faults {
    pub(super) slow: u64,
    pub(super) slow_ms: u64,
    pub(super) doubled: u64,
    pub(super) dropped: u64,
}

/// A clock: what it shows at the beginning, and its parts per million of the true rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Wall {
    pub(super) offset_ms: u64,
    pub(super) rate: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Script {
    pub(super) clock: Wall,
    /// It saw no instance before.
    pub(super) cold: bool,
    pub(super) steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    Acquire(Want),
    /// A further claim on what is held, if it is.
    Reenter {
        lease_ms: u64,
        renewed: bool,
    },
    /// A further claim bounds what is held.
    Bound(u64),
    /// The last claim without a lease ends before others.
    LetExpire,
    /// The driver has to give it up.
    Lose,
    Unlock,
    Rest(u64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Want {
    /// Without one it is renewed.
    pub(super) lease_ms: Option<u64>,
    pub(super) wait_ms: Option<u64>,
    /// Its caller gives a round up after so long.
    pub(super) cancel_ms: Option<u64>,
    pub(super) min_validity_ms: u64,
    pub(super) max_hold_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mishap {
    pub(super) at_ms: u64,
    pub(super) what: What,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum What {
    Crash {
        instance: usize,
        keeps: Keeps,
        down_ms: u64,
    },
    /// It stands still, and does everything later.
    Pause {
        instance: usize,
        ms: u64,
    },
    /// Within the drift that is allowed for.
    Step {
        instance: usize,
        ms: i64,
    },
    /// Beyond it: only on a masked instance.
    Jump {
        instance: usize,
        ms: i64,
    },
    /// It loses a lock without a restart: only a masked instance.
    Evict {
        instance: usize,
        register: bool,
    },
    /// Nothing gets through between a client and these instances.
    Cut {
        client: usize,
        instances: u8,
        ways: Ways,
        ms: u64,
    },
    /// A connection ends.
    Break {
        client: usize,
        instance: usize,
    },
    Freeze {
        client: usize,
        ms: u64,
    },
    Die {
        client: usize,
    },
}

/// What an instance that crashed comes back with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Keeps {
    All,
    /// All but the newest writes.
    Older,
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Ways {
    Both,
    Replies,
    Requests,
}

impl Plan {
    pub(super) fn draw(seed: u64) -> Self {
        let mut chance = Chance::new(seed, 1);
        let chance = &mut chance;
        let instances = chance.one_of(&[1, 2, 3, 3, 3, 3, 4, 5, 5, 5, 6, 7]);
        let masked = if instances >= 3 && chance.percent(25) {
            let most = (instances as u64 - 2).min(2);
            chance.within(1, most) as usize
        } else {
            0
        };
        let epochs = chance.percent(50);
        let watchdog_lease_ms = chance.one_of(&[200, 400, 600]);
        let faultless = chance.percent(15);
        let finish_ms = chance.within(2, 5) * watchdog_lease_ms;
        let calm_ms = if faultless { 0 } else { finish_ms };
        // Either rates differ as much as they may, or clocks step as far as the rest allows.
        let steps = chance.percent(50);
        let rates: &[u64] = if steps {
            &[999_000, 1_000_000, 1_001_000]
        } else {
            &[995_100, 1_000_000, 1_004_900]
        };
        let apart_ms = chance.one_of(&[0, 1_000, 60_000]);
        let scripts = (0..chance.within(2, 4))
            .map(|_| Script {
                clock: wall(chance, rates, 60_000),
                cold: epochs && chance.percent(20),
                steps: script(chance, watchdog_lease_ms),
            })
            .collect();
        let mut plan = Self {
            seed,
            instances,
            masked,
            fenced: chance.percent(50),
            timeless: chance.percent(50),
            epochs,
            watchdog_lease_ms,
            poll_cap_ms: chance.one_of(&[100, 300, 1000]),
            calm_ms,
            finish_ms,
            network: Faults::default(),
            walls: (0..instances)
                .map(|_| wall(chance, rates, apart_ms))
                .collect(),
            scripts,
            mishaps: Vec::new(),
        };
        if !faultless {
            plan.network = faults(chance, watchdog_lease_ms);
            for _ in 0..chance.within(0, 7) {
                let mishap = mishap(chance, &plan, steps);
                plan.mishaps.extend(mishap);
            }
        }
        plan
    }

    /// The longest that anybody asks for.
    pub(super) fn longest_lease_ms(&self) -> u64 {
        let steps = self.scripts.iter().flat_map(|script| &script.steps);
        let leases = steps.filter_map(|step| match step {
            Step::Acquire(want) => want.lease_ms,
            Step::Reenter { lease_ms, .. } => Some(*lease_ms),
            _ => None,
        });
        leases.fold(self.watchdog_lease_ms, u64::max)
    }

    /// Every plan that is a little less than this one.
    pub(super) fn smaller(&self) -> Vec<Self> {
        let mut plans = Vec::new();
        let mut add = |change: &dyn Fn(&mut Self)| {
            let mut plan = self.clone();
            change(&mut plan);
            if plan != *self {
                plans.push(plan);
            }
        };
        for i in 0..self.mishaps.len() {
            add(&|plan| {
                plan.mishaps.remove(i);
            });
        }
        for (i, script) in self.scripts.iter().enumerate() {
            add(&|plan| plan.scripts[i].steps.clear());
            add(&|plan| plan.scripts[i].steps.truncate(script.steps.len() / 2));
            for j in (0..script.steps.len()).rev() {
                add(&|plan| {
                    plan.scripts[i].steps.remove(j);
                });
            }
            add(&|plan| plan.scripts[i].clock.rate = 1_000_000);
        }
        add(&|plan| drop(plan.scripts.pop()));
        for i in 0..self.walls.len() {
            add(&|plan| {
                plan.walls[i] = Wall {
                    offset_ms: START_MS,
                    rate: 1_000_000,
                };
            });
        }
        add(&|plan| plan.fenced = false);
        add(&|plan| plan.epochs = plan.scripts.iter().any(|script| script.cold));
        add(&|plan| plan.network.slow = 0);
        add(&|plan| plan.network.doubled = 0);
        add(&|plan| plan.network.dropped = 0);
        plans
    }
}

fn wall(chance: &mut Chance, rates: &[u64], apart_ms: u64) -> Wall {
    Wall {
        offset_ms: START_MS + chance.within(0, apart_ms),
        rate: chance.one_of(rates),
    }
}

fn faults(chance: &mut Chance, lease_ms: u64) -> Faults {
    let mut often = |most: u64| {
        let most = chance.one_of(&[0, most / 4, most]);
        chance.within(0, most)
    };
    let (slow, doubled, dropped) = (often(25), often(25), often(15));
    Faults {
        slow,
        slow_ms: chance.one_of(&[20, lease_ms / 3, lease_ms, 2 * lease_ms]),
        doubled,
        dropped,
    }
}

fn script(chance: &mut Chance, lease_ms: u64) -> Vec<Step> {
    let mut steps = vec![Step::Rest(chance.within(0, 30))];
    for _ in 0..chance.within(1, 3) {
        let fixed_ms = chance.percent(40).then(|| chance.within(60, 2 * lease_ms));
        let shortest_ms = fixed_ms.unwrap_or(lease_ms);
        steps.push(Step::Acquire(Want {
            lease_ms: fixed_ms,
            wait_ms: chance.percent(70).then(|| {
                let longest = chance.one_of(&[0, 20, 3 * lease_ms]);
                chance.within(0, longest)
            }),
            cancel_ms: chance.percent(25).then(|| chance.within(0, 10)),
            min_validity_ms: if chance.percent(10) {
                chance.within(1, shortest_ms / 2)
            } else {
                0
            },
            max_hold_ms: chance
                .percent(10)
                .then(|| chance.within(lease_ms / 2, 2 * lease_ms)),
        }));
        for _ in 0..chance.within(0, 2) {
            step(chance, lease_ms, &mut steps);
        }
        if chance.percent(70) {
            steps.push(Step::Unlock);
        }
        steps.push(rest(chance, lease_ms));
    }
    steps
}

fn step(chance: &mut Chance, lease_ms: u64, steps: &mut Vec<Step>) {
    match chance.within(0, 99) {
        0..20 => {
            let claim = Step::Reenter {
                lease_ms: chance.within(60, 2 * lease_ms),
                renewed: chance.percent(50),
            };
            // Often enough, the next comes before the answer to the one before.
            let times = chance.one_of(&[1, 1, 1, 1, 1, 1, 20, 150]);
            for _ in 0..times {
                steps.push(claim);
                steps.push(Step::Rest(chance.within(0, 5)));
            }
        }
        20..25 => steps.push(Step::Bound(chance.within(0, 2 * lease_ms))),
        25..35 => steps.push(Step::LetExpire),
        35..38 => steps.push(Step::Lose),
        _ => steps.push(rest(chance, lease_ms)),
    }
}

fn rest(chance: &mut Chance, lease_ms: u64) -> Step {
    let longest = chance.one_of(&[5, 50, lease_ms, 2 * lease_ms]);
    Step::Rest(chance.within(0, longest))
}

fn mishap(chance: &mut Chance, plan: &Plan, steps: bool) -> Option<Mishap> {
    let lease_ms = plan.watchdog_lease_ms;
    let at_ms = chance.within(0, plan.calm_ms);
    let instance = chance.within(0, plan.instances as u64 - 1) as usize;
    let client = chance.within(0, plan.scripts.len() as u64 - 1) as usize;
    let longest = chance.one_of(&[lease_ms / 4, lease_ms, 2 * lease_ms]);
    let ms = chance.within(1, longest);
    // Always the same ones, so that there are never too many of them in one lease.
    let is_masked = instance < plan.masked;
    let what = match chance.within(0, 99) {
        0..22 if has_close_clocks(plan) || is_remembered(plan, Some(instance)) => What::Crash {
            instance,
            keeps: chance.one_of(&[Keeps::All, Keeps::Older, Keeps::Nothing, Keeps::Nothing]),
            down_ms: chance.one_of(&[0, ms]),
        },
        22..26 => What::Pause { instance, ms },
        26..52 => What::Cut {
            client,
            instances: chance.next() as u8,
            ways: chance.one_of(&[Ways::Both, Ways::Replies, Ways::Requests]),
            ms,
        },
        52..60 => What::Break { client, instance },
        60..78 => What::Freeze {
            client,
            ms: chance.one_of(&[ms, lease_ms * 3 / 2]),
        },
        78..81 => What::Die { client },
        81..86 if steps => {
            // Once, so that what is left of the drift is not used up twice in a lease.
            let has_stepped = plan.mishaps.iter().any(|mishap| {
                matches!(mishap.what, What::Step { instance: other, .. } if other == instance)
            });
            if has_stepped {
                return None;
            }
            What::Step {
                instance,
                ms: chance.one_of(&[-2, 2]),
            }
        }
        _ if is_masked => match chance.within(0, 3) {
            0 if is_remembered(plan, None) => What::Jump {
                instance,
                ms: chance.one_of(&[lease_ms as i64, 60_000, -(lease_ms as i64 / 2)]),
            },
            _ => What::Evict {
                instance,
                register: chance.percent(50),
            },
        },
        _ => return None,
    };
    Some(Mishap { at_ms, what })
}

/// Other instances know the latest token, even if this one crashes, too. Where too many came back for
/// that, it takes clocks to tell later from earlier.
fn is_remembered(plan: &Plan, crashing: Option<usize>) -> bool {
    let mut crashed: Vec<usize> = crashing.into_iter().collect();
    crashed.extend(plan.mishaps.iter().filter_map(|it| match it.what {
        What::Crash { instance, .. } => Some(instance),
        _ => None,
    }));
    crashed.sort_unstable();
    crashed.dedup();
    let reads = Rules::reads(plan.instances, plan.masked);
    !plan.fenced || crashed.len() + reads <= plan.instances
}

fn has_close_clocks(plan: &Plan) -> bool {
    let offsets = || plan.walls.iter().map(|wall| wall.offset_ms);
    let are_close = offsets().max() <= offsets().min().map(|ms| ms + CLOSE_MS);
    let is_jump = |mishap: &Mishap| matches!(mishap.what, What::Jump { .. });
    !plan.timeless && are_close && !plan.mishaps.iter().any(is_jump)
}

/// Clocks closer than that tell what was before a quarantine from what is after it.
const CLOSE_MS: u64 = 1_000;
/// What clocks show at the beginning, at least.
const START_MS: u64 = 1_000_000;
