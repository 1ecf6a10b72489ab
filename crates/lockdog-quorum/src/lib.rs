//! The quorum core of `lockdog`'s `RedLock`. It decides how a lock on several independent instances is
//! acquired, extended and lost.
//!
//! It has no clock, no task and no socket. [`Quorum::step`] takes an [`Event`] and the time, and returns
//! the [`Action`]s to execute. lockdog executes them on servers; a seeded simulator and a model checker
//! run the same code in this crate's tests.
//!
//! A *round* is one parallel attempt on all instances. Its time counts from its beginning, and only its
//! own acknowledgements count for it. A late acknowledgement of an earlier round shows that the
//! instance holds the lock, but it is not a vote.
//!
//! ```
//! use std::time::Duration;
//!
//! use lockdog_quorum::{Action, Answer, Event, Moment, Phase, Quorum, Rules};
//!
//! let rules = Rules {
//!     members: 3,
//!     need: Rules::need(3, 0),
//!     reads: 0,
//!     lease: Duration::from_secs(30),
//!     renewed: true,
//!     min_validity: Duration::ZERO,
//!     max_until: Moment::NEVER,
//! };
//! let now = Moment(1_000_000_000);
//! let (mut quorum, actions) = Quorum::begin(rules, now);
//! // The core asks all three instances, and two of them grant the lock.
//! for action in &actions[..2] {
//!     let &Action::Take { member, round } = action else { unreachable!() };
//!     let answer = Answer::Taken(None);
//!     quorum.step(Event::Answered { member, round, answer }, now + Duration::from_millis(3));
//! }
//! assert_eq!(quorum.phase(), Phase::Held);
//! assert!(quorum.is_valid(now + Duration::from_secs(29)));
//! ```

mod answers;
mod event;
mod extend;
mod judge;
pub mod lease;
mod member;
mod moment;
mod phase;
pub mod quarantine;
mod retry_timer;
mod round;
mod rules;
mod taking;

// They use private items of the core, so they are not integration tests.
#[cfg(test)]
#[path = "../tests/model/mod.rs"]
mod model;
#[cfg(test)]
#[path = "../tests/simulation/mod.rs"]
mod simulation;
#[cfg(test)]
mod tests;

use std::time::Duration;

use smallvec::SmallVec;

use crate::lease::LEAD_TIME;

pub use event::{Action, Actions, Answer, Event, Register};
pub use member::MemberOutcome;
use member::{Member, MemberState};
pub use moment::Moment;
pub use phase::{LossCause, Phase};
pub use retry_timer::RetryTimer;
use round::{Round, RoundKind};
pub use rules::Rules;

/// One acquisition of a lock on several instances.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Quorum {
    rules: Rules,
    members: SmallVec<[Member; 5]>,
    phase: Phase,
    round: Round,
    /// Until when the lock may be used; before it is held, until when it must be won.
    deadline: Moment,
    /// When the last successful round began, and when the lease that it obtained ends.
    renewed: Moment,
    leased_until: Moment,
    /// When the next round of extension is due.
    next: Moment,
    token: u64,
}

impl Quorum {
    /// Begins an acquire.
    pub fn begin(rules: Rules, now: Moment) -> (Self, Actions) {
        let round = Round::first(now, rules.lease);
        let mut quorum = Self {
            members: SmallVec::from_elem(Member::new(now), rules.members),
            phase: Phase::Acquiring,
            deadline: round
                .deadline
                .min(rules.max_until)
                .minus(rules.min_validity),
            round,
            renewed: now,
            leased_until: now,
            next: Moment::NEVER,
            token: 0,
            rules,
        };
        let mut actions = Actions::new();
        quorum.take_missing(&mut actions);
        (quorum, actions)
    }

    /// Processes an event. Returns the actions to execute.
    pub fn step(&mut self, event: Event, now: Moment) -> Actions {
        let mut actions = Actions::new();
        self.expire(now, &mut actions);
        match event {
            Event::Answered {
                member,
                round,
                answer,
            } => self.answered(member, round, answer, now, &mut actions),
            Event::Tick => {}
            Event::Look => return actions,
            Event::Lose => self.end(Phase::Lost(LossCause::Driver), &mut actions),
            Event::Lengthen { lease, renewed } => self.lengthen(lease, renewed, now, &mut actions),
            Event::Unlock => self.end(Phase::Ended, &mut actions),
        }
        self.give_up_late(now, &mut actions);
        self.judge(now, &mut actions);
        actions
    }

    /// The current phase.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Until when the lock may be used.
    pub fn deadline(&self) -> Moment {
        self.deadline
    }

    /// Whether the lock may be used now.
    pub fn is_valid(&self, now: Moment) -> bool {
        self.is_living() && now < self.deadline
    }

    /// Whether it was won, and neither lost nor released, as of the last event.
    pub fn is_living(&self) -> bool {
        matches!(self.phase, Phase::Held | Phase::Jeopardy)
    }

    /// The fencing token, once it is safe to use.
    pub fn token(&self) -> Option<u64> {
        let shown =
            self.rules.reads > 0 && !matches!(self.phase, Phase::Acquiring | Phase::Marking);
        (shown && self.token > 0).then_some(self.token)
    }

    /// The rules of this acquisition.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The number of the current round, counted from 1.
    pub fn round(&self) -> u32 {
        self.round.number
    }

    /// The lease that the current round asks for.
    pub fn lease(&self) -> Duration {
        self.round.lease
    }

    /// When the last round that reached a quorum began.
    pub fn renewed(&self) -> Moment {
        self.renewed
    }

    /// It ends at [`Rules::max_until`], and no extension changes that.
    pub fn is_as_long_as_allowed(&self) -> bool {
        self.deadline == self.rules.max_until
    }

    /// When the current round began.
    pub fn began(&self) -> Moment {
        self.round.began
    }

    /// The end of the current round of extension, if that round began at `since` or later and is not
    /// decided.
    pub fn extending(&self, since: Moment, now: Moment) -> Option<Moment> {
        let is_open = self.is_living() && self.round.is_open() && self.round.began >= since;
        (is_open && now < self.round.ends).then_some(self.round.ends)
    }

    /// When the current round stops waiting for answers.
    pub fn round_ends(&self) -> Moment {
        self.round.ends
    }

    /// How many instances may lose it early without another owner being able to get a quorum.
    pub fn margin(&self, now: Moment) -> usize {
        let held = self.members.iter().filter(|member| member.is_certain(now));
        (held.count() + self.rules.need).saturating_sub(self.rules.members + 1)
    }

    /// Whether this instance holds it, as far as is known.
    pub fn has(&self, member: usize) -> bool {
        self.members[member].state == MemberState::Held
    }

    /// Whether a query of this round belongs to the instance's last `Take`, not to one that was given
    /// up.
    pub fn is_of_last_take(&self, member: usize, round: u32) -> bool {
        round >= self.members[member].taken_in
    }

    /// The outcome of one instance.
    pub fn outcome(&self, member: usize) -> MemberOutcome {
        self.members[member].outcome
    }

    /// Limits the time for which it may be kept.
    pub fn bound(&mut self, until: Moment) {
        self.rules.max_until = self.rules.max_until.min(until);
        self.deadline = self.deadline.min(self.rules.max_until);
    }

    /// Limits the time for which the current round waits for answers.
    pub fn end_round_by(&mut self, ends: Moment) {
        self.round.ends = self.round.ends.min(ends);
    }

    /// When it is reported as lost, unless it is extended first.
    pub fn notified_at(&self) -> Moment {
        self.deadline.minus(LEAD_TIME)
    }

    /// The latest time for the next [`Event::Tick`].
    pub fn wake_at(&self) -> Moment {
        match self.phase {
            Phase::Acquiring | Phase::Marking => self.round.ends.min(self.deadline),
            Phase::Held | Phase::Jeopardy => {
                let next = if self.round.is_open() {
                    self.round.ends.min(self.next)
                } else {
                    self.next
                };
                next.min(self.notified_at()).min(self.asked_until())
            }
            Phase::Failed | Phase::Lost(_) | Phase::Ended => Moment::NEVER,
        }
    }

    /// Ends an acquisition whose deadline has passed.
    fn expire(&mut self, now: Moment, actions: &mut Actions) {
        match self.phase {
            Phase::Acquiring | Phase::Marking if now >= self.deadline => {
                self.round.is_over = true;
                self.end(Phase::Failed, actions);
                self.note_late();
            }
            Phase::Held | Phase::Jeopardy if now + LEAD_TIME >= self.deadline => {
                let reason = if self.is_as_long_as_allowed() {
                    LossCause::MaxHold
                } else {
                    LossCause::Deadline
                };
                self.end(Phase::Lost(reason), actions);
            }
            _ => {}
        }
    }

    /// Ends the acquisition and releases every instance, including those that may still grant it.
    fn end(&mut self, phase: Phase, actions: &mut Actions) {
        if matches!(self.phase, Phase::Failed | Phase::Lost(_) | Phase::Ended) {
            return;
        }
        if !self.is_living() {
            // Too few instances know the token, so another acquisition may use the same one.
            self.token = 0;
        }
        self.phase = phase;
        for (index, member) in self.members.iter_mut().enumerate() {
            if matches!(member.state, MemberState::Held | MemberState::Asked) {
                actions.push(Action::Release { member: index });
            }
            if member.state == MemberState::Held {
                member.is_now(MemberState::Nothing);
            }
        }
    }

    fn mark(&mut self, index: usize, actions: &mut Actions) {
        let round = self.round.number;
        self.members[index].asked_in = round;
        actions.push(Action::Mark {
            member: index,
            round,
            token: self.token,
        });
    }

    fn begin_marking(&mut self, token: u64, now: Moment, actions: &mut Actions) {
        self.phase = Phase::Marking;
        self.token = token;
        self.round = self.round.following(RoundKind::Mark, now, self.rules.lease);
        for index in 0..self.members.len() {
            if self.members[index].state == MemberState::Held {
                self.mark(index, actions);
            }
        }
    }
}
