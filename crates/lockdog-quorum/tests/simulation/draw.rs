//! Draws a plan from its seed.

use std::time::Duration;

use super::chance::Chance;
use super::plan::{
    Faults, Keeps, Plan, PlannedFault, START_MS, Script, Step, Wall, Want, Ways, What,
};
use crate::{Rules, quarantine};

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
        // Sometimes faults continue after a quarantine.
        let longest_ms = LONGEST_LEASES * watchdog_lease_ms;
        let quarantine = quarantine::period(Duration::from_millis(longest_ms));
        let pause_ms = if !faultless && chance.percent(20) {
            quarantine.as_millis() as u64
        } else {
            0
        };
        let finish_ms = pause_ms + chance.within(2, 5) * watchdog_lease_ms;
        let calm_ms = if faultless { 0 } else { finish_ms };
        // Either rates differ as much as allowed, or clocks step as far as the rest allows.
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
                steps: script(chance, watchdog_lease_ms, pause_ms),
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
            planned_faults: Vec::new(),
        };
        if !faultless {
            plan.network = faults(chance, watchdog_lease_ms);
            for _ in 0..chance.within(0, 7) {
                let planned_fault = planned_fault(chance, &plan, steps);
                plan.planned_faults.extend(planned_fault);
            }
            if pause_ms > 0 {
                // An instance that restarts early counts again before the end.
                for planned_fault in &mut plan.planned_faults {
                    if matches!(planned_fault.what, What::Crash { .. }) {
                        planned_fault.at_ms %= 2 * watchdog_lease_ms;
                    }
                }
                for client in 0..plan.scripts.len() {
                    for at_ms in [0, pause_ms] {
                        let instance = chance.within(0, 7);
                        plan.planned_faults.push(PlannedFault {
                            at_ms,
                            what: What::Cut {
                                client,
                                instances: 1 << instance,
                                ways: Ways::Both,
                                ms: 3 * watchdog_lease_ms,
                            },
                        });
                    }
                }
            }
        }
        plan
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
    let (slow, doubled, dropped, left) = (often(25), often(25), often(15), often(15));
    Faults {
        slow,
        slow_ms: chance.one_of(&[20, lease_ms / 3, lease_ms, 2 * lease_ms]),
        doubled,
        dropped,
        left,
    }
}

fn script(chance: &mut Chance, lease_ms: u64, pause_ms: u64) -> Vec<Step> {
    let mut steps = vec![Step::Rest(chance.within(0, 30))];
    acquires(chance, lease_ms, &mut steps);
    if pause_ms > 0 {
        steps.push(Step::Rest(pause_ms));
        acquires(chance, lease_ms, &mut steps);
    }
    steps
}

fn acquires(chance: &mut Chance, lease_ms: u64, steps: &mut Vec<Step>) {
    for _ in 0..chance.within(1, 3) {
        let fixed_ms = chance
            .percent(40)
            .then(|| chance.within(60, LONGEST_LEASES * lease_ms));
        let shortest_ms = fixed_ms.unwrap_or(lease_ms);
        steps.push(Step::Acquire(Want {
            lease_ms: fixed_ms,
            wait_ms: chance.percent(70).then(|| {
                let longest = chance.one_of(&[0, 20, 3 * lease_ms]);
                chance.within(0, longest)
            }),
            cancel_ms: chance.percent(25).then(|| chance.within(0, 10)),
            cancels_marking: chance.percent(20),
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
            step(chance, lease_ms, steps);
        }
        if chance.percent(70) {
            steps.push(Step::Unlock);
        }
        steps.push(rest(chance, lease_ms));
    }
}

fn step(chance: &mut Chance, lease_ms: u64, steps: &mut Vec<Step>) {
    match chance.within(0, 99) {
        0..20 => {
            let claim = Step::Reenter {
                lease_ms: chance.within(60, LONGEST_LEASES * lease_ms),
                renewed: chance.percent(50),
            };
            // Often enough, the next request is sent before the previous one is answered.
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

fn planned_fault(chance: &mut Chance, plan: &Plan, steps: bool) -> Option<PlannedFault> {
    let lease_ms = plan.watchdog_lease_ms;
    let at_ms = chance.within(0, plan.calm_ms);
    let instance = chance.within(0, plan.instances as u64 - 1) as usize;
    let client = chance.within(0, plan.scripts.len() as u64 - 1) as usize;
    let longest = chance.one_of(&[lease_ms / 4, lease_ms, 2 * lease_ms]);
    let ms = chance.within(1, longest);
    // Always the same instances, so that there are never too many of them in one lease.
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
            // Only once, so that the remaining drift is not used twice in a lease.
            let has_stepped = plan.planned_faults.iter().any(|planned_fault| {
                matches!(planned_fault.what, What::Step { instance: other, .. } if other == instance)
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
    Some(PlannedFault { at_ms, what })
}

/// Other instances know the latest token, even if this one crashes too. If too many restarted for that,
/// clocks must distinguish later from earlier.
fn is_remembered(plan: &Plan, crashing: Option<usize>) -> bool {
    let mut crashed: Vec<usize> = crashing.into_iter().collect();
    crashed.extend(plan.planned_faults.iter().filter_map(|it| match it.what {
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
    let is_jump = |planned_fault: &PlannedFault| matches!(planned_fault.what, What::Jump { .. });
    !plan.timeless && are_close && !plan.planned_faults.iter().any(is_jump)
}

/// No client asks for a lease of more watchdog leases than this.
const LONGEST_LEASES: u64 = 2;
/// Clocks closer than this can distinguish times before a quarantine from times after it.
const CLOSE_MS: u64 = 1_000;
