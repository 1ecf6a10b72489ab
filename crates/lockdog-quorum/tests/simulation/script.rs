//! How a client executes its script: its next step, and its waits for the lock.

use std::time::Duration;

use super::client::{Activity, Client};
use super::plan::{Step, Want};
use super::seen::Sight;
use super::world::{self, Timer, World};
use crate::LossCause;
use crate::Moment;
use crate::lease;
use crate::{Event, MemberOutcome, Rules};

impl Client<'_> {
    pub(super) fn acquired(&mut self, index: usize, world: &mut World<'_>) {
        world.seen.saw(Sight::Grant);
        let now = self.now(world);
        let attempt = &mut self.attempts[index];
        attempt.acquired = Some(world.now);
        let left = attempt.quorum.deadline().since(now);
        let least = attempt.quorum.rules().min_validity;
        world.claim(left >= least, || {
            format!("acquired with {left:?} left, and {least:?} is the least")
        });
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
            self.activity = Activity::Nothing;
            self.go_on(world);
        }
    }

    pub(super) fn lost(&mut self, index: usize, reason: LossCause, world: &mut World<'_>) {
        let attempt = &self.attempts[index];
        let renewed = attempt.quorum.rules().renewed;
        world.seen.saw(match reason {
            LossCause::MaxHold => Sight::LostToMaxHold,
            LossCause::NotOurs => Sight::LostToClearNoes,
            LossCause::Driver => Sight::LostByItsDriver,
            _ if renewed => Sight::LostByDeadline,
            _ => Sight::FixedLeaseRanOut,
        });
        let is_kept = matches!(reason, LossCause::Deadline | LossCause::NotOurs);
        let kept = !attempt.can_be_kept || !renewed || !is_kept;
        world.claim(kept, || {
            format!("what is renewed is lost though nothing went wrong: {reason:?}, {attempt:?}")
        });
        // Work that does not check the guard continues.
        self.write_as(index, world);
    }

    pub(super) fn failed(&mut self, index: usize, world: &mut World<'_>) {
        let now = self.now(world);
        let quorum = &self.attempts[index].quorum;
        let (mut had_some, mut is_busy) = (false, false);
        for member in 0..self.rules.members {
            match quorum.outcome(member) {
                MemberOutcome::Held => {
                    had_some = true;
                    self.patience.free(member);
                }
                MemberOutcome::Untried | MemberOutcome::Gone => self.patience.free(member),
                MemberOutcome::Busy(until) => {
                    is_busy = true;
                    self.patience.busy(member, until);
                }
                MemberOutcome::Forgetful
                | MemberOutcome::Late
                | MemberOutcome::Quarantined(_)
                | MemberOutcome::Unreachable => {
                    self.patience.out_of_reach(member);
                }
            }
        }
        if had_some && is_busy {
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
    pub(super) fn wait(&mut self, world: &mut World<'_>) {
        let now = self.now(world);
        let next = self.patience.next_round(now + self.poll_cap);
        self.activity = Activity::Waiting;
        self.later(next.min(self.wait_ends).max(now), world);
    }

    /// Executes the next step.
    pub(super) fn go_on(&mut self, world: &mut World<'_>) {
        let now = self.now(world);
        match self.activity {
            Activity::Waiting if now < self.wait_ends => return self.attempt(world),
            Activity::Trying => {
                world.seen.saw(Sight::Cancelled);
                self.apply(Event::Unlock, world);
            }
            _ => {}
        }
        self.activity = Activity::Nothing;
        while self.activity == Activity::Nothing && !self.finishing {
            let Some(step) = self.script.steps.get(self.step) else {
                return;
            };
            self.step += 1;
            let client = self.number;
            world.note(|| format!("client {client}: {step:?}"));
            self.take(*step, world);
        }
        if self.activity == Activity::Nothing {
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
                        attempt.rounds_due += 1;
                        attempt.want(lease::deadline(now, lease), means.world.now + SOON);
                        attempt.apply(Event::Lengthen { lease, renewed }, means);
                    });
                }
            }
            Step::Bound(hold_ms) => {
                let until = now + ms(hold_ms);
                self.living_with(world, |attempt, means| {
                    attempt.quorum.bound(until);
                    attempt.bound = attempt.bound.min(until);
                    attempt.apply(Event::Tick, means);
                });
            }
            Step::LetExpire => self.living_with(world, |attempt, means| {
                attempt.quorum.let_expire();
                attempt.apply(Event::Tick, means);
            }),
            Step::Unlock => self.apply(Event::Unlock, world),
            Step::Lose => self.apply(Event::Lose, world),
            Step::Rest(rest_ms) => {
                self.apply(Event::Look, world);
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
        self.activity = Activity::Trying;
        match want.cancel_ms {
            Some(cancel_ms) => self.later(now + ms(cancel_ms), world),
            None => self.never(),
        }
        self.begin(rules, world);
    }

    /// Leaves the script: from now on it wants the lock again, without a time limit.
    pub(super) fn finish(&mut self, world: &mut World<'_>) {
        self.finishing = true;
        self.wait_ends = Moment::NEVER;
        match self.activity {
            Activity::Trying | Activity::Waiting => {
                self.want = ANY;
                if self.activity == Activity::Trying {
                    // This round is not given up any more.
                    self.never();
                }
            }
            Activity::Resting | Activity::Nothing | Activity::Done => {
                self.activity = Activity::Nothing;
                self.finish_on(world);
            }
        }
    }

    fn finish_on(&mut self, world: &mut World<'_>) {
        if self.has_had_it {
            self.apply(Event::Unlock, world);
            self.activity = Activity::Done;
        } else if self.believes(world) {
            // What is renewed stays longer than its lease.
            self.has_had_it = true;
            self.rest(self.rules.lease * 3 / 2, world);
        } else if self.finishing {
            self.apply(Event::Unlock, world);
            self.want = ANY;
            self.attempt(world);
        }
    }

    fn rest(&mut self, time: Duration, world: &mut World<'_>) {
        self.activity = Activity::Resting;
        self.later(self.now(world) + time, world);
    }

    pub(super) fn later(&mut self, at: Moment, world: &mut World<'_>) {
        if self.due == Some(at) {
            return;
        }
        self.due = Some(at);
        self.generation += 1;
        let timer = Timer::Script {
            generation: self.generation,
        };
        let client = self.number;
        world.at(
            self.clock.true_time(at),
            world::Event::Timer { client, timer },
        );
    }

    /// Clears the timer of its script.
    pub(super) fn never(&mut self) {
        self.due = None;
        self.generation += 1;
    }
}

/// What every client wants at the end.
pub(super) const ANY: Want = Want {
    lease_ms: None,
    wait_ms: None,
    cancel_ms: None,
    cancels_marking: false,
    min_validity_ms: 0,
    max_hold_ms: None,
};

/// Enough for a round without faults.
const ENOUGH: Duration = Duration::from_millis(50);
const SOON: u64 = 50_000_000;
const SHORT: Duration = Duration::from_millis(5);
