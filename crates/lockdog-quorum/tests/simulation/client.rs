//! One client: it executes its script, and drives its quorums as the real driver does.

use std::time::Duration;

use super::attempt::{Attempt, Means};
use super::clock::Clock;
use super::lane::Lane;
use super::plan::{Script, Want};
use super::script::ANY;
use super::seen::Sight;
use super::tokens::Write;
use super::world::{self, Timer, World};
use crate::Moment;
use crate::{Event, Phase, RetryTimer, Rules, quarantine};

pub(super) struct Client<'a> {
    pub(super) number: usize,
    pub(super) script: &'a Script,
    pub(super) clock: Clock,
    pub(super) rules: Rules,
    pub(super) max_lease: Duration,
    pub(super) poll_cap: Duration,
    pub(super) lanes: Vec<Lane>,
    /// The newest is last. Earlier ones are over, but still have requests pending.
    pub(super) attempts: Vec<Attempt>,
    pub(super) attempt: u32,
    pub(super) patience: RetryTimer,
    pub(super) want: Want,
    pub(super) activity: Activity,
    /// When it stops waiting for the lock.
    pub(super) wait_ends: Moment,
    pub(super) step: usize,
    pub(super) generation: u32,
    /// When its script continues, by its own clock.
    pub(super) due: Option<Moment>,
    /// It has left its script, and wants the lock again.
    pub(super) finishing: bool,
    pub(super) has_had_it: bool,
    pub(super) frozen_until: u64,
    pub(super) dead: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Activity {
    Resting,
    /// A round is under way.
    Trying,
    /// Waits for the next round.
    Waiting,
    Nothing,
    /// It has held the lock, and wants nothing more.
    Done,
}

impl<'a> Client<'a> {
    pub(super) fn new(number: usize, script: &'a Script, world: &World<'_>) -> Self {
        let (plan, ms) = (world.plan, Duration::from_millis);
        let clock = Clock(script.clock);
        let (members, masked) = (plan.instances, plan.masked);
        let need = Rules::need(members, masked);
        let reads = if plan.fenced {
            Rules::reads(members, masked)
        } else {
            0
        };
        let lane = |instance| Lane::new(number, instance, clock, script.cold);
        Self {
            number,
            script,
            clock,
            rules: Rules {
                members,
                need,
                reads,
                lease: ms(plan.watchdog_lease_ms),
                renewed: true,
                min_validity: Duration::ZERO,
                max_until: Moment::NEVER,
            },
            max_lease: ms(plan.longest_lease_ms()),
            poll_cap: ms(plan.poll_cap_ms),
            lanes: (0..members).map(lane).collect(),
            attempts: Vec::new(),
            attempt: 0,
            patience: RetryTimer::new(members, need),
            want: ANY,
            activity: Activity::Nothing,
            wait_ends: Moment::NEVER,
            step: 0,
            generation: 0,
            due: None,
            finishing: false,
            has_had_it: false,
            frozen_until: 0,
            dead: false,
        }
    }

    pub(super) fn now(&self, world: &World<'_>) -> Moment {
        self.clock.local(world.now)
    }

    pub(super) fn is_frozen(&self, world: &World<'_>) -> bool {
        self.frozen_until > world.now
    }

    /// Whether it would answer now that it holds the lock.
    pub(super) fn believes(&self, world: &World<'_>) -> bool {
        let now = self.now(world);
        let mut attempts = self.attempts.iter();
        !self.dead && attempts.any(|attempt| attempt.quorum.is_valid(now))
    }

    pub(super) fn is_done(&self) -> bool {
        self.dead || self.activity == Activity::Done
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.dead && self.activity == Activity::Waiting
    }

    /// It does not ask this instance at present, or would not count its answer.
    pub(super) fn is_out_of_reach(&self, instance: usize, world: &World<'_>) -> bool {
        let lane = &self.lanes[instance];
        let left = quarantine::left(lane.reborn, self.max_lease, self.now(world));
        lane.suspect || left.is_some()
    }

    /// Whether the lock of this acquisition on an instance is wanted, or may be.
    pub(super) fn wants(&self, id: world::Id) -> bool {
        self.attempts.iter().any(|attempt| attempt.wants(id))
    }

    /// The attempt that is not over.
    pub(super) fn living(&self) -> Option<&Attempt> {
        self.attempts.iter().find(|attempt| !attempt.is_over())
    }

    pub(super) fn handle(&mut self, event: world::Event, world: &mut World<'_>) {
        match event {
            world::Event::Reply {
                instance,
                serial,
                reply,
                ..
            } => {
                if let Some((ask, reply)) = self.lanes[instance].receive(serial, reply, world) {
                    self.with(ask.attempt, world, |attempt, means| {
                        attempt.receive(instance, &ask, Some(reply), means);
                    });
                }
            }
            world::Event::Message { instance, .. }
                if self.is_waiting() && !self.is_out_of_reach(instance, world) =>
            {
                self.patience.free(instance);
                world.seen.saw(Sight::WokenByMessage);
                self.wait(world);
            }
            world::Event::Timer { timer, .. } => match timer {
                Timer::Call { instance, serial } => {
                    if let Some(ask) = self.lanes[instance].give_up(serial, world) {
                        self.with(ask.attempt, world, |attempt, means| {
                            attempt.receive(instance, &ask, None, means);
                        });
                    }
                }
                Timer::Tick {
                    attempt,
                    generation,
                } => self.with(attempt, world, |attempt, means| {
                    if attempt.wakes == generation {
                        attempt.tick(means);
                    }
                }),
                Timer::Script { generation } => {
                    if self.generation == generation {
                        self.due = None;
                        self.go_on(world);
                    }
                }
            },
            _ => {}
        }
    }

    /// Begins a round.
    pub(super) fn begin(&mut self, rules: Rules, world: &mut World<'_>) {
        self.attempt += 1;
        let mut means = Means {
            client: self.number,
            lanes: &mut self.lanes,
            clock: self.clock,
            max_lease: self.max_lease,
            world,
        };
        let attempt = Attempt::begin(self.attempt, rules, &mut means);
        self.attempts.push(attempt);
        self.with(self.attempt, world, |_, _| {});
    }

    /// Applies a change to an attempt, and processes the consequences.
    pub(super) fn with(
        &mut self,
        number: u32,
        world: &mut World<'_>,
        work: impl FnOnce(&mut Attempt, &mut Means<'_, '_>),
    ) {
        let found = self.attempts.iter().position(|it| it.number == number);
        let Some(index) = found else { return };
        let mut means = Means {
            client: self.number,
            lanes: &mut self.lanes,
            clock: self.clock,
            max_lease: self.max_lease,
            world,
        };
        work(&mut self.attempts[index], &mut means);
        self.follow(index, world);
        self.attempts.retain(|attempt| !attempt.is_finished());
    }

    /// Processes the state of an attempt.
    fn follow(&mut self, index: usize, world: &mut World<'_>) {
        let attempt = &mut self.attempts[index];
        let wake_at = attempt.quorum.wake_at();
        if wake_at != attempt.wake_at && wake_at != Moment::NEVER {
            attempt.wake_at = wake_at;
            attempt.wakes += 1;
            let timer = Timer::Tick {
                attempt: attempt.number,
                generation: attempt.wakes,
            };
            // Timers fire up to a millisecond late.
            let at = self.clock.true_time(wake_at) + world.chance.within(0, 1_000_000);
            let client = self.number;
            world.at(at, world::Event::Timer { client, timer });
        }
        let (before, phase) = (attempt.phase, attempt.quorum.phase());
        if before == phase {
            return;
        }
        attempt.phase = phase;
        let client = self.number;
        world.note(|| format!("client {client}: {before:?} -> {phase:?}"));
        match phase {
            Phase::Held if attempt.acquired.is_none() => self.acquired(index, world),
            Phase::Held => world.seen.saw(Sight::Recovery),
            Phase::Jeopardy => world.seen.saw(Sight::Jeopardy),
            Phase::Lost(reason) => self.lost(index, reason, world),
            Phase::Failed => self.failed(index, world),
            Phase::Marking => {
                if !attempt.has_trusted_reads() {
                    world.seen.saw(Sight::TokenByClocks);
                }
                if self.want.cancels_marking {
                    self.later(self.now(world), world);
                }
            }
            Phase::Acquiring | Phase::Ended => {}
        }
    }

    pub(super) fn apply(&mut self, event: Event, world: &mut World<'_>) {
        self.living_with(world, |attempt, means| attempt.apply(event, means));
    }

    pub(super) fn living_with(
        &mut self,
        world: &mut World<'_>,
        work: impl FnOnce(&mut Attempt, &mut Means<'_, '_>),
    ) {
        if let Some(number) = self.living().map(|attempt| attempt.number) {
            self.with(number, world, work);
        }
    }

    /// A holder that checked before it writes, or must finish a write.
    pub(super) fn write(&self, world: &mut World<'_>) {
        if let Some(index) = self.attempts.iter().position(|attempt| !attempt.is_over()) {
            self.write_as(index, world);
        }
    }

    pub(super) fn write_as(&self, index: usize, world: &mut World<'_>) {
        let attempt = &self.attempts[index];
        if let (Some(token), Some(shown)) = (attempt.quorum.token(), attempt.acquired) {
            let write = Write {
                token,
                began: attempt.began,
                shown,
                is_valid: attempt.quorum.is_valid(self.now(world)),
            };
            match world.tokens.write(&write) {
                Ok(true) => {}
                Ok(false) => world.seen.saw(Sight::StaleWriteRefused),
                Err(wrong) => world.claim(false, || wrong),
            }
        }
    }

    pub(super) fn freeze(&mut self, until: u64, world: &mut World<'_>) {
        if let Some(attempt) = self.living().filter(|attempt| attempt.acquired.is_some()) {
            let lease = attempt.quorum.rules().lease;
            if Duration::from_nanos(until - world.now) > lease {
                world.seen.saw(Sight::FrozenLongerThanLease);
            }
        }
        self.frozen_until = self.frozen_until.max(until);
        let client = self.number;
        world.at(until, world::Event::Thaw { client });
    }

    pub(super) fn die(&mut self, world: &mut World<'_>) {
        if self.believes(world) {
            world.seen.saw(Sight::DiedHolding);
        }
        self.dead = true;
    }
}
