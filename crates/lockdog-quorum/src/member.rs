//! What is known about one instance.

use crate::Moment;

use super::round::Round;
use super::{Register, Rules};

/// One instance of a quorum, as one acquisition knows it.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Member {
    pub(crate) state: MemberState,
    /// Until when the instance is certain to keep the lock, or would be if the pending `Take` succeeds.
    pub(crate) until: Moment,
    /// When the pending `Take` is given up; never if there is none.
    pub(crate) asked_until: Moment,
    /// The round of the last `Take`. Answers of earlier rounds are not about it.
    pub(crate) taken_in: u32,
    /// The last round in which it was asked anything.
    pub(crate) asked_in: u32,
    /// The last round in which it answered.
    pub(crate) answered_in: u32,
    /// The last round in which it acknowledged.
    pub(crate) acked_in: u32,
    pub(crate) register: Option<Register>,
    pub(crate) outcome: MemberOutcome,
}

/// Whether an instance holds the lock, as far as is known.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum MemberState {
    Nothing,
    /// A `Take` is pending.
    Asked,
    Held,
    /// It answered that the lock is not ours any more.
    Gone,
}

/// The outcome of an instance, for reports.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum MemberOutcome {
    /// Not asked yet, or no answer yet.
    Untried,
    /// It granted the lock, and has not reported a loss since.
    Held,
    /// Another owner holds it, until then if its key expires.
    Busy(Option<Moment>),
    /// It could not be asked, or did not answer.
    Unreachable,
    /// It may have lost the lock's fencing tokens, and too few other instances know them.
    Forgetful,
    /// It is in quarantine and does not count until then.
    Quarantined(Moment),
    /// The round stopped waiting for its answer.
    Late,
    /// It held the lock, and reported that it does not any more.
    Gone,
}

impl Member {
    pub(crate) fn new(now: Moment) -> Self {
        Self {
            state: MemberState::Nothing,
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

    /// Whether the instance is certain to keep the lock at `now`.
    pub(crate) fn is_certain(&self, now: Moment) -> bool {
        self.state == MemberState::Held && now < self.until
    }

    /// Records that a `Take` is sent now.
    pub(crate) fn ask(&mut self, round: &Round) {
        self.asked_in = round.number;
        self.taken_in = round.number;
        self.until = round.deadline;
        self.asked_until = round.began + Rules::longest_answer(round.lease);
        self.state = MemberState::Asked;
    }

    /// Sets the state; no `Take` is pending any more.
    pub(crate) fn is_now(&mut self, state: MemberState) {
        self.state = state;
        self.asked_until = Moment::NEVER;
    }
}
