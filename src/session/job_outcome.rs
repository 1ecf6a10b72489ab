//! The result of a job.

/// The result of a job.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum JobOutcome {
    /// Redis had the hold, and its count is now the local one.
    Done,
    /// Redis has nothing of the hold.
    Nothing,
    /// Redis did not answer.
    Unanswered,
}

impl JobOutcome {
    pub(crate) fn is_answered(self) -> bool {
        self != Self::Unanswered
    }
}
