//! What an acquisition asks its instances, and how it interprets their answers.

use super::attempt::{Attempt, Means, Member};
use super::instance::Look;
use super::lane::Ask;
use super::seen::Sight;
use super::world::{Command, Reply};
use crate::{Answer, Event, Phase, Register, Rules, quarantine};

impl Attempt {
    /// Acquires an instance; returns the answer if no command is sent for it.
    pub(super) fn take(
        &mut self,
        index: usize,
        round: u32,
        means: &mut Means<'_, '_>,
    ) -> Option<Answer> {
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
        let lease = self.quorum.lease();
        self.members[index] = Member {
            left: means.world.leaves(),
            gives_up: means.now() + 3 * Rules::answer_limit(lease),
            ..Member::taking(id)
        };
        if self.members[index].left {
            means.world.seen.saw(Sight::Left);
        }
        let take = Command::Take {
            id,
            lease,
            since_ms: lane.since_ms,
        };
        self.ask(index, round, take, means);
        None
    }

    /// False if the instance must not be asked at present.
    pub(super) fn ask(
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
        let now = means.clock.local(means.world.now);
        let lease = self.quorum.lease();
        let takes = matches!(command, Command::Take { .. });
        let member = &mut self.members[index];
        member.ends = member.ends.max(now + lease);
        let is_patient = !takes && means.world.chance.percent(50);
        let ask = Ask {
            attempt: self.number,
            round,
            id: member.id,
            takes,
            left: takes && member.left,
            since_ms: lane.since_ms,
            late_until: is_patient.then_some(member.ends),
            ends: member.ends,
        };
        lane.ask(ask, command, Rules::answer_limit(lease), means.world);
        true
    }

    pub(super) fn release(&mut self, index: usize, means: &mut Means<'_, '_>) {
        // If a `Take` is pending, the core repeats this when it is answered.
        let member = &mut self.members[index];
        if member.id != 0 && member.taking && member.left {
            // No caller is left to bring the answer, so the background undoes the request.
            member.taking = false;
            means.lanes[index].withdraw(member.id);
            if self.quorum.is_living() {
                means.world.seen.saw(Sight::GivenUp);
            }
        }
        let member = &self.members[index];
        if member.id != 0 && !member.taking {
            self.give_back(index, means);
        }
    }

    fn give_back(&mut self, index: usize, means: &mut Means<'_, '_>) {
        let member = &mut self.members[index];
        let pause = Rules::answer_limit(self.quorum.lease());
        means.lanes[index].settle(member.id, member.ends, pause, means.world);
        member.id = 0;
    }

    /// Processes the answer of an instance; `None` if it did not answer in time.
    pub(super) fn receive(
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
                    }
                }
                _ => {
                    member.id = 0;
                    // The lane settles requests without an answer.
                    if reply.is_some() {
                        means.world.note_closed(ask.id);
                    }
                }
            }
        } else if left.is_some() && answer == Answer::Extended {
            means.world.seen.saw(Sight::ExtendedInQuarantine);
        }
        let (is_first, is_fenced) = (ask.round == 1, self.quorum.rules().reads > 0);
        if matches!(answer, Answer::Taken(_)) && !is_first {
            means.world.seen.saw(Sight::Heal);
        }
        // With a fenced lock, the first round does not win.
        let wins = !(is_first && is_fenced);
        if wins && matches!(answer, Answer::Taken(_) | Answer::Extended | Answer::Marked) {
            self.rounds.acknowledge(ask.round, index);
        }
        self.answer(index, ask.round, answer, means);
    }

    pub(super) fn answer(
        &mut self,
        member: usize,
        round: u32,
        answer: Answer,
        means: &mut Means<'_, '_>,
    ) {
        let event = Event::Answered {
            member,
            round,
            answer,
        };
        self.apply(event, means);
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
        // The instance was asked under an identity that it no longer has, so its register does not
        // count.
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

    fn log(&mut self, round: u32, means: &mut Means<'_, '_>) {
        if self.quorum.phase() == Phase::Marking && self.rounds.newest() > 1 {
            let is_new = self.rounds.newest() < round;
            if is_new {
                means.world.seen.saw(Sight::TokenRaised);
            }
        }
        let lease = self.quorum.lease();
        self.rounds.ask(round, means.now(), lease);
    }
}
