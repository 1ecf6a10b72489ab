//! Decides what follows from the answers of a round.

use smallvec::SmallVec;

use super::member::{Member, MemberOutcome, MemberState};
use super::round::RoundKind;
use super::{Actions, Phase, Quorum};
use crate::LossCause;
use crate::Moment;
use crate::lease::LEAD_TIME;

impl Quorum {
    /// Decides the current round with what is known now.
    pub(crate) fn judge(&mut self, now: Moment, actions: &mut Actions) {
        self.round.is_over |= now >= self.round.ends;
        match self.phase {
            Phase::Acquiring => self.judge_acquire(now, actions),
            Phase::Marking => self.judge_marks(now, actions),
            Phase::Held | Phase::Jeopardy => self.judge_extension(now, actions),
            Phase::Failed | Phase::Lost(_) | Phase::Ended => {}
        }
    }

    fn acknowledged(&self) -> usize {
        let round = self.round.number;
        let acked =
            |member: &&Member| member.state == MemberState::Held && member.acked_in == round;
        self.members.iter().filter(acked).count()
    }

    /// The number of instances whose answer may still change this round.
    fn pending(&self) -> usize {
        if self.round.is_over {
            return 0;
        }
        let round = self.round.number;
        let pending = |member: &&Member| member.asked_in == round && member.answered_in != round;
        self.members.iter().filter(pending).count()
    }

    fn judge_acquire(&mut self, now: Moment, actions: &mut Actions) {
        let (acknowledged, pending) = (self.acknowledged(), self.pending());
        if acknowledged >= self.rules.need {
            if self.rules.reads == 0 {
                return self.win(now, actions);
            }
            if self.has_read_enough() {
                let token = (self.largest_register() + 1).max(self.middle_time());
                return self.begin_marking(token, now, actions);
            }
        }
        let hopeful = acknowledged + pending >= self.rules.need && pending > 0;
        if !hopeful {
            if acknowledged >= self.rules.need {
                self.note_forgetful();
            }
            self.end(Phase::Failed, actions);
            self.note_late();
        }
    }

    fn judge_marks(&mut self, now: Moment, actions: &mut Actions) {
        let (acknowledged, pending) = (self.acknowledged(), self.pending());
        if acknowledged >= self.rules.need {
            return self.win(now, actions);
        }
        // Instances that are still being asked for the lock are marked as soon as they grant it.
        let asked = self
            .members
            .iter()
            .filter(|member| member.state == MemberState::Asked);
        let hope = if self.round.is_over {
            0
        } else {
            pending + asked.count()
        };
        if hope > 0 && acknowledged + hope >= self.rules.need {
            return;
        }
        if self.round.conflict > 0 {
            let token = self.round.conflict.max(self.token) + 1;
            return self.begin_marking(token, now, actions);
        }
        self.end(Phase::Failed, actions);
    }

    fn judge_extension(&mut self, now: Moment, actions: &mut Actions) {
        let held = self.members.iter();
        let held = held
            .filter(|member| member.state == MemberState::Held)
            .count();
        if held < self.rules.need {
            // Another owner may have a quorum from now on. A later grant must not revive this one.
            return self.end(Phase::Lost(LossCause::NotOurs), actions);
        }
        if self.round.kind == RoundKind::Extend && !self.round.won {
            if self.acknowledged() >= self.rules.need {
                self.win(now, actions);
            } else if self.next == Moment::NEVER && self.pending() == 0 {
                self.phase = Phase::Jeopardy;
                self.note_late();
                self.round.is_over = true;
                if self.rules.renewed {
                    self.next = now + self.rules.lease / 10;
                }
            }
        }
        if now >= self.next {
            self.begin_extension(self.rules.lease, now, actions);
        }
    }

    /// The round reached a quorum: moves the deadline and plans the next round.
    fn win(&mut self, now: Moment, actions: &mut Actions) {
        let deadline = self.round.deadline.min(self.rules.max_until);
        if self.is_living() {
            self.deadline = self.deadline.max(deadline);
        } else if now + self.rules.min_validity.max(LEAD_TIME) >= deadline {
            // Its owner would learn of the loss together with the grant.
            return self.end(Phase::Failed, actions);
        } else {
            self.deadline = deadline;
        }
        self.phase = Phase::Held;
        self.renewed = self.round.began;
        self.leased_until = self.round.began + self.round.lease;
        self.round.won = true;
        self.next = if self.rules.renewed {
            self.round.began + self.rules.lease / 3
        } else {
            Moment::NEVER
        };
    }

    /// Whether the latest token is certain to be known. If too many instances lost their registers for
    /// that, this is true when no instance is left that may know the token; then the instances' clocks
    /// decide.
    fn has_read_enough(&self) -> bool {
        let registers = self.members.iter().filter_map(|member| member.register);
        let (mut trusted, mut untrusted) = (0, 0);
        for register in registers {
            if register.is_trusted() {
                trusted += 1;
            } else {
                untrusted += 1;
            }
        }
        let reads = self.rules.reads;
        let is_hopeless = self.rules.members - untrusted < reads;
        let have_all_spoken = self.pending() == 0;
        trusted >= reads || (is_hopeless && have_all_spoken && trusted + untrusted >= reads)
    }

    fn largest_register(&self) -> u64 {
        let registers = self.members.iter().filter_map(|member| member.register);
        registers
            .filter_map(|register| register.value)
            .max()
            .unwrap_or(0)
    }

    /// The median of the instances' wall clocks: with it tokens grow even if every register is lost.
    fn middle_time(&self) -> u64 {
        let registers = self.members.iter().filter_map(|member| member.register);
        let mut times: SmallVec<[u64; 5]> = registers.map(|register| register.time).collect();
        times.sort_unstable();
        times.get(times.len() / 2).copied().unwrap_or(0)
    }

    /// Records the instances that would have completed the quorum if their registers could be trusted.
    fn note_forgetful(&mut self) {
        for member in &mut self.members {
            let is_trusted = member.register.is_none_or(|register| register.is_trusted());
            if member.state == MemberState::Held && !is_trusted {
                member.outcome = MemberOutcome::Forgetful;
            }
        }
    }

    /// Records the instances whose answers the round no longer waits for.
    pub(crate) fn note_late(&mut self) {
        if !self.round.is_over {
            return;
        }
        let round = self.round.number;
        for member in &mut self.members {
            let is_owed = member.asked_in == round && member.answered_in != round;
            if is_owed || member.state == MemberState::Asked {
                member.outcome = MemberOutcome::Late;
            }
        }
    }
}
