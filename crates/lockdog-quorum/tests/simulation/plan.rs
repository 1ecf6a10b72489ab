//! The events of one run: drawn from its seed, and reduced to find the shortest failing plan.
//!
//! Every plan stays within what a quorum needs (A1 to A3 of docs/quorum.md): rates differ by less than
//! one percent, and losses are either covered by quarantine or affect no more instances than are
//! masked.

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) instances: usize,
    pub(super) masked: usize,
    pub(super) fenced: bool,
    /// Instances have no clock for tokens.
    pub(super) timeless: bool,
    /// Instances record when they lost their data. If they do not, each client must have seen them
    /// before.
    pub(super) epochs: bool,
    pub(super) watchdog_lease_ms: u64,
    pub(super) poll_cap_ms: u64,
    /// When the faults end.
    pub(super) calm_ms: u64,
    /// When clients leave their scripts, and each wants the lock again.
    pub(super) finish_ms: u64,
    pub(super) network: Faults,
    pub(super) walls: Vec<Wall>,
    pub(super) scripts: Vec<Script>,
    pub(super) planned_faults: Vec<PlannedFault>,
}

/// In percent of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Faults {
    pub(super) slow: u64,
    pub(super) slow_ms: u64,
    pub(super) doubled: u64,
    pub(super) dropped: u64,
    /// Requests to acquire whose caller stops: it waits for no answer, and notifies no party.
    pub(super) left: u64,
}

/// A clock: its initial time, and its rate in parts per million of the true rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Wall {
    pub(super) offset_ms: u64,
    pub(super) rate: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Script {
    pub(super) clock: Wall,
    /// It has seen no instance before.
    pub(super) cold: bool,
    pub(super) steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    Acquire(Want),
    /// A further claim on a hold, if there is one.
    Reenter {
        lease_ms: u64,
        renewed: bool,
    },
    /// A further claim limits the hold.
    Bound(u64),
    /// The last claim without a fixed lease ends before others.
    LetExpire,
    /// The driver must give it up.
    Lose,
    Unlock,
    Rest(u64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Want {
    /// `None`: it is renewed.
    pub(super) lease_ms: Option<u64>,
    pub(super) wait_ms: Option<u64>,
    /// Its caller gives a round up after this time.
    pub(super) cancel_ms: Option<u64>,
    /// The caller gives up while the token is being written.
    pub(super) cancels_marking: bool,
    pub(super) min_validity_ms: u64,
    pub(super) max_hold_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PlannedFault {
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
    /// It freezes, and does everything later.
    Pause {
        instance: usize,
        ms: u64,
    },
    /// Within the allowed drift.
    Step {
        instance: usize,
        ms: i64,
    },
    /// Beyond the allowed drift: only on a masked instance.
    Jump {
        instance: usize,
        ms: i64,
    },
    /// It loses a lock without a restart: only on a masked instance.
    Evict {
        instance: usize,
        register: bool,
    },
    /// No message passes between a client and these instances.
    Cut {
        client: usize,
        instances: u8,
        ways: Ways,
        ms: u64,
    },
    /// A connection breaks.
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

/// The data that an instance has after a crash.
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
    /// The longest lease that any client asks for.
    pub(super) fn longest_lease_ms(&self) -> u64 {
        let steps = self.scripts.iter().flat_map(|script| &script.steps);
        let leases = steps.filter_map(|step| match step {
            Step::Acquire(want) => want.lease_ms,
            Step::Reenter { lease_ms, .. } => Some(*lease_ms),
            _ => None,
        });
        leases.fold(self.watchdog_lease_ms, u64::max)
    }

    /// Every plan that is slightly smaller than this one.
    pub(super) fn smaller(&self) -> Vec<Self> {
        let mut plans = Vec::new();
        let mut add = |change: &dyn Fn(&mut Self)| {
            let mut plan = self.clone();
            change(&mut plan);
            if plan != *self {
                plans.push(plan);
            }
        };
        for i in 0..self.planned_faults.len() {
            add(&|plan| {
                plan.planned_faults.remove(i);
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
        add(&|plan| plan.network.left = 0);
        plans
    }
}

/// The smallest initial time of a clock.
pub(super) const START_MS: u64 = 1_000_000;
