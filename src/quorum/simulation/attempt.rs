//! One acquisition: the quorum under test, and what it has under way.

use std::time::Duration;

use super::clock::Clock;
use super::instance::Look;
use super::lane::{Ask, Lane};
use super::seen::Sight;
use super::world::{Command, Id, Reply, World};
use crate::clock::Moment;
use crate::lease;
use crate::quorum::{Action, Actions, Answer, Event, Phase, Quorum, Register, Rules, quarantine};

#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) number: u32,
    pub(super) quorum: Quorum,
    pub(super) members: Vec<Member>,
    /// The newest rounds, for the observer.
    pub(super) rounds: Vec<Round>,
    /// When it began, in true time.
    pub(super) began: u64,
    /// Nothing went wrong since it began, and it was not almost over when it was to be renewed.
    pub(super) can_be_kept: bool,
    /// The largest token that anybody had been shown by then.
    pub(super) floor: u64,
    /// When it was acquired, in true time.
    pub(super) acquired: Option<u64>,
    /// What was last taken notice of.
    pub(super) phase: Phase,
    /// The deadline that the observer found to be right.
    pub(super) proved: Moment,
    pub(super) wake_at: Moment,
    pub(super) wakes: u32,
}

/// What it has on one instance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    /// The acquisition that is under way or stands there; 0 if there is none.
    pub(super) id: Id,
    taking: bool,
    /// Its `Take` is under way, and shall be undone.
    unwanted: bool,
    /// When its lease is over.
    ends: Moment,
}

impl Member {
    fn taking(id: Id) -> Self {
        Self {
            id,
            taking: id != 0,
            unwanted: false,
            ends: Moment(0),
        }
    }
}

/// A round as the driver sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    pub(super) number: u32,
    pub(super) began: Moment,
    pub(super) lease: Duration,
    /// Who acknowledged what was asked in it, a bit each.
    pub(super) acknowledged: u8,
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
        let (quorum, actions) = Quorum::begin(rules, now);
        let world = &means.world;
        let mut attempt = Self {
            number,
            quorum,
            members,
            rounds: Vec::new(),
            began: world.now,
            can_be_kept: world.calm,
            floor: world.tokens.largest(),
            acquired: None,
            phase: Phase::Acquiring,
            proved: Moment(0),
            wake_at: Moment::NEVER,
            wakes: 0,
        };
        attempt.act(actions, means);
        attempt
    }

    /// It is over, and nothing of it is under way.
    pub(super) fn is_finished(&self) -> bool {
        self.is_over() && !self.members.iter().any(|member| member.taking)
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(
            self.quorum.phase(),
            Phase::Failed | Phase::Lost(_) | Phase::Ended
        )
    }

    /// Wants this acquisition of an instance, or has not decided yet.
    pub(super) fn wants(&self, id: Id) -> bool {
        !self.is_over() && self.members.iter().any(|member| member.id == id)
    }

    pub(super) fn tell(&mut self, event: Event, means: &mut Means<'_, '_>) {
        let now = means.now();
        let actions = self.quorum.step(event, now);
        self.act(actions, means);
        // Time may have been up already for what follows; it never is again and again.
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
            .claim(is_quiet, || format!("it wakes itself for ever: {self:?}"));
    }

    fn act(&mut self, actions: Actions, means: &mut Means<'_, '_>) {
        let mut failed = Vec::new();
        for action in actions {
            means.world.note(|| format!("  {action:?}"));
            match action {
                Action::Take { member, round } => {
                    if let Some(answer) = self.take(member, round, means) {
                        failed.push((member, round, answer));
                    }
                }
                Action::Extend { member, round } => {
                    let (id, lease) = (self.members[member].id, self.quorum.rules().lease);
                    if !self.ask(member, round, Command::Extend { id, lease }, means) {
                        failed.push((member, round, Answer::Failed));
                    }
                }
                Action::Mark {
                    member,
                    round,
                    token,
                } => {
                    let (id, lease) = (self.members[member].id, self.quorum.rules().lease);
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

    fn take(&mut self, index: usize, round: u32, means: &mut Means<'_, '_>) -> Option<Answer> {
        self.log(round, means);
        let lane = &means.lanes[index];
        if lane.suspect {
            return Some(Answer::Failed);
        }
        if lane.is_connected()
            && let Some(left) = quarantine::left(lane.reborn, means.max_lease, means.now())
        {
            means.world.seen.saw(Sight::QuarantinedByClient);
            return Some(Answer::Quarantined(left));
        }
        let id = means.world.fresh_id(means.client);
        self.members[index] = Member::taking(id);
        let lease = self.quorum.rules().lease;
        let take = Command::Take {
            id,
            lease,
            since_ms: lane.since_ms,
        };
        self.ask(index, round, take, means);
        None
    }

    /// False if the instance is asked nothing at present.
    fn ask(
        &mut self,
        index: usize,
        round: u32,
        command: Command,
        means: &mut Means<'_, '_>,
    ) -> bool {
        self.log(round, means);
        let lane = &mut means.lanes[index];
        if lane.suspect {
            return false;
        }
        let (now, lease) = (
            means.clock.local(means.world.now),
            self.quorum.rules().lease,
        );
        let takes = matches!(command, Command::Take { .. });
        let member = &mut self.members[index];
        member.ends = member.ends.max(now + lease);
        let is_patient = !takes && means.world.chance.percent(50);
        let ask = Ask {
            attempt: self.number,
            round,
            id: member.id,
            takes,
            since_ms: lane.since_ms,
            late_until: is_patient.then_some(member.ends),
            ends: member.ends,
        };
        lane.ask(ask, command, Rules::patience(lease), means.world);
        true
    }

    fn release(&mut self, index: usize, means: &mut Means<'_, '_>) {
        let member = &mut self.members[index];
        if member.taking {
            member.unwanted = true;
        } else if member.id != 0 {
            self.give_back(index, means);
        }
    }

    fn give_back(&mut self, index: usize, means: &mut Means<'_, '_>) {
        let member = &mut self.members[index];
        let pause = Rules::patience(self.quorum.rules().lease);
        means.lanes[index].settle(member.id, member.ends, pause, means.world);
        member.id = 0;
    }

    /// Takes in what an instance answered; nothing if it did not in time.
    pub(super) fn hear(
        &mut self,
        index: usize,
        ask: &Ask,
        reply: Option<Reply>,
        means: &mut Means<'_, '_>,
    ) {
        let member = &mut self.members[index];
        if member.id != ask.id {
            return;
        }
        let mut answer = match reply {
            None => Answer::Failed,
            Some(Reply::Taken(look)) => Answer::Taken(self.register(index, ask, look, means)),
            Some(Reply::Busy(ttl, look)) => {
                Answer::Busy(ttl, self.register(index, ask, look, means))
            }
            Some(Reply::Refused(left)) => {
                means.world.seen.saw(Sight::QuarantinedByServer);
                Answer::Quarantined(left)
            }
            Some(Reply::Extended) => Answer::Extended,
            Some(Reply::Marked) => Answer::Marked,
            Some(Reply::Conflict(token)) => {
                means.world.seen.saw(Sight::TokenConflict);
                Answer::Conflict(token)
            }
            Some(Reply::NotOurs) => Answer::NotOurs,
            Some(Reply::Welcome(..) | Reply::Pong | Reply::Released | Reply::Reset(_)) => return,
        };
        let reborn = means.lanes[index].reborn;
        let left = quarantine::left(reborn, means.max_lease, means.now());
        if ask.takes {
            let member = &mut self.members[index];
            member.taking = false;
            match answer {
                Answer::Taken(_) => {
                    if let Some(left) = left {
                        means.world.seen.saw(Sight::GivenBackInQuarantine);
                        answer = Answer::Quarantined(left);
                        self.give_back(index, means);
                    } else if member.unwanted {
                        self.give_back(index, means);
                    }
                }
                _ => {
                    member.id = 0;
                    // What was not answered is settled by the lane.
                    if reply.is_some() {
                        means.world.note_closed(ask.id);
                    }
                }
            }
        } else if left.is_some() && answer == Answer::Extended {
            means.world.seen.saw(Sight::ExtendedInQuarantine);
        }
        self.note_acknowledged(index, ask, answer, means);
        self.answer(index, ask.round, answer, means);
    }

    fn answer(&mut self, member: usize, round: u32, answer: Answer, means: &mut Means<'_, '_>) {
        let event = Event::Answered {
            member,
            round,
            answer,
        };
        self.tell(event, means);
    }

    fn register(
        &self,
        index: usize,
        ask: &Ask,
        look: Look,
        means: &mut Means<'_, '_>,
    ) -> Option<Register> {
        if self.quorum.rules().reads == 0 {
            return None;
        }
        // Asked as one that it is no more, it said nothing that counts.
        let reborn = look.fresh || means.lanes[index].since_ms != ask.since_ms;
        if reborn {
            means.world.seen.saw(Sight::UntrustedRegister);
        }
        Some(Register {
            value: look.token,
            time: if means.world.plan.timeless {
                0
            } else {
                look.time
            },
            reborn,
        })
    }

    /// Notes that something is asked in a round, the first time.
    fn log(&mut self, round: u32, means: &Means<'_, '_>) {
        if self.rounds.last().is_none_or(|last| last.number < round) {
            if self.rounds.len() == REMEMBERED {
                self.rounds.remove(0);
            }
            self.rounds.push(Round {
                number: round,
                began: means.now(),
                lease: self.quorum.rules().lease,
                acknowledged: 0,
            });
        }
    }

    fn note_acknowledged(
        &mut self,
        index: usize,
        ask: &Ask,
        answer: Answer,
        means: &mut Means<'_, '_>,
    ) {
        let counts = match answer {
            // Of a fenced lock, the first round is not the one that wins.
            Answer::Taken(_) => ask.round > 1 || self.quorum.rules().reads == 0,
            Answer::Extended | Answer::Marked => true,
            _ => false,
        };
        if !counts {
            return;
        }
        if ask.takes && ask.round > 1 {
            means.world.seen.saw(Sight::Heal);
        }
        let mut rounds = self.rounds.iter_mut();
        if let Some(round) = rounds.find(|round| round.number == ask.round) {
            round.acknowledged |= 1 << index;
        }
    }

    /// The latest token is among those that its instances told it.
    pub(super) fn has_trusted_reads(&self) -> bool {
        let registers = self.quorum.members.iter().filter_map(|it| it.register);
        let trusted = registers.filter(|register| !register.reborn);
        trusted.count() >= self.quorum.rules().reads
    }

    /// What stands in the way of its deadline: it is not one that a quorum of one round gave.
    pub(super) fn unproved(&self, need: usize) -> bool {
        let deadline = self.quorum.deadline();
        deadline > self.proved
            && !self.rounds.iter().any(|round| {
                round.acknowledged.count_ones() as usize >= need
                    && deadline <= lease::deadline(round.began, round.lease)
            })
    }
}

impl Means<'_, '_> {
    pub(super) fn now(&self) -> Moment {
        self.clock.local(self.world.now)
    }
}

/// Enough for every answer that may still count.
const REMEMBERED: usize = 6;
