//! What is known of one instance.

use crate::Moment;

use super::round::Round;
use super::{Register, Rules};

/// One instance of a quorum, seen from one acquisition.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Member {
    pub(crate) stand: MemberState,
    /// Up to when the instance keeps what stands there for certain, or would by the `Take` under way.
    pub(crate) until: Moment,
    /// The `Take` under way is given up then; never if there is none.
    pub(crate) asked_until: Moment,
    /// The round of that `Take`: what an earlier one is answered says nothing of it.
    pub(crate) taken_in: u32,
    /// The last round in which it was asked anything, answered, and acknowledged.
    pub(crate) asked_in: u32,
    pub(crate) answered_in: u32,
    pub(crate) acked_in: u32,
    pub(crate) register: Option<Register>,
    pub(crate) outcome: MemberOutcome,
}

/// What stands on an instance, as far as is known.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum MemberState {
    Nothing,
    /// A `Take` is under way.
    Asked,
    Held,
    /// It said that it is not ours any more.
    Gone,
}

/// What became of an instance, for the report.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum MemberOutcome {
    /// It was not asked yet, or has not answered yet.
    Untried,
    /// It granted the lock, and has not said otherwise.
    Held,
    /// Somebody else has it, up to then if its key expires.
    Busy(Option<Moment>),
    /// It could not be asked, or did not answer.
    Unreachable,
    /// It may have forgotten the lock's fencing tokens, and too few others know them.
    Forgetful,
    /// It does not count until then.
    Quarantined(Moment),
    /// Its answer was not waited for any longer.
    Late,
    /// It had the lock, and said that it has it no more.
    Gone,
}

impl Member {
    pub(crate) fn new(now: Moment) -> Self {
        Self {
            stand: MemberState::Nothing,
            until: now,
            asked_until: Moment::NEVER,
            taken_in: 0,
            asked_in: 0,
            answered_in: 0,
            acked_in: 0,
            register: None,
            outcome: MemberOutcome::Untried,
        }
    }

    /// The instance keeps it for certain at `now`.
    pub(crate) fn stands(&self, now: Moment) -> bool {
        self.stand == MemberState::Held && now < self.until
    }

    /// A `Take` for it leaves now.
    pub(crate) fn ask(&mut self, round: &Round) {
        self.asked_in = round.number;
        self.taken_in = round.number;
        self.until = round.deadline;
        self.asked_until = round.began + Rules::longest_answer(round.lease);
        self.stand = MemberState::Asked;
    }

    /// No `Take` is under way any more.
    pub(crate) fn is_now(&mut self, stand: MemberState) {
        self.stand = stand;
        self.asked_until = Moment::NEVER;
    }
}
