//! What is known of one instance.

use crate::clock::Moment;

use super::round::Round;
use super::{Register, Rules};

/// One instance of a quorum, seen from one acquisition.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(super) struct Member {
    pub(super) stand: Stand,
    /// Up to when the instance keeps what stands there for certain, or would by the `Take` under way.
    pub(super) until: Moment,
    /// The `Take` under way is given up then; never if there is none.
    pub(super) asked_until: Moment,
    /// The round of that `Take`: what an earlier one is answered says nothing of it.
    pub(super) taken_in: u32,
    /// The last round in which it was asked anything, answered, and acknowledged.
    pub(super) asked_in: u32,
    pub(super) answered_in: u32,
    pub(super) acked_in: u32,
    pub(super) register: Option<Register>,
    pub(super) outcome: Outcome,
}

/// What stands on an instance, as far as is known.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Stand {
    Nothing,
    /// A `Take` is under way.
    Asked,
    Held,
    /// It said that it is not ours any more.
    Gone,
}

/// What became of an instance, for the report.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Outcome {
    Untried,
    Held,
    /// Somebody else has it, up to then if its key expires.
    Busy(Option<Moment>),
    Unreachable,
    /// It may have forgotten the lock's fencing tokens, and too few others know them.
    Forgetful,
    /// It does not count until then.
    Quarantined(Moment),
    /// Its answer was not waited for any longer.
    Late,
    Gone,
}

impl Member {
    pub(super) fn new(now: Moment) -> Self {
        Self {
            stand: Stand::Nothing,
            until: now,
            asked_until: Moment::NEVER,
            taken_in: 0,
            asked_in: 0,
            answered_in: 0,
            acked_in: 0,
            register: None,
            outcome: Outcome::Untried,
        }
    }

    /// The instance keeps it for certain at `now`.
    pub(super) fn stands(&self, now: Moment) -> bool {
        self.stand == Stand::Held && now < self.until
    }

    /// A `Take` for it leaves now.
    pub(super) fn ask(&mut self, round: &Round) {
        self.asked_in = round.number;
        self.taken_in = round.number;
        self.until = round.deadline;
        self.asked_until = round.began + Rules::longest_answer(round.lease);
        self.stand = Stand::Asked;
    }

    /// No `Take` is under way any more.
    pub(super) fn is_now(&mut self, stand: Stand) {
        self.stand = stand;
        self.asked_until = Moment::NEVER;
    }
}
