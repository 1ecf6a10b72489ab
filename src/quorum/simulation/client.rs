//! One client: it goes through its script, and drives its quorums as the real driver does.

use std::time::Duration;

use super::attempt::{Attempt, Means};
use super::clock::Clock;
use super::lane::Lane;
use super::plan::{Script, Step, Want};
use super::seen::Sight;
use super::tokens::Write;
use super::world::{self, Timer, World};
use crate::clock::Moment;
use crate::error::LostReason;
use crate::quorum::{Event, Outcome, Patience, Phase, Rules, quarantine};

pub(super) struct Client<'a> {
    pub(super) number: usize,
    script: &'a Script,
    pub(super) clock: Clock,
    rules: Rules,
    max_lease: Duration,
    poll_cap: Duration,
    pub(super) lanes: Vec<Lane>,
    /// The newest last; those before it are over, and have something under way still.
    pub(super) attempts: Vec<Attempt>,
    attempt: u32,
    patience: Patience,
    want: Want,
    doing: Doing,
    /// When it stops waiting for the lock.
    wait_ends: Moment,
    step: usize,
    generation: u32,
    /// When its script goes on, by its clock.
    due: Option<Moment>,
    /// It has left its script, and wants the lock once more.
    finishing: bool,
    has_had_it: bool,
    pub(super) frozen_until: u64,
    pub(super) dead: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Doing {
    Resting,
    /// A round is under way.
    Trying,
    /// For another round.
    Waiting,
    Nothing,
    /// It has had the lock, and wants nothing more.
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
            patience: Patience::new(members, need),
            want: ANY,
            doing: Doing::Nothing,
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

    /// Somebody who looks now finds that it has the lock.
    pub(super) fn believes(&self, world: &World<'_>) -> bool {
        let now = self.now(world);
        let mut attempts = self.attempts.iter();
        !self.dead && attempts.any(|attempt| attempt.quorum.is_valid(now))
    }

    pub(super) fn is_done(&self) -> bool {
        self.dead || self.doing == Doing::Done
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.dead && self.doing == Doing::Waiting
    }

    /// What stands in an instance under this acquisition is wanted, or may be.
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
                if let Some((ask, reply)) = self.lanes[instance].hear(serial, reply, world) {
                    self.with(ask.attempt, world, |attempt, means| {
                        attempt.hear(instance, &ask, Some(reply), means);
                    });
                }
            }
            world::Event::Message { instance, .. } => {
                let reborn = self.lanes[instance].reborn;
                let left = quarantine::left(reborn, self.max_lease, self.now(world));
                if self.is_waiting() && left.is_none() {
                    self.patience.free(instance);
                    world.seen.saw(Sight::WokenByMessage);
                    self.wait(world);
                }
            }
            world::Event::Timer { timer, .. } => match timer {
                Timer::Call { instance, serial } => {
                    if let Some(ask) = self.lanes[instance].give_up(serial, world) {
                        self.with(ask.attempt, world, |attempt, means| {
                            attempt.hear(instance, &ask, None, means);
                        });
                    }
                }
                Timer::Tick {
                    attempt,
                    generation,
                } => self.with(attempt, world, |attempt, means| {
                    if attempt.wakes == generation {
                        attempt.wake_at = Moment::NEVER;
                        attempt.tell(Event::Tick, means);
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

    /// Does something to an attempt, and sees to what follows.
    fn with(
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

    /// Takes notice of what became of an attempt.
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
            // Timers come up to a millisecond late.
            let at = self.clock.truly(wake_at) + world.chance.within(0, 1_000_000);
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
            Phase::Marking if !attempt.has_trusted_reads() => {
                world.seen.saw(Sight::TokenByClocks);
            }
            Phase::Acquiring | Phase::Marking | Phase::Ended => {}
        }
    }

    fn acquired(&mut self, index: usize, world: &mut World<'_>) {
        world.seen.saw(Sight::Grant);
        let attempt = &mut self.attempts[index];
        attempt.acquired = Some(world.now);
        if let Some(token) = attempt.quorum.token() {
            world.seen.saw(Sight::TokenShown);
            world.note(|| format!("token {token}"));
            let wrong = world.tokens.show(token, attempt.floor);
            world.claim(wrong.is_none(), || wrong.unwrap_or_default());
        } else {
            let is_fenced = attempt.quorum.rules().reads > 0;
            world.claim(!is_fenced, || "a fenced lock without a token".to_owned());
        }
        self.write(world);
        self.has_had_it |= self.finishing;
        if self.finishing {
            self.rest(SHORT, world);
        } else {
            self.doing = Doing::Nothing;
            self.go_on(world);
        }
    }

    fn lost(&mut self, index: usize, reason: LostReason, world: &mut World<'_>) {
        let attempt = &self.attempts[index];
        let renewed = attempt.quorum.rules().renewed;
        world.seen.saw(match reason {
            LostReason::MaxHold => Sight::LostToMaxHold,
            LostReason::NotOurs => Sight::LostToClearNoes,
            LostReason::ShutDown => Sight::LostByItsDriver,
            _ if renewed => Sight::LostByDeadline,
            _ => Sight::FixedLeaseRanOut,
        });
        let is_kept = matches!(reason, LostReason::Deadline | LostReason::NotOurs);
        let kept = !attempt.can_be_kept || !renewed || !is_kept;
        world.claim(kept, || {
            format!("what is renewed is lost though nothing went wrong: {reason:?}, {attempt:?}")
        });
        // Work that does not look goes on.
        self.write_as(index, world);
    }

    fn failed(&mut self, index: usize, world: &mut World<'_>) {
        let now = self.now(world);
        let quorum = &self.attempts[index].quorum;
        let mut had_some = false;
        for member in 0..self.rules.members {
            match quorum.outcome(member) {
                Outcome::Held | Outcome::Forgetful => {
                    had_some = true;
                    self.patience.free(member);
                }
                Outcome::Untried | Outcome::Gone => self.patience.free(member),
                Outcome::Busy(until) => self.patience.busy(member, until),
                Outcome::Quarantined(until) => self.patience.busy(member, Some(until)),
                Outcome::Unreachable | Outcome::Late => self.patience.out_of_reach(member),
            }
        }
        if had_some {
            world.seen.saw(Sight::Collision);
            let chance = world.chance.next() as u32;
            self.patience
                .collided(now.since(quorum.began()), chance, now);
        } else {
            self.patience.was_held();
        }
        self.wait(world);
    }

    /// Waits for the next round, if it may.
    fn wait(&mut self, world: &mut World<'_>) {
        let now = self.now(world);
        let next = self.patience.next_round(now + self.poll_cap);
        self.doing = Doing::Waiting;
        self.later(next.min(self.wait_ends).max(now), world);
    }

    /// Does what comes next.
    fn go_on(&mut self, world: &mut World<'_>) {
        let now = self.now(world);
        match self.doing {
            Doing::Waiting if now < self.wait_ends => return self.attempt(world),
            Doing::Trying => {
                world.seen.saw(Sight::Cancelled);
                self.tell(Event::Unlock, world);
            }
            _ => {}
        }
        self.doing = Doing::Nothing;
        while self.doing == Doing::Nothing && !self.finishing {
            let Some(step) = self.script.steps.get(self.step) else {
                return;
            };
            self.step += 1;
            let client = self.number;
            world.note(|| format!("client {client}: {step:?}"));
            self.take(*step, world);
        }
        if self.doing == Doing::Nothing {
            self.finish_on(world);
        }
    }

    fn take(&mut self, step: Step, world: &mut World<'_>) {
        let (now, ms) = (self.now(world), Duration::from_millis);
        match step {
            Step::Acquire(want) if self.living().is_none() => {
                self.want = want;
                self.wait_ends = want.wait_ms.map_or(Moment::NEVER, |wait| now + ms(wait));
                self.attempt(world);
            }
            Step::Acquire(_) => {}
            Step::Reenter { lease_ms, renewed } => {
                if self.believes(world) {
                    world.seen.saw(Sight::Reentry);
                    let lease = if renewed {
                        self.rules.lease
                    } else {
                        ms(lease_ms)
                    };
                    self.living_with(world, |attempt, means| {
                        let left = attempt.quorum.deadline().since(now);
                        attempt.can_be_kept &= attempt.quorum.rules().renewed || left > ENOUGH;
                        attempt.tell(Event::Lengthen { lease, renewed }, means);
                    });
                }
            }
            Step::Bound(hold_ms) => {
                let until = now + ms(hold_ms);
                self.living_with(world, |attempt, means| {
                    attempt.quorum.bound(until);
                    attempt.tell(Event::Tick, means);
                });
            }
            Step::LetExpire => self.living_with(world, |attempt, means| {
                attempt.quorum.let_expire();
                attempt.tell(Event::Tick, means);
            }),
            Step::Unlock => self.tell(Event::Unlock, world),
            Step::Lose => self.tell(Event::Lose(LostReason::ShutDown), world),
            Step::Rest(rest_ms) => {
                self.tell(Event::Look, world);
                self.write(world);
                self.rest(ms(rest_ms), world);
            }
        }
    }

    /// Begins a round.
    fn attempt(&mut self, world: &mut World<'_>) {
        let (now, ms) = (self.now(world), Duration::from_millis);
        let want = self.want;
        let rules = Rules {
            lease: want.lease_ms.map_or(self.rules.lease, ms),
            renewed: want.lease_ms.is_none(),
            min_validity: ms(want.min_validity_ms),
            max_until: want
                .max_hold_ms
                .map_or(Moment::NEVER, |hold| now + ms(hold)),
            ..self.rules.clone()
        };
        self.doing = Doing::Trying;
        match want.cancel_ms {
            Some(cancel_ms) => self.later(now + ms(cancel_ms), world),
            None => self.never(),
        }
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

    /// Leaves the script: from now on it wants the lock once more, however long that takes.
    pub(super) fn finish(&mut self, world: &mut World<'_>) {
        self.finishing = true;
        self.wait_ends = Moment::NEVER;
        match self.doing {
            Doing::Trying | Doing::Waiting => {
                self.want = ANY;
                if self.doing == Doing::Trying {
                    // Nobody gives this round up any more.
                    self.never();
                }
            }
            Doing::Resting | Doing::Nothing | Doing::Done => {
                self.doing = Doing::Nothing;
                self.finish_on(world);
            }
        }
    }

    fn finish_on(&mut self, world: &mut World<'_>) {
        if self.has_had_it {
            self.tell(Event::Unlock, world);
            self.doing = Doing::Done;
        } else if self.believes(world) {
            // What is renewed stays for longer than its lease.
            self.has_had_it = true;
            self.rest(self.rules.lease * 3 / 2, world);
        } else if self.finishing {
            self.tell(Event::Unlock, world);
            self.want = ANY;
            self.attempt(world);
        }
    }

    fn rest(&mut self, time: Duration, world: &mut World<'_>) {
        self.doing = Doing::Resting;
        self.later(self.now(world) + time, world);
    }

    fn later(&mut self, at: Moment, world: &mut World<'_>) {
        if self.due == Some(at) {
            return;
        }
        self.due = Some(at);
        self.generation += 1;
        let timer = Timer::Script {
            generation: self.generation,
        };
        let client = self.number;
        world.at(self.clock.truly(at), world::Event::Timer { client, timer });
    }

    /// No timer makes its script go on.
    fn never(&mut self) {
        self.due = None;
        self.generation += 1;
    }

    fn tell(&mut self, event: Event, world: &mut World<'_>) {
        self.living_with(world, |attempt, means| attempt.tell(event, means));
    }

    fn living_with(
        &mut self,
        world: &mut World<'_>,
        work: impl FnOnce(&mut Attempt, &mut Means<'_, '_>),
    ) {
        if let Some(number) = self.living().map(|attempt| attempt.number) {
            self.with(number, world, work);
        }
    }

    /// Work that looked before it writes, or has to go through with what it began.
    pub(super) fn write(&self, world: &mut World<'_>) {
        if let Some(index) = self.attempts.iter().position(|attempt| !attempt.is_over()) {
            self.write_as(index, world);
        }
    }

    fn write_as(&self, index: usize, world: &mut World<'_>) {
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

    pub(super) fn start(&mut self, world: &mut World<'_>) {
        self.go_on(world);
    }
}

/// What everybody wants in the end.
const ANY: Want = Want {
    lease_ms: None,
    wait_ms: None,
    cancel_ms: None,
    min_validity_ms: 0,
    max_hold_ms: None,
};

/// For a round, where nothing goes wrong.
const ENOUGH: Duration = Duration::from_millis(50);
const SHORT: Duration = Duration::from_millis(5);
