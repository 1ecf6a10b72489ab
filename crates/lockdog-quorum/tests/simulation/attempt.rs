//! One acquisition: the quorum under test, and its requests under way.

use std::time::Duration;

use super::clock::Clock;
use super::lane::Lane;
use super::rounds::Rounds;
use super::world::{Command, Id, World};
use crate::Moment;
use crate::{Action, Actions, Answer, Event, Phase, Quorum, Rules};

#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) number: u32,
    pub(super) quorum: Quorum,
    pub(super) members: Vec<Member>,
    pub(super) rounds: Rounds,
    /// When it began, in true time.
    pub(super) began: u64,
    /// No fault happened since it began, and it was not almost over when it asked for renewal.
    pub(super) can_be_kept: bool,
    /// The largest token shown to any client by then.
    pub(super) floor: u64,
    /// When it was acquired, in true time.
    pub(super) acquired: Option<u64>,
    /// The last phase that was processed.
    pub(super) phase: Phase,
    /// The deadline that the observer found correct.
    pub(super) proved: Moment,
    pub(super) wake_at: Moment,
    pub(super) wakes: u32,
    /// How many steps were caused by time alone.
    ticks: u64,
    /// The number of expected rounds: the first one, one for its token, and one for each re-entry.
    pub(super) rounds_due: u64,
    /// The deadline that a re-entry asks for, and the true time by which it must be reached.
    pub(super) wanted: Option<(Moment, u64)>,
    /// The owner's limit for the deadline.
    pub(super) bound: Moment,
    /// The shortest lease that it was renewed with.
    lease: Duration,
}

/// Its state on one instance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    /// The acquisition that is pending or holds the lock there; 0 if there is none.
    pub(super) id: Id,
    pub(super) taking: bool,
    /// The caller of the pending request has stopped.
    pub(super) left: bool,
    /// When the core gives up the pending request.
    pub(super) gives_up: Moment,
    /// When its lease ends.
    pub(super) ends: Moment,
}

impl Member {
    pub(super) fn taking(id: Id) -> Self {
        Self {
            id,
            taking: id != 0,
            left: false,
            gives_up: Moment::NEVER,
            ends: Moment(0),
        }
    }
}

/// What a client lends to an attempt.
pub(super) struct Means<'a, 'w> {
    pub(super) client: usize,
    pub(super) lanes: &'a mut [Lane],
    pub(super) clock: Clock,
    pub(super) max_lease: Duration,
    pub(super) world: &'a mut World<'w>,
}

impl Attempt {
    pub(super) fn begin(number: u32, rules: Rules, means: &mut Means<'_, '_>) -> Self {
        let now = means.now();
        let members = vec![Member::taking(0); rules.members];
        let lease = rules.lease;
        let (quorum, actions) = Quorum::begin(rules.clone(), now);
        let world = &means.world;
        let mut attempt = Self {
            number,
            quorum,
            members,
            rounds: Rounds::default(),
            began: world.now,
            can_be_kept: world.calm,
            floor: world.tokens.largest(),
            acquired: None,
            phase: Phase::Acquiring,
            proved: Moment(0),
            wake_at: Moment::NEVER,
            wakes: 0,
            ticks: 0,
            rounds_due: 2,
            wanted: None,
            bound: rules.max_until,
            lease,
        };
        attempt.act(actions, means);
        attempt
    }

    /// It is over, and none of its requests is pending.
    pub(super) fn is_finished(&self) -> bool {
        self.is_over() && !self.members.iter().any(|member| member.taking)
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(
            self.quorum.phase(),
            Phase::Failed | Phase::Lost(_) | Phase::Ended
        )
    }

    /// Whether it wants this acquisition of an instance, or has not decided yet.
    pub(super) fn wants(&self, id: Id) -> bool {
        !self.is_over() && self.members.iter().any(|member| member.id == id)
    }

    /// A re-entry asks for a longer hold; without faults it gets it by a true time.
    pub(super) fn want(&mut self, until: Moment, by: u64) {
        let before = self.wanted.map_or(until, |(before, _)| before);
        self.wanted = Some((until.max(before), by));
    }

    /// It is as long as re-entries want it, or their time limit has not passed yet.
    pub(super) fn is_as_wanted(&self, now: u64) -> bool {
        let Some((until, by)) = self.wanted else {
            return true;
        };
        !self.can_be_kept || now < by || self.quorum.deadline() >= until.min(self.bound)
    }

    pub(super) fn apply(&mut self, event: Event, means: &mut Means<'_, '_>) {
        let now = means.now();
        let actions = self.quorum.step(event, now);
        self.act(actions, means);
        // The follow-up step may already be due, but not again and again.
        for _ in 0..3 {
            if self.quorum.wake_at() > now {
                return;
            }
            let actions = self.quorum.step(Event::Tick, now);
            self.act(actions, means);
        }
        let is_quiet = self.quorum.wake_at() > now;
        means
            .world
            .claim(is_quiet, || format!("it wakes itself forever: {self:?}"));
    }

    /// The time of a requested tick has come.
    pub(super) fn tick(&mut self, means: &mut Means<'_, '_>) {
        self.wake_at = Moment::NEVER;
        self.ticks += 1;
        let most = 20 + (means.world.now - self.began) / 1_000_000;
        let is_calm = self.ticks <= most;
        means
            .world
            .claim(is_calm, || format!("it wakes itself too often: {self:?}"));
        self.apply(Event::Tick, means);
        // Three rounds a lease, ten when they fail, and some more for conflicting tokens.
        self.lease = self.lease.min(self.quorum.rules().lease);
        let lived = u128::from(means.world.now - self.began);
        let most = self.rounds_due + (12 * lived / self.lease.as_nanos()) as u64 + 5;
        let is_modest = u64::from(self.quorum.round.number) <= most;
        means
            .world
            .claim(is_modest, || format!("it asks too often: {self:?}"));
    }

    fn act(&mut self, actions: Actions, means: &mut Means<'_, '_>) {
        let mut failed = Vec::new();
        for action in actions.iter().copied() {
            means.world.note(|| format!("  {action:?}"));
            match action {
                Action::Take { member, round } => {
                    if let Some(answer) = self.take(member, round, means) {
                        failed.push((member, round, answer));
                    }
                }
                Action::Extend { member, round } => {
                    let (id, lease) = (self.members[member].id, self.quorum.lease());
                    if !self.ask(member, round, Command::Extend { id, lease }, means) {
                        failed.push((member, round, Answer::Failed));
                    }
                }
                Action::Mark {
                    member,
                    round,
                    token,
                } => {
                    let (id, lease) = (self.members[member].id, self.quorum.lease());
                    if !self.ask(member, round, Command::Mark { id, token, lease }, means) {
                        failed.push((member, round, Answer::Failed));
                    }
                }
                Action::Release { member } => self.release(member, means),
            }
        }
        for (member, round, answer) in failed {
            self.answer(member, round, answer, means);
        }
    }

    /// The latest token is among those that its instances reported.
    pub(super) fn has_trusted_reads(&self) -> bool {
        let registers = self.quorum.members.iter().filter_map(|it| it.register);
        let trusted = registers.filter(|register| !register.reborn);
        trusted.count() >= self.quorum.rules().reads
    }
}

impl Means<'_, '_> {
    pub(super) fn now(&self) -> Moment {
        self.clock.local(self.world.now)
    }
}
