//! The steps of one run. They are derived from its seed, and shortened in the search for the shortest
//! failing plan.

use super::chance::Chance;
use super::network::Faults;
use super::redisson::RedissonPlan;
use crate::key::{Kind, kind};

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) lock: LockKind,
    pub(super) faults: Faults,
    pub(super) watchdog_lease_ms: u64,
    pub(super) command_timeout_ms: u64,
    pub(super) poll_cap_ms: u64,
    /// How long a waiter in the server's queue may send nothing.
    pub(super) silence_ms: u64,
    /// Whether the clients subscribe to messages. If not, they only poll.
    pub(super) listens: bool,
    /// The rate of each client's clock, in parts per million of the server's.
    pub(super) rates: [u64; 2],
    /// The time at which each client's watchdog is frozen, and the duration.
    pub(super) pauses: Vec<Pause>,
    pub(super) tasks: Vec<Task>,
    /// A Redisson client runs, too. The plans of other kinds of locks have their own field for it.
    pub(super) redisson: Option<RedissonPlan>,
}

/// The kind of the lock. Each has the scripts of the plain lock, and all of them exclude each other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum LockKind {
    Plain,
    Fenced(TokensFrom),
    Spin,
    NonReentrant,
}

impl LockKind {
    pub(super) fn kind(self) -> &'static Kind {
        match self {
            Self::Plain => &kind::PLAIN,
            Self::Fenced(TokensFrom::Clock) => &kind::FENCED,
            Self::Fenced(TokensFrom::One) => &kind::FENCED_FROM_ONE,
            Self::Spin => &kind::SPIN,
            Self::NonReentrant => &kind::NON_REENTRANT,
        }
    }

    /// The source of its tokens, if it issues any.
    pub(super) fn tokens(self) -> Option<TokensFrom> {
        match self {
            Self::Fenced(from) => Some(from),
            _ => None,
        }
    }
}

/// The start of the tokens of a fenced lock.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum TokensFrom {
    Clock,
    One,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Pause {
    pub(super) client: usize,
    pub(super) at_ms: u64,
    pub(super) length_ms: u64,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Task {
    pub(super) client: usize,
    pub(super) owner: u64,
    pub(super) steps: Vec<PlanStep>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum PlanStep {
    /// A first acquire or a re-entry, depending on what the owner holds.
    Acquire {
        wait_ms: Option<u64>,
        lease_ms: Option<u64>,
        /// The least time of the lock.
        least_ms: Option<u64>,
        /// Counted locally if possible.
        local: bool,
        cancel: Cancel,
    },
    /// Unlocks the newest guard.
    Unlock(Cancel),
    /// Drops the oldest guard, because guards may end in any order.
    Drop,
    Forget,
    EndForgotten(Cancel),
    Force(Cancel),
    /// Resumes the oldest abandoned call.
    Resume,
    /// A pause of a holder, or of an owner between two holds.
    Rest(u64),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Cancel {
    Never,
    AtPoll(u64),
    After(u64),
    /// Polled this often and then abandoned, but not dropped.
    Left(u64),
}

impl Cancel {
    /// Draws whether and when a call is cancelled, with this probability in percent.
    pub(super) fn draw(chance: &mut Chance, percent: u64) -> Self {
        match chance.within(1, 100) {
            n if n > percent => Self::Never,
            n if n % 4 == 0 => Self::Left(chance.within(1, 6)),
            n if n % 2 == 0 => Self::AtPoll(chance.within(1, 6)),
            _ => Self::After(chance.within(0, 100)),
        }
    }

    /// From now on the call is not abandoned.
    fn poll_again(&mut self) {
        if matches!(self, Self::Left(_)) {
            *self = Self::Never;
        }
    }
}

impl Plan {
    pub(super) fn draw(seed: u64) -> Self {
        let mut chance = Chance::new(seed, 1);
        let watchdog_lease_ms = chance.one_of(&[300, 600, 1000]);
        let faults = faults(&mut chance, watchdog_lease_ms);
        let mut tasks = Vec::new();
        let count = chance.within(2, 5);
        // The fourth task shares the third owner.
        let owners = [0, 1, 2, 2, 3];
        for owner in owners.into_iter().take(count as usize) {
            let steps = chance.within(3, 9);
            tasks.push(Task {
                // Three owners of one client hand the lock over to each other.
                client: usize::from(owner == 1),
                owner,
                steps: (0..steps)
                    .map(|_| step(&mut chance, watchdog_lease_ms))
                    .collect(),
            });
        }
        let mut pauses = Vec::new();
        if chance.percent(30) {
            pauses.push(Pause {
                client: chance.within(0, 1) as usize,
                at_ms: chance.within(0, 3 * watchdog_lease_ms),
                length_ms: chance.within(1, 2 * watchdog_lease_ms),
            });
        }
        let rates = [990_100, 995_000, 1_000_000, 1_009_900];
        let poll_cap_ms = chance.one_of(&[30, 200]);
        if chance.percent(5) {
            tasks = late_receiver(&mut chance, poll_cap_ms);
        }
        let mut plan = Self {
            seed,
            // The kind is not drawn from `chance`, so that the other choices of a seed are those of a
            // plain lock.
            lock: match seed % 6 {
                1 => LockKind::Spin,
                3 => LockKind::Fenced(TokensFrom::Clock),
                4 => LockKind::Fenced(TokensFrom::One),
                5 => LockKind::NonReentrant,
                _ => LockKind::Plain,
            },
            faults,
            watchdog_lease_ms,
            command_timeout_ms: chance.one_of(&[60, 150, 400]),
            poll_cap_ms,
            silence_ms: 10_000,
            listens: false,
            rates: [chance.one_of(&rates), chance.one_of(&rates)],
            pauses,
            tasks,
            redisson: None,
        };
        if chance.percent(5) {
            plan.tasks = vec![left_acquire(&mut chance)];
        }
        plan
    }

    /// As [`draw`](Self::draw), for the lock itself: in some runs with messages, and with a Redisson client.
    pub(super) fn draw_lock(seed: u64) -> Self {
        let mut plan = Self::draw(seed);
        if plan.lock == LockKind::Spin && plan.be_crowded() {
            return plan;
        }
        plan.meet_redisson();
        plan.keep_locks();
        plan
    }

    /// In some runs there is a Redisson client, and messages arrive.
    fn meet_redisson(&mut self) {
        let mut chance = Chance::new(self.seed, 6);
        let lease_ms = chance.one_of(&[self.watchdog_lease_ms, 5_000]);
        self.redisson = RedissonPlan::draw(self.seed, &[0], lease_ms);
        if self.redisson.is_none() {
            return;
        }
        self.listens = chance.percent(75);
        if chance.percent(50) {
            self.be_prompt();
        } else {
            self.faults.redissons = chance.one_of(&[0, 10, 30]);
            self.faults.undelivered = chance.one_of(&[0, 30]);
        }
    }

    /// In some runs every other acquire has a least time. In those with faults more locks are
    /// force-unlocked, so that an unlock finds that its lock was lost. Runs without faults have no
    /// additional force unlocks: their waiters must get a free lock soon, but they do not poll before
    /// their own client has found the loss of its hold. The other choices of a seed stay as they are.
    fn keep_locks(&mut self) {
        let mut chance = Chance::new(self.seed, 7);
        if !chance.percent(40) {
            return;
        }
        let longest = chance.one_of(&[self.watchdog_lease_ms / 2, 2 * self.watchdog_lease_ms]);
        let forces = !self.is_without_faults();
        for step in self.tasks.iter_mut().flat_map(|task| &mut task.steps) {
            match step {
                PlanStep::Acquire { least_ms, .. } if chance.percent(50) => {
                    *least_ms = Some(chance.within(10, longest));
                }
                PlanStep::Rest(_) if forces && chance.percent(25) => {
                    *step = PlanStep::Force(Cancel::Never);
                }
                _ => {}
            }
        }
    }

    /// In some runs of a spin lock one client holds it for a long time, and several owners of another
    /// client wait for it.
    fn be_crowded(&mut self) -> bool {
        let mut chance = Chance::new(self.seed, 8);
        if !chance.percent(25) {
            return false;
        }
        let acquire = |wait_ms, cancel| PlanStep::Acquire {
            wait_ms: Some(wait_ms),
            lease_ms: None,
            least_ms: None,
            local: false,
            cancel,
        };
        let held_ms = chance.within(500, 2_500);
        let held = vec![
            acquire(5_000, Cancel::Never),
            PlanStep::Rest(held_ms),
            PlanStep::Drop,
        ];
        self.tasks = vec![Task {
            client: 1,
            owner: 1,
            steps: held,
        }];
        for owner in [0, 2, 2, 3] {
            let mut steps = vec![PlanStep::Rest(chance.within(0, 100))];
            for _ in 0..chance.within(1, 3) {
                let wait_ms = chance.within(100, 4_000);
                // Some callers give up.
                let cancel = match chance.percent(30) {
                    true => Cancel::After(chance.within(10, 500)),
                    false => Cancel::Never,
                };
                steps.extend([acquire(wait_ms, cancel), PlanStep::Drop]);
            }
            self.tasks.push(Task {
                client: 0,
                owner,
                steps,
            });
        }
        self.be_prompt();
        self.listens = chance.percent(50);
        true
    }

    /// No fault occurs, so a waiter gets the lock soon after it becomes free. A waiter has time to read
    /// a message between two of its own polls.
    pub(super) fn be_prompt(&mut self) {
        self.faults = Faults::default();
        self.pauses.clear();
        self.poll_cap_ms = 2_000;
        for step in self.tasks.iter_mut().flat_map(|task| &mut task.steps) {
            match step {
                PlanStep::Acquire {
                    wait_ms, cancel, ..
                } => {
                    *wait_ms = wait_ms.map(|ms| ms * 4);
                    cancel.poll_again();
                }
                PlanStep::Unlock(cancel) | PlanStep::EndForgotten(cancel) => cancel.poll_again(),
                _ => {}
            }
        }
    }

    /// Whether a waiter must get the lock soon after it becomes free: there are no faults, and every
    /// call is polled until its end, or dropped.
    pub(super) fn is_prompt(&self) -> bool {
        let mut steps = self.tasks.iter().flat_map(|task| &task.steps);
        let is_left = |step: &PlanStep| match step {
            PlanStep::Acquire { cancel, .. }
            | PlanStep::Unlock(cancel)
            | PlanStep::EndForgotten(cancel)
            | PlanStep::Force(cancel) => matches!(cancel, Cancel::Left(_)),
            _ => false,
        };
        self.is_without_faults() && !steps.any(is_left)
    }

    pub(super) fn is_without_faults(&self) -> bool {
        self.faults == Faults::default() && self.pauses.is_empty()
    }

    /// When the last frozen watchdog resumes.
    pub(super) fn pauses_end_ms(&self) -> u64 {
        let ends = self.pauses.iter().map(|it| it.at_ms + it.length_ms);
        ends.max().unwrap_or(0)
    }

    /// How long a key of the run may exist on the server after the last command.
    pub(super) fn longest_lease_ms(&self) -> u64 {
        let steps = self.tasks.iter().flat_map(|task| &task.steps);
        let leases = steps.filter_map(|step| match step {
            PlanStep::Acquire {
                lease_ms, least_ms, ..
            } => (*lease_ms).max(*least_ms),
            _ => None,
        });
        let redisson = self.redisson.map_or(0, |plan| plan.lease_ms());
        leases.fold(self.watchdog_lease_ms.max(redisson), u64::max)
    }

    /// Every plan that is one change shorter than this one.
    pub(super) fn smaller(&self) -> Vec<Self> {
        let mut plans = Vec::new();
        let mut add = |change: &dyn Fn(&mut Self)| {
            let mut plan = self.clone();
            change(&mut plan);
            if plan != *self {
                plans.push(plan);
            }
        };
        for (i, task) in self.tasks.iter().enumerate() {
            add(&|plan| drop(plan.tasks.remove(i)));
            add(&|plan| plan.tasks[i].steps.truncate(task.steps.len() / 2));
            for j in (0..task.steps.len()).rev() {
                add(&|plan| {
                    plan.tasks[i].steps.remove(j);
                });
            }
        }
        add(&|plan| plan.redisson = None);
        add(&|plan| {
            for step in plan.tasks.iter_mut().flat_map(|task| &mut task.steps) {
                if let PlanStep::Acquire { least_ms, .. } = step {
                    *least_ms = None;
                }
            }
        });
        add(&|plan| plan.pauses.clear());
        add(&|plan| plan.rates = [1_000_000; 2]);
        add(&|plan| plan.faults.slow = 0);
        add(&|plan| plan.faults.twice = 0);
        add(&|plan| plan.faults.silenced = 0);
        add(&|plan| plan.faults.broken = 0);
        add(&|plan| plan.faults.refused = 0);
        add(&|plan| plan.faults.unreachable = 0);
        add(&|plan| plan.faults.flushed = 0);
        add(&|plan| plan.faults.undelivered = 0);
        add(&|plan| plan.faults.redissons = 0);
        add(&|plan| plan.faults.stalls = [0, 0]);
        plans
    }
}

/// An abandoned call acquires a free lock, with a lease longer than the run observes.
fn left_acquire(chance: &mut Chance) -> Task {
    let acquire = PlanStep::Acquire {
        wait_ms: chance.percent(50).then_some(3000),
        lease_ms: Some(60_000),
        least_ms: None,
        local: false,
        cancel: Cancel::Left(chance.within(1, 3)),
    };
    Task {
        client: 0,
        owner: 0,
        steps: vec![acquire],
    }
}

/// The lock is handed to an abandoned waiter, which resumes at about the end of its time limit.
fn late_receiver(chance: &mut Chance, poll_cap_ms: u64) -> Vec<Task> {
    let acquire = |cancel| PlanStep::Acquire {
        wait_ms: Some(3000),
        lease_ms: Some(3000),
        least_ms: None,
        local: false,
        cancel,
    };
    let held_ms = chance.within(15, 25);
    let late_ms = held_ms + poll_cap_ms + chance.within(0, 80);
    let task = |owner, steps| Task {
        client: 0,
        owner,
        steps,
    };
    vec![
        task(
            0,
            vec![
                acquire(Cancel::Never),
                PlanStep::Rest(held_ms),
                PlanStep::Unlock(Cancel::Never),
                PlanStep::Rest(200),
            ],
        ),
        task(
            2,
            vec![
                // The other task polls first.
                PlanStep::Rest(10),
                acquire(Cancel::Left(chance.within(1, 3))),
                PlanStep::Rest(late_ms - 10),
                PlanStep::Resume,
                PlanStep::Rest(200),
                PlanStep::Unlock(Cancel::Never),
            ],
        ),
    ]
}

fn faults(chance: &mut Chance, lease_ms: u64) -> Faults {
    if chance.percent(15) {
        return Faults::default();
    }
    let mut often = |most: u64| {
        let most = chance.one_of(&[0, most / 4, most]);
        chance.within(0, most)
    };
    let (slow, twice) = (often(40), often(60));
    let (silenced, broken, refused) = (often(15), often(20), often(15));
    let (unreachable, flushed) = (often(30), often(10));
    Faults {
        slow,
        slow_ms: chance.one_of(&[20, lease_ms / 3, lease_ms, 2 * lease_ms]),
        twice,
        silenced,
        broken,
        refused,
        unreachable,
        flushed,
        undelivered: 0,
        batched: chance.one_of(&[0, 60, 95]),
        redissons: 0,
        kill: chance.percent(70),
        stalls: [0, 0],
    }
}

fn step(chance: &mut Chance, lease_ms: u64) -> PlanStep {
    let [cancel_acquire, cancel_end] = [30, 20].map(|percent| Cancel::draw(chance, percent));
    match chance.within(0, 99) {
        0..40 => PlanStep::Acquire {
            wait_ms: chance.percent(60).then(|| chance.within(1, 2 * lease_ms)),
            lease_ms: chance.percent(50).then(|| chance.within(20, 2 * lease_ms)),
            least_ms: None,
            local: chance.percent(40),
            cancel: cancel_acquire,
        },
        40..60 => PlanStep::Unlock(cancel_end),
        60..72 => PlanStep::Drop,
        72..77 => PlanStep::Forget,
        77..82 => PlanStep::EndForgotten(cancel_end),
        82..85 => PlanStep::Force(cancel_end),
        85..91 => PlanStep::Resume,
        _ => {
            let longest = chance.one_of(&[5, 50, 2 * lease_ms]);
            PlanStep::Rest(chance.within(0, longest))
        }
    }
}
